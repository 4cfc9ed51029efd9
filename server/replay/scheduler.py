"""One scheduler process: a session, the pool's memory mapped, and an engine's loop over its share of the requests."""

import gc
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from radixd.client import Client, Draining, RadixError, Session, SessionOver, Starting, Unreachable
from radixd.server.replay.engine import Engine
from radixd.server.replay.faults import Faults
from radixd.server.replay.journal import Journal
from radixd.server.replay.kernel import Kernel
from radixd.server.replay.one_by_one import run_one_by_one
from radixd.server.replay.running import MODEL, RunningRequest
from radixd.server.replay.slot_block import BlockBytes, HostBlock, slot_blocks
from radixd.server.replay.slot_bytes import NoBytes, PoolBytes, SlotBytes
from radixd.server.replay.tally import Failure
from radixd.server.replay.workload import Workload, WorkloadChoice

PATIENCE_SECONDS = 30.0

RESTART_SECONDS = 120.0
"""How long a daemon may take to stop, to start again and to verify what its host tier holds."""

RESTARTED = (SessionOver, Unreachable, Starting, Draining)
"""What a call answers when the daemon is on its way out or in; attaching asks the new one before the session does."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one scheduler process is to do."""

    name: str
    target: str
    pool: str
    dedup: Literal["keep", "patch"]
    choice: WorkloadChoice
    faults: Faults
    indices: tuple[int, ...]
    one_by_one: bool
    reconnects: int
    restarts: bool
    """The daemon will be restarted: carry on with another session."""
    import_from_peers: bool
    """Take what another pool of the daemon holds, rather than compute it."""


def run_scheduler(job: Job, pipe: Connection) -> None:
    """The process's whole life: Progress messages, or a Failure, go up the pipe; its end is the end of the work."""
    try:
        with Client(job.target) as client, _open(client, job) as session:
            journal, workload = Journal(pipe.send), job.choice.open()
            while not _run(job, session, journal, workload):
                # The old pool's memory goes with the last view of it, and an engine holds some, in a cycle.
                gc.collect()
                _reopen(session)
            journal.flush()
            gc.collect()  # views in an engine's cycle would keep the pool mapped beyond the session
    except (RadixError, OSError, ValueError) as error:
        _fail(pipe, f"{type(error).__name__}: {error}")
    except Exception:
        _fail(pipe, traceback.format_exc())


def _run(job: Job, session: Session, journal: Journal, workload: Workload) -> bool:
    """Run what has not ended yet, in one session; False where the daemon was restarted before all had."""
    try:
        kernel = Kernel(session, _memory(session), journal)
        requests = _requests(job, workload, session.page_size, frozenset(journal.ended))
        if job.one_by_one:
            run_one_by_one(session, kernel, journal, requests, import_from_peers=job.import_from_peers)
        else:
            engine = Engine(session, kernel, journal, requests, job.reconnects, import_from_peers=job.import_from_peers)
            engine.run()
    except RESTARTED:
        if not job.restarts:
            raise
        return False
    return True


def _reopen(session: Session) -> None:
    """With whichever daemon lives long enough: the next one may be restarted too before it has answered."""
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            session.reopen(end - time.monotonic())
            return
        except RESTARTED:
            if time.monotonic() >= end:
                raise


def _open(client: Client, job: Job) -> Session:
    return client.open_session(pool=job.pool, name=job.name, model=MODEL, dedup=job.dedup, patience=PATIENCE_SECONDS)


def _memory(session: Session) -> SlotBytes:
    if not session.opened.attach_socket:
        return NoBytes()
    attachment = session.attach()
    layout = attachment.layout
    blocks: list[BlockBytes] = []
    for buffer in (views.buffer for views in attachment.views):
        if buffer.is_cuda:
            from radixd.server.replay.gpu_block import GpuBlock  # brings torch, as attaching has

            blocks += [GpuBlock(place, buffer) for place in slot_blocks(layout)]
        else:
            blocks += [HostBlock(place, buffer.numpy()) for place in slot_blocks(layout)]
    return PoolBytes(layout.geometry.page_size, blocks)


def _requests(job: Job, workload: Workload, page_size: int, ended: frozenset[int]) -> Iterator[RunningRequest]:
    for index in job.indices:
        if index in ended:
            continue
        yield RunningRequest(
            workload[index],
            abort=index in job.faults.aborts,
            preempt=index in job.faults.preempts,
            # More than a page: whole pages of drafts are there to be given back.
            drafts=page_size + page_size // 8 if index in job.faults.drafts else 0,
        )


def _fail(pipe: Connection, text: str) -> None:
    with suppress(OSError):
        pipe.send(Failure(text))
