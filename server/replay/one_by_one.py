"""Prompts only, one request at a time: the order in which a cache's hits are compared with other caches'.

Each request's Release and the next one's Acquire share a Batch, whose operations run in order: the hit is the same as
if each had a Batch of its own. Steps cannot overlap here, for what a step in flight writes is not matchable yet.
"""

import time
from collections.abc import Iterable

from radixd.client import Lease, NeverFits, NoPages, Operation, Session
from radixd.server.replay.journal import Journal
from radixd.server.replay.kernel import Kernel
from radixd.server.replay.running import Access, RunningRequest
from radixd.server.replay.step_batch import StepBatch, must
from radixd.server.replay.tally import Outcome, Tally

COPY_SECONDS = 60.0
"""How long a copy from the host or a peer may take, at the very most."""


def run_one_by_one(
    session: Session,
    kernel: Kernel,
    journal: Journal,
    requests: Iterable[RunningRequest],
    *,
    import_from_peers: bool,
) -> None:
    """Run each request from Acquire to Release, in order."""
    before: Lease | None = None
    for running in requests:
        opened = _acquire(session, journal.tally, running, before, import_from_peers)
        before = _prefill(session, kernel, running, opened)
        hits = (before.device_tokens, before.host_tokens, before.peer_tokens) if before else (0, 0, 0)
        request = running.request
        journal.end(Outcome(request.index, "finished" if before else "never_fit", request.prompt.size, *hits))
        journal.tally.steps += 1
    batch = StepBatch(session)
    _release(batch, before)
    batch.run(journal.tally)


def _acquire(
    session: Session, tally: Tally, running: RunningRequest, before: Lease | None, import_from_peers: bool
) -> Operation[Lease]:
    """End the request before, and open this one's lease; again while pages on their way to the host hold it up."""
    while True:
        batch = StepBatch(session)
        _release(batch, before)
        opened = batch.ops.acquire(
            running.request.prompt, extra_key=running.request.extra_key, import_from_peers=import_from_peers
        )
        batch.expect("acquire", opened, lambda operation: None)
        batch.run(tally)
        if not isinstance(opened.error, NoPages):
            return opened
        before = None
        time.sleep(opened.error.retry_after or 0.01)


def _prefill(session: Session, kernel: Kernel, running: RunningRequest, opened: Operation[Lease]) -> Lease | None:
    """Compute what the cache does not hold, in one step that is over before the next Batch; None: it never fits."""
    if isinstance(opened.error, NeverFits):
        return None
    lease = opened.result()
    lease.wait_loaded(COPY_SECONDS)
    pages, hit = lease.pages, lease.device_tokens
    kernel.check(running, Access(pages, 0, running.seeds[:hit]))
    kernel.poison(lease, hit // session.page_size)
    kernel.write(Access(pages, hit, running.seeds[hit:]))
    kernel.check(running, Access(pages, 0, running.seeds))
    kernel.synchronize()
    session.step(launched=session.launched + 1, completed=session.completed + 1)
    return lease


def _release(batch: StepBatch, lease: Lease | None) -> None:
    if lease is not None:
        batch.expect("release", batch.ops.release(lease, publish_to=lease.known, after_step=0), must)
