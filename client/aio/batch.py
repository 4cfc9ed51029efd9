"""A Batch on its way, and the verbs that are a Batch of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from radixd.client.batch import BatchBuilder
from radixd.client.operation import Operation
from radixd.client.results import Reply
from radixd.client.signature import answered, show

if TYPE_CHECKING:
    from radixd.client.aio.lease import AsyncLease
    from radixd.client.aio.session import AsyncSession

P = ParamSpec("P")
T = TypeVar("T")


class AsyncBatch(BatchBuilder["AsyncLease"]):
    """Operations for one message."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session.exchange)
        self._session = session

    def send(self) -> asyncio.Future[Reply]:
        """Send it: await the reply. Several Batches may be in flight; replies come in order.

        The future raises what refused the whole Batch, the session's end, or Unreachable. What concerns one operation
        is told by that operation's `result`. Raises the session's end, LimitExceeded or Unreachable; nothing was sent.

        To cancel the future, as `asyncio.wait_for` does, abandons the Batch; `asyncio.wait` or `asyncio.shield` leaves
        it be. A task that is cancelled in the moment in which the reply comes is not seen here: where that matters,
        `abandon` it in an `except asyncio.CancelledError`, as the single verbs do by themselves.
        """
        return self._session.send(self)

    def abandon(self) -> None:
        """As `Batch.abandon`."""
        self._session.abandon(self)


def verb(
    build: Callable[Concatenate[AsyncBatch, P], Operation[T]],
) -> Callable[Concatenate[AsyncSession, P], Coroutine[object, None, T]]:
    """A Batch of one, answered."""

    @wraps(build)
    async def call(session: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = session.batch()
        operation = build(batch, *args, **kwargs)
        await _answer(batch)
        return operation.result()

    return show(call, answered(build, "AsyncLease"))


def lease_verb(
    build: Callable[Concatenate[AsyncBatch, AsyncLease, P], Operation[T]],
) -> Callable[Concatenate[AsyncLease, P], Coroutine[object, None, T]]:
    """A Batch of one about this lease, answered."""

    @wraps(build)
    async def call(lease: AsyncLease, /, *args: P.args, **kwargs: P.kwargs) -> T:
        batch = lease.session.batch()
        operation = build(batch, lease, *args, **kwargs)
        await _answer(batch)
        return operation.result()

    return show(call, answered(build, "AsyncLease", given=2))


async def _answer(batch: AsyncBatch) -> None:
    future = batch.send()
    try:
        await future
    except BaseException:
        # Cancelled, perhaps with the reply already here, or told that no daemon answers: nobody asks for it later.
        batch.abandon()
        raise
