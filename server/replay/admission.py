"""Requests that have no pages yet: sent once as waiting leases, matched in batches, activated best match first."""

from collections.abc import Callable, Iterator
from functools import partial

from radixd.client import Lease, MatchResult, NeverFits, NoPages, Operation, Skipped
from radixd.server.replay.running import RunningRequest
from radixd.server.replay.step_batch import StepBatch

WINDOW = 8
"""Requests kept waiting at the daemon; the rest of the queue is not known to it."""

PATIENCE_STEPS = 64
"""After so many steps the oldest goes first, whatever the others match."""

IN_LINE = 1
"""The group of all activations of a Batch: a large one is not overtaken by small ones behind it."""


class Admission:
    """The queue of one engine.

    Args:
        queued: requests to come, in order; made when their turn has come.
        chunk: prompt tokens to allocate for at first; the rest of the prompt is reserved.
        activated: called with each request whose lease has become active.
        rejected: called with each request that can never fit the pool.
        import_from_peers: take what another pool holds more than this one.
    """

    def __init__(
        self,
        queued: Iterator[RunningRequest],
        chunk: int,
        activated: Callable[[RunningRequest], None],
        rejected: Callable[[RunningRequest], None],
        *,
        import_from_peers: bool,
    ) -> None:
        self._queued = queued
        self._exhausted = False
        self._waiting: list[RunningRequest] = []
        self._chunk = chunk
        self._activated = activated
        self._rejected = rejected
        self._import_from_peers = import_from_peers
        self.retry_after = 0.0
        """Seconds after which a refused Acquire may succeed; 0: none was refused."""

    @property
    def is_empty(self) -> bool:
        """Nobody waits, and nobody will."""
        return self._exhausted and not self._waiting

    def put_back(self, running: RunningRequest) -> None:
        """A preempted request: first in line, its lease waits again."""
        running.retract()
        self._waiting.insert(0, running)

    def build(self, step: StepBatch, room: int) -> None:
        """Activate up to `room` requests, match those that were not matched yet, and send new ones."""
        self.retry_after = 0.0
        if room <= 0:
            return
        for running in self._waiting:
            running.waited += 1
        matched = [running for running in self._waiting if running.matched is not None]
        for running in (running for running in self._waiting if running.matched is None):
            step.expect(
                "match",
                step.ops.match_lease(running.held, peers=self._import_from_peers),
                partial(self._take_match, running),
            )
        for running in sorted(matched, key=_rank)[:room]:
            self._activate(step, running)
        while not self._exhausted and len(self._waiting) < WINDOW:
            arrived = next(self._queued, None)
            if arrived is None:
                self._exhausted = True
                return
            opened = step.ops.wait(arrived.request.prompt, extra_key=arrived.request.extra_key)
            step.expect("acquire (wait)", opened, partial(self._take_lease, arrived))
            self._waiting.append(arrived)

    def _activate(self, step: StepBatch, running: RunningRequest) -> None:
        lease = running.held
        allocate_to = min(lease.known, (running.matched or 0) + self._chunk)
        reserve_to = running.whole_length if running.reserve_all else lease.known
        operation = step.ops.activate(
            lease, allocate_to=allocate_to, reserve_to=reserve_to, import_from_peers=self._import_from_peers
        )
        step.ops.group(IN_LINE, operation)
        step.expect("acquire", operation, partial(self._take_pages, running))

    def _take_lease(self, running: RunningRequest, operation: Operation[Lease]) -> None:
        running.lease = operation.result()

    def _take_match(self, running: RunningRequest, operation: Operation[MatchResult]) -> None:
        found = operation.result()
        running.matched = found.device_tokens + found.host_tokens + found.peer_tokens

    def _take_pages(self, running: RunningRequest, operation: Operation[Lease]) -> None:
        error = operation.error
        if isinstance(error, NoPages | Skipped):
            running.matched = None
            self.retry_after = max(self.retry_after, error.retry_after or 0.01)
            return
        self._waiting.remove(running)
        if isinstance(error, NeverFits):
            self._rejected(running)
            return
        operation.result()
        self._activated(running)


def _rank(running: RunningRequest) -> tuple[bool, int]:
    return running.waited < PATIENCE_STEPS, -(running.matched or 0)
