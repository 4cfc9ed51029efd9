"""A Batch on its way, and the verbs that are a Batch of one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from radixd.client.batch import BatchBuilder
from radixd.client.operation import Operation
from radixd.client.results import Reply
from radixd.client.signature import answered, show

if TYPE_CHECKING:
    from radixd.client.sync.lease import Lease
    from radixd.client.sync.session import Session

P = ParamSpec("P")
T = TypeVar("T")


class Batch(BatchBuilder["Lease"]):
    """Operations for one message."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.exchange)
        self._session = session

    def send(self) -> Future[Reply]:
        """Send it: a future of the reply. Several Batches may be in flight; replies come in order.

        The future raises what refused the whole Batch, the session's end, or Unreachable. What concerns one operation
        is told by that operation's `result`. Raises the session's end, LimitExceeded or Unreachable; nothing was sent.

        A Batch whose future you stop waiting for (`future.result(timeout)`) is carried out all the same: look at its
        operations later, or `abandon` it.
        """
        return self._session.send(self)

    def abandon(self) -> None:
        """Take nothing of it any more: leases that it opens, or has opened, are released by themselves.

        Its other operations are carried out as they were sent. Once only, and on a sent Batch.
        """
        self._session.abandon(self)


def verb(build: Callable[Concatenate[Batch, P], Operation[T]]) -> Callable[Concatenate[Session, P], T]:
    """A Batch of one, answered."""

    @wraps(build)
    def call(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = session.batch()
        operation = build(batch, *args, **kwargs)
        _answer(batch)
        return operation.result()

    return show(call, answered(build, "Lease"))


def lease_verb(build: Callable[Concatenate[Batch, Lease, P], Operation[T]]) -> Callable[Concatenate[Lease, P], T]:
    """A Batch of one about this lease, answered."""

    @wraps(build)
    def call(lease: Lease, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = lease.session.batch()
        operation = build(batch, lease, *args, **kwargs)
        _answer(batch)
        return operation.result()

    return show(call, answered(build, "Lease", given=2))


def _answer(batch: Batch) -> None:
    future = batch.send()
    try:
        future.result()
    except BaseException:
        # Interrupted, or told that no daemon answers: nobody will ask for what comes later.
        batch.abandon()
        raise
