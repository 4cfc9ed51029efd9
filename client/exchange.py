"""The conversation of one session with its daemon: seqs, steps, what is unanswered, what is acknowledged. No I/O."""

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

from radixd.client import convert
from radixd.client.abandoned import Abandoned
from radixd.client.batch import BatchBuilder, L
from radixd.client.errors import LimitExceeded, RadixError, SessionOver, Unreachable, is_passing
from radixd.client.lease import Standing
from radixd.client.operation import Operation
from radixd.client.results import HostOccupancy, Occupancy, OpenedSession, Reply
from radixd.v1 import cache_pb2

WAY_OUT = {
    "operations": "send them in several Batches",
    "message_bytes": "send it in smaller parts",
    "replay_batches": "wait for a reply before you send the next Batch",
}
"""By the name of the limit."""


class Outcome(Protocol):
    """Where a Batch's reply goes: concurrent.futures.Future and asyncio.Future both are one."""

    def done(self) -> bool:
        """Whether it has been settled or cancelled."""

    def set_result(self, result: Reply, /) -> None:
        """The reply has come, and its operations are settled."""

    def set_exception(self, error: RadixError, /) -> None:
        """There will be none, or none soon."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A Batch on its way, as the very bytes that went out: sent again, they act once."""

    seq: int
    data: bytes
    operations: list[Operation[object]]
    outcome: Outcome


