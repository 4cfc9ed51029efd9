"""An engine with an overlapped scheduler: continuous batching, chunked prefill, one step always in flight.

One turn of the loop is: launch step n, see step n − 1 finish, tell the daemon both in one Batch, use the answers for
step n + 1. The memory accesses of step n happen only after that Batch was answered, so whatever the daemon gives to
others too early is overwritten or read in front of everyone's eyes.
"""

import time
from collections.abc import Iterator
from functools import partial

from radixd.client import NeverFits, NoPages, Operation, Pages, Session
from radixd.server.replay.admission import Admission
from radixd.server.replay.journal import Journal
from radixd.server.replay.kernel import Kernel
from radixd.server.replay.preemption import Preemption
from radixd.server.replay.running import Access, RunningRequest, Work
from radixd.server.replay.step_batch import StepBatch, must
from radixd.server.replay.tally import EndKind, Outcome

CHUNK_TOKENS = 2_048
"""Prompt tokens in one step, all requests together."""

MAX_RUNNING = 8

STEPS_BETWEEN_RECONNECTS = 32

IDLE_SECONDS = 0.002
"""Between two turns of an engine that can do nothing but wait for copies."""


class Engine:
    """Runs requests on one session until all have ended."""

    def __init__(
        self,
        session: Session,
        kernel: Kernel,
        journal: Journal,
        requests: Iterator[RunningRequest],
        reconnects: int,
        *,
        import_from_peers: bool,
    ) -> None:
        self._session = session
        self._kernel = kernel
        self._journal = journal
        self._admission = Admission(
            requests, CHUNK_TOKENS, self._start, self._reject, import_from_peers=import_from_peers
        )
        self._preemption = Preemption(
            session, lambda: journal.tally, self._admission.put_back, self._restore, self._reject
        )
        self._reconnects = reconnects
        self._running: list[RunningRequest] = []
        """In the order of their activation."""
        self._in_flight: list[Work] = []

    def run(self) -> None:
        """Until nothing is queued, running, preempted or in flight."""
        while self._running or self._in_flight or self._preemption or not self._admission.is_empty:
            self.step()

    def step(self) -> None:
        """Launch the next step if there is work, and let the one before finish."""
        works = self._plan()
        self._kernel.run(self._in_flight)
        self._in_flight = works
        launched = self._session.launched + bool(works)
        self._session.step(launched=launched, completed=launched - bool(works))
        self._journal.tally.steps += bool(works)
        batch = StepBatch(self._session)
        self._build(batch)
        batch.run(self._journal.tally, reconnect=self._is_to_reconnect())
        self._take_copies()
        if not works and all(running.arriving for running in self._running):
            time.sleep(min(self._admission.retry_after, 0.05) or IDLE_SECONDS)

    def _is_to_reconnect(self) -> bool:
        if not self._reconnects or self._session.launched % STEPS_BETWEEN_RECONNECTS:
            return False
        self._reconnects -= 1
        return True

    def _plan(self) -> list[Work]:
        budget = CHUNK_TOKENS
        works = []
        for running in self._running:
            if running.arriving:
                continue
            before = running.launched
            work = running.next_work(budget)
            if work is not None:
                works.append(work)
                if before < running.prefill_to:
                    budget -= work.stop - before
        return works

    def _build(self, batch: StepBatch) -> None:
        for running in [running for running in self._running if running.done or (running.abort and running.half_way)]:
            self._release(batch, running)
        for victim in self._victims():
            self._running.remove(victim)
            self._preemption.preempt(batch, victim, self._running.append)
        for running in self._running:
            if not running.arriving:
                self._insert(batch, running)
                self._grow(batch, running)
        room = MAX_RUNNING - len(self._running)
        room -= self._preemption.build(batch, room)
        self._admission.build(batch, room)

    def _release(self, batch: StepBatch, running: RunningRequest) -> None:
        """Finished: publish what completed steps have written. Aborted: at once, in the middle of a step."""
        lease, launched = running.held, self._session.launched
        if running.done:
            tokens = running.tokens[lease.known :]
            operation = batch.ops.release(lease, publish_to=running.last, after_step=launched - 1, tokens=tokens)
            self._end(running, "finished")
        else:
            publish_to = running.launched if running.request.index % 2 and not running.arriving else 0
            operation = batch.ops.release(lease, publish_to=publish_to, after_step=launched, tokens=running.untold)
            self._end(running, "aborted")
        batch.expect("release", operation, must)
        self._running.remove(running)

    def _victims(self) -> list[RunningRequest]:
        """Who is to be preempted: those that were chosen, or one where another has no slot for its next token.

        The latter takes those of the youngest, itself perhaps.
        """
        unfinished = [running for running in self._running if running.launched < running.last]
        chosen = [it for it in unfinished if it.preempt and it.half_way and not it.arriving]
        stuck = any(running.refused and running.launched >= running.held.allocated for running in self._running)
        return chosen or (unfinished[-1:] if stuck else [])

    def _insert(self, batch: StepBatch, running: RunningRequest) -> None:
        """Publish whole pages, once the step just launched has written them; give up pages of rejected drafts."""
        page = self._session.page_size
        if running.launched // page > running.inserted // page or running.rejected:
            operation = batch.ops.insert(
                running.held, running.launched, after_step=self._session.launched, tokens=running.untold
            )
            batch.expect("insert", operation, must)
            running.inserted = running.launched
        if running.rejected:
            self._journal.tally.rollbacks += 1
            running.rejected = 0
            # Half of them give the drafts' pages back, while the step that writes there is in flight.
            if running.request.index % 2:
                batch.expect("free", batch.ops.free(running.held, running.launched), must)

    def _grow(self, batch: StepBatch, running: RunningRequest) -> None:
        """Ask for the slots of the steps to come."""
        lease = running.held
        chunk = min(running.launched + CHUNK_TOKENS, running.prefill_to)
        wanted = max(running.wanted, chunk)
        if lease.allocated < wanted:
            operation = batch.ops.allocate(lease, wanted)
            batch.expect("allocate", operation, partial(self._take_growth, running))

    def _take_growth(self, running: RunningRequest, operation: Operation[Pages]) -> None:
        running.refused = isinstance(operation.error, NoPages)
        if isinstance(operation.error, NeverFits):
            running.held.release()
            self._running.remove(running)
            self._reject(running)
        elif not running.refused:
            self._kernel.poison(running.held, running.held.pages.size - operation.result().size)

    def _start(self, running: RunningRequest) -> None:
        running.start()
        self._running.append(running)

    def _restore(self, running: RunningRequest) -> None:
        running.restore()
        self._running.append(running)

    def _take_copies(self) -> None:
        """What has arrived is checked at once, not in the first step that uses it."""
        self._running += self._preemption.take_unsaved()
        for running in self._running:
            if running.arriving and not running.held.loading:
                running.arrive()
                lease = running.held
                self._kernel.check(running, Access(lease.pages, 0, running.seeds[: running.launched]))
                self._kernel.poison(lease, -(-lease.readable // self._session.page_size))

    def _reject(self, running: RunningRequest) -> None:
        self._end(running, "never_fit")

    def _end(self, running: RunningRequest, end: EndKind) -> None:
        request = running.request
        self._journal.tally.output_tokens += max(0, running.completed + 1 - request.prompt.size)
        self._journal.end(
            Outcome(
                request.index,
                end,
                request.prompt.size,
                running.first_hit or 0,
                running.first_host_hit,
                running.first_peer_hit,
            )
        )
