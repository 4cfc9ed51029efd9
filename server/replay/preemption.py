"""Requests that give up their pages in the middle: saved to the host where there is one, computed again where not."""

from collections.abc import Callable
from functools import partial

from radixd.client import InFlight, Lease, LeaseStatus, NeverFits, NoPages, Operation, Session, Skipped
from radixd.server.replay.admission import IN_LINE
from radixd.server.replay.running import RunningRequest
from radixd.server.replay.step_batch import StepBatch, must
from radixd.server.replay.tally import Tally


class Preemption:
    """The preempted requests of one engine, oldest first.

    Args:
        tally: gives what to count on.
        retracted: called with each request that waits again, to be computed anew.
        restored: called with each request that has pages again, whose bytes may be arriving.
        rejected: called with each request that will never fit the pool again.
    """

    def __init__(
        self,
        session: Session,
        tally: Callable[[], Tally],
        retracted: Callable[[RunningRequest], None],
        restored: Callable[[RunningRequest], None],
        rejected: Callable[[RunningRequest], None],
    ) -> None:
        self._session = session
        self._tally = tally
        self._retracted = retracted
        self._restored = restored
        self._rejected = rejected
        self._saving: list[RunningRequest] = []
        self._offloaded: list[RunningRequest] = []

    def __len__(self) -> int:
        return len(self._saving) + len(self._offloaded)

    def preempt(self, step: StepBatch, victim: RunningRequest, back: Callable[[RunningRequest], None]) -> None:
        """Take its pages away. `back` is called where the host has no room: it runs on, and is retracted next time."""
        host = self._session.host
        if host is None or not host.total or victim.arriving or victim.host_is_full:
            self._retract(step, victim)
            return
        self._tell(step, victim)
        operation = step.ops.offload(victim.held)
        step.expect("offload", operation, partial(self._take_offload, victim, back))
        self._saving.append(victim)

    def build(self, step: StepBatch, room: int) -> int:
        """Ask for up to `room` requests back, before any new one gets a page. Returns how many."""
        wanted = self._offloaded[: max(0, room)]
        for running in wanted:
            operation = step.ops.restore(running.held, allocate_to=running.launched, reserve_to=running.whole_length)
            step.ops.group(IN_LINE, operation)
            step.expect("restore", operation, partial(self._take_pages, running))
        return len(wanted)

    def take_unsaved(self) -> list[RunningRequest]:
        """Those whose copy to the host has failed, of those whose copy has ended: they are as they were."""
        ended = [it for it in self._saving if it.held.status is not LeaseStatus.OFFLOADING]
        saved = [it for it in ended if it.held.status is LeaseStatus.OFFLOADED]
        self._saving = [it for it in self._saving if it not in ended]
        self._offloaded += saved
        self._tally().preemptions += len(saved)
        self._tally().offloads += len(saved)
        return [it for it in ended if it not in saved]

    def _retract(self, step: StepBatch, victim: RunningRequest) -> None:
        operation = step.ops.release(
            victim.held,
            # Of a prefix that is still arriving there is nothing new to publish.
            publish_to=0 if victim.arriving else victim.launched,
            after_step=self._session.launched,
            keep=True,
            tokens=victim.untold,
        )
        step.expect("release (keep)", operation, must)
        self._tally().preemptions += 1
        self._retracted(victim)

    def _tell(self, step: StepBatch, victim: RunningRequest) -> None:
        """What is saved is what is known. Half of them publish it too: their last pages are saved as the tree's."""
        lease, tokens = victim.held, victim.untold
        if victim.request.index % 2:
            operation = step.ops.insert(lease, victim.launched, after_step=self._session.launched, tokens=tokens)
            step.expect("insert", operation, must)
            victim.inserted = victim.launched
        else:
            step.expect("allocate", step.ops.allocate(lease, lease.allocated, tokens=tokens), must)

    def _take_offload(
        self, victim: RunningRequest, back: Callable[[RunningRequest], None], operation: Operation[int]
    ) -> None:
        if isinstance(operation.error, NoPages):
            victim.host_is_full = True
            self._saving.remove(victim)
            back(victim)
            return
        operation.result()
        victim.preempt = False

    def _take_pages(self, running: RunningRequest, operation: Operation[Lease]) -> None:
        error = operation.error
        if isinstance(error, NoPages | Skipped | InFlight):
            return
        self._offloaded.remove(running)
        if isinstance(error, NeverFits):
            running.held.release()
            self._rejected(running)
            return
        operation.result()
        self._tally().restores += 1
        self._restored(running)