class Exchange(Generic[L]):
    """One session from its opening to its end. Not thread-safe: the transport guards it.

    Table patches wait in their leases for a step boundary, which only the engine's thread knows: `step`, or `pause`
    while no step is in flight. Only then is the reply that brought them acknowledged, because the daemon reuses the
    replaced pages once the steps launched up to that acknowledgement have completed.
    """

    def __init__(self, opened: OpenedSession, lease_class: Callable[[Standing], L]) -> None:
        self.opened = opened
        self.standing = Standing(opened.page_size)
        self.launched = 0
        self.completed = 0
        self.device: Occupancy | None = None
        self.host: HostOccupancy | None = None
        self.generation = opened.generation
        self._lease_class = lease_class
        self._next_seq = 1
        self._received = 0
        self._ack = 0
        self._unanswered: deque[Unanswered] = deque()
        self._told = (-1, -1)
        self._unreachable: Unreachable | None = None
        self._abandoned: Abandoned[L] = Abandoned(self.standing)
        self._pid = os.getpid()

    @property
    def over(self) -> SessionOver | None:
        """What ended the session."""
        return self.standing.over

    @property
    def has_news(self) -> bool:
        """Whether the daemon does not know the step counts yet."""
        return self._told != (self.launched, self.completed)

    def new_lease(self) -> L:
        """A lease of this session that nobody has answered yet."""
        return self._lease_class(self.standing)

    def step(self, launched: int | None, completed: int | None) -> None:
        """Report steps; None leaves a count as it is. A boundary: table patches received so far are applied."""
        launched = self.launched if launched is None else launched
        completed = self.completed if completed is None else completed
        if launched < self.launched or completed < self.completed or completed > launched:
            raise ValueError(
                f"steps: launched {self.launched} → {launched}, completed {self.completed} → {completed}; "
                "neither may fall, and completed may not pass launched"
            )
        self.launched, self.completed = launched, completed
        self._apply_patches()

    def pause(self) -> None:
        """Before a Batch of the engine's, on its thread: a boundary if no step is in flight.

        Raises Unreachable after `despair`.
        """
        if self._unreachable is not None:
            raise self._unreachable
        if self.launched == self.completed:
            self._apply_patches()

    def submit(self, batch: BatchBuilder[L], outcome: Outcome) -> bytes:
        """Give `batch` the next seq: the bytes to send.

        Raises the session's end or LimitExceeded; nothing has changed then.
        """
        if self.over is not None:
            raise self.over
        if os.getpid() != self._pid:
            raise RuntimeError("this session belongs to the process that opened it: after a fork, open one of your own")
        if batch.sent:
            raise RuntimeError("this Batch was sent already: build another")
        limits = self.opened.limits
        _check_limit("operations", len(batch), limits.operations)
        _check_limit("replay_batches", len(self._unanswered) + 1, limits.replay_batches)
        call = batch.message.call
        call.session_id, call.secret, call.epoch = self.opened.session_id, self.opened.secret, self.opened.epoch
        call.seq, call.ack = self._next_seq, self._ack
        call.launched, call.completed = self.launched, self.completed
        data = batch.message.SerializeToString()
        # gRPC would refuse it too, but by breaking the stream for a Batch that can never be sent.
        _check_limit("message_bytes", len(data), limits.message_bytes)
        self._unanswered.append(Unanswered(self._next_seq, data, batch.operations, outcome))
        self._next_seq += 1
        self._told = (self.launched, self.completed)
        batch.sent = True
        return data

    def unanswered(self) -> list[bytes]:
        """What to send again, in this order, on a new stream."""
        return [batch.data for batch in self._unanswered]

    def receive(self, message: cache_pb2.BatchReply) -> None:
        """Take the reply to the oldest unanswered Batch in: its operations, then news of older ones."""
        if not self._unanswered or message.seq != self._unanswered[0].seq:
            return  # a reply to what another stream has answered already
        batch = self._unanswered.popleft()
        self._unreachable = None
        for operation, answer in zip(batch.operations, message.results, strict=True):
            operation.settle(answer)
        self._take_news(message)
        self._received = message.seq
        if not self.standing.unpatched:
            self._ack = message.seq
        reply = convert.reply(message)
        self.device, self.host, self.generation = reply.device, reply.host, reply.generation
        if not batch.outcome.done():
            batch.outcome.set_result(reply)

    def abandon(self, batch: BatchBuilder[L]) -> None:
        """Nobody takes what `batch` opens, or has opened: `give_back` releases it once it is known."""
        self._abandoned.add(batch)

    def give_back(self) -> bytes | None:
        """Release the abandoned leases that have come: the bytes to send; None where there are none.

        After a reply there is always room for this Batch, and for as many Releases as that reply has opened leases.
        """
        limits = self.opened.limits
        if not self._abandoned or self.over is not None or len(self._unanswered) >= limits.replay_batches:
            return None
        batch: BatchBuilder[L] = BatchBuilder(self)
        outcome = self._abandoned.release_into(batch, limits.operations)
        return self.submit(batch, outcome) if len(batch) else None

    def stream_ended(self, error: RadixError) -> None:
        """The stream broke, and another follows; if it was refused, then over its oldest unanswered Batch.

        That one changed nothing, and those behind it were not read: their seqs are free again.
        """
        if not is_passing(error):
            if self._unanswered:
                self._next_seq = self._unanswered[0].seq
            self._fail_all(error)

    def despair(self, error: Unreachable) -> None:
        """No daemon for too long: tell those who wait. The Batches stay, because their outcome is unknown."""
        self._unreachable = error
        for batch in self._unanswered:
            if not batch.outcome.done():
                batch.outcome.set_exception(error)

    def end(self, error: SessionOver) -> None:
        """The session is over: every lease is void, and nothing will be answered."""
        if self.over is None:
            self.standing.over = error
            self._fail_all(error)

    def _fail_all(self, error: RadixError) -> None:
        failed, self._unanswered = self._unanswered, deque()
        for batch in failed:
            for operation in batch.operations:
                operation.fail(error)
            if not batch.outcome.done():
                batch.outcome.set_exception(error)

    def _take_news(self, message: cache_pb2.BatchReply) -> None:
        standing = self.standing
        for told in message.publications:
            lease = standing.leases.get(told.lease_id)
            if lease is not None:
                lease.on_published(told.published, [convert.table_patch(patch) for patch in told.patches])
        for finished in message.finished_copies:
            lease = standing.copies.pop(finished.copy_id, None)
            if lease is not None:
                lease.on_copy_ended(finished.copy_id)
        for arrival in message.arrivals:
            lease = standing.leases.get(arrival.lease_id)
            if lease is not None:
                patches = [convert.table_patch(patch) for patch in arrival.patches]
                lease.on_arrived(arrival.copy_id, arrival.readable, patches)
        for ended in message.saved:
            lease = standing.leases.get(ended.lease_id)
            if lease is not None:
                lease.on_saved(saved=not ended.HasField("status"))

    def _apply_patches(self) -> None:
        for lease in self.standing.unpatched:
            lease.apply_patches()
        self.standing.unpatched.clear()
        self._ack = self._received


def _check_limit(field: str, value: int, limit: int) -> None:
    if value > limit:
        raise LimitExceeded(
            f"{field}: {value} is above the session's limit of {limit}: {WAY_OUT[field]}",
            field=field,
            facts={"limit": str(limit), "value": str(value)},
        )
