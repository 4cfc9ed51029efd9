"""The pool's memory in other processes: shared, given back, and safe when they are killed."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pytest

from radixd.client import AttachTicket, NoPages, Session
from radixd.gpu_pool.cuda.gpu import Gpu
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess, eventually
from tests.gpu.conftest import OpenSession

pytestmark = pytest.mark.gpu

P = 64


class Program:
    """A module of these tests, running."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Worker(Program):
    """tests/gpu/worker.py, told what to fill."""

    def __init__(self, ticket: AttachTicket, pages: Sequence[int], *arguments: str) -> None:
        super().__init__("tests.gpu.worker", *arguments)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{ticket.to_json()}\n{' '.join(map(str, pages))}\n")
        self.process.stdin.flush()


@pytest.fixture
def workers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def daemon(start_gpu_daemon: StartDaemon) -> DaemonProcess:
    return start_gpu_daemon()


@pytest.fixture
def session(daemon: DaemonProcess, open_session: OpenSession) -> Session:
    return open_session(daemon)


def test_what_a_worker_writes_its_scheduler_reads(session: Session, workers: ExitStack) -> None:
    lease = session.acquire(np.arange(5 * P, dtype=np.uint32))
    worker = Worker(session.ticket(), lease.pages.tolist())
    workers.callback(worker.kill)
    worker.says("enqueued")
    worker.says("written")
    memory = session.attach()
    for page in lease.pages:
        assert (memory.views[0].page_rows[0][int(page)] == 7).all()
    worker.end()


def test_fifty_attachments_leave_nothing_on_the_card(session: Session, gpu: Gpu, workers: ExitStack) -> None:
    lease = session.acquire(np.arange(P, dtype=np.uint32))
    session.attach()
    before = gpu.free_bytes()
    worker = Worker(session.ticket(), lease.pages.tolist(), "again")
    workers.callback(worker.kill)
    worker.says("enqueued")
    worker.says("written")
    worker.end()
    eventually(lambda: gpu.free_bytes() >= before)


def test_an_engine_killed_with_kernels_queued_keeps_its_pages_until_it_is_gone(
    daemon: DaemonProcess, session: Session, workers: ExitStack
) -> None:
    engine = Program("tests.gpu.engine", str(daemon.socket))
    workers.callback(engine.kill)
    engine.says("enqueued")
    assert daemon.ledger() == (0, 100, 0)
    with pytest.raises(NoPages):
        session.acquire(np.arange(P, dtype=np.uint32))
    engine.kill()
    eventually(lambda: daemon.ledger() == (100, 0, 0))
    lease = session.acquire(np.arange(100 * P, dtype=np.uint32))
    rows = session.attach().views[0].page_rows[0]
    rows[lease.pages.tolist()] = 0
    assert not rows[lease.pages.tolist()].any()  # a kernel that was still queued would have written by now, or soon
    lease.release()
    del rows
