"""GPUs that are full, gone, hung or wrong: a clear message, health red, no hang, and other pools go on."""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from cuda.bindings import runtime as cudart

from radixd.client import Client, DeviceLost, RadixError, Session
from radixd.client.attach import attach
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, SERVING, DaemonProcess, eventually, radixd
from tests.e2e.scraped import Scrape, text
from tests.e2e.test_host_tier import PAGES, PROMPTS, live_pages, publish, verify
from tests.e2e.test_service_manager import until
from tests.fake_cuda.control import FakeGpus

P = 64
MIB = 2**20
NOT_SERVING = 2

TWO_POOLS = """
memory_wait_seconds = {wait}
{pools}
"""

POOL = """
[[pools]]
name = "{name}"
geometry = "tiny"
device = "cuda"
gpus = ["{gpu}"]
{size}
host_tokens = 6400
copy_deadline_seconds = 0.2
"""

Start = Callable[..., DaemonProcess]
SessionOf = Callable[[DaemonProcess, str], Session]


@pytest.fixture
def gpus(fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Two, of 1 GiB; programs that a test starts see them too."""
    monkeypatch.setenv("PYTHONPATH", fake_gpus.env()["PYTHONPATH"])
    return fake_gpus


@pytest.fixture
def start(gpus: FakeGpus, folder: Path, start_daemon: StartDaemon) -> Start:
    """A daemon with pools a and b, one on each GPU, of the sizes given."""

    def started(a: str = "4MiB", b: str = "4MiB", wait: float = 0, metrics: str = "off") -> DaemonProcess:
        named = zip("ab", gpus.uuids, (a, b), strict=True)
        sizes = [(name, gpu, size if "=" in size else f'bytes = "{size}"') for name, gpu, size in named if size]
        pools = "".join(POOL.format(name=name, gpu=gpu, size=size) for name, gpu, size in sizes)
        config = folder / "config.toml"
        config.write_text(TWO_POOLS.format(wait=wait, pools=pools))
        return start_daemon("--config", str(config), "--metrics", metrics)

    return started


@pytest.fixture
def session_of() -> Iterator[SessionOf]:
    """Opens sessions of a pool; clients end with the test."""
    with ExitStack() as clients:

        def opened(daemon: DaemonProcess, pool: str) -> Session:
            client = clients.enter_context(Client(str(daemon.socket)))
            return client.open_session(pool=pool, model=MODEL, name=pool)

        yield opened


def works(session: Session, number: int = 1) -> None:
    """A lease is opened, its bytes are written in this process, saved to the host, and back as they were."""
    memory = session.attach()
    lease = session.acquire(np.random.default_rng(number).integers(0, 2**32, 5 * P, dtype=np.uint32))
    rows = memory.views[0].page_rows[0]
    for i, page in enumerate(lease.pages):
        rows[int(page)].fill_(i + 1)
    lease.offload()
    lease.wait_saved(PATIENCE_S)
    lease.restore()
    lease.wait_loaded(PATIENCE_S)
    for i, page in enumerate(lease.pages):
        assert (rows[int(page)] == i + 1).all()
    del rows
    lease.release()


def test_a_pool_that_finds_no_memory_is_no_other_pools_affair(
    start: Start, session_of: SessionOf, notify: socket.socket
) -> None:
    daemon = start(a="4GiB")
    eventually(lambda: daemon.health("radixd.v1.Cache") == SERVING)
    assert [daemon.health(name) for name in ("", "pool.a", "pool.b")] == [NOT_SERVING, NOT_SERVING, SERVING]
    log = daemon.log.read_text()
    assert re.search(r"pool a is stopped, its memory is lost: pool a: GPU .* bytes in all, 4294\d+ are needed", log)
    assert f"serving b (stopped: a) on {daemon.socket}" in log
    until(notify, f"READY=1\nSTATUS=serving b (stopped: a) on {daemon.socket}".encode())
    with pytest.raises(DeviceLost, match="pool a is stopped"):
        session_of(daemon, "a")
    with session_of(daemon, "b") as session:
        works(session)


def test_without_memory_for_any_pool_there_is_no_daemon(start: Start) -> None:
    daemon = start(a="4GiB", b="")
    assert daemon.process.wait(PATIENCE_S) == 1
    log = daemon.log.read_text()
    assert "radixd serve: pool a: " in log
    assert "Traceback" not in log


def test_a_share_of_a_gpu_that_others_use_is_told_as_everything_else_is(
    gpus: FakeGpus, folder: Path, start_daemon: StartDaemon
) -> None:
    cudart.cudaSetDevice(0)
    _, taken = cudart.cudaMalloc(200 * MIB)
    config = folder / "config.toml"
    pool = POOL.format(name="a", gpu=gpus.uuids[0], size='gpu_memory_fraction = 0.01\nscratch_bytes = "1MiB"')
    config.write_text(f'log_format = "json"\n{pool}')
    daemon = start_daemon("--config", str(config)).serving()
    cudart.cudaFree(taken)
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    (told,) = (line for line in lines if line["level"] == "WARNING")
    assert re.fullmatch(rf"pool a: GPU {gpus.uuids[0]}: .* bytes free of {1024 * MIB}", told["message"])
    assert told["pool"] == "a"


@pytest.mark.parametrize("size", ["4MiB", "gpu_memory_fraction = 0.5"])
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(
    start: Start, gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus.uuids[1])
    daemon = start(a=size)
    eventually(lambda: daemon.health("pool.b") == SERVING)
    log = daemon.log.read_text()
    assert re.search(rf"pool a is stopped, its memory is lost: pool a: .*GPU '{gpus.uuids[0]}'", log)
    assert f"visible: {gpus.uuids[1]}" in log


def test_memory_that_the_last_daemons_clients_hold_is_waited_for(start: Start, session_of: SessionOf) -> None:
    first = start(a="700MiB", b="").serving()
    session = session_of(first, "a")
    memory = attach(session.ticket())
    first.process.kill()
    first.process.wait()
    second = start(a="700MiB", b="", wait=3600)
    eventually(lambda: "waiting for at most" in second.log.read_text())
    assert second.health() != SERVING
    memory.close()
    second.serving()
    with session_of(second, "a") as later:
        works(later)


def test_a_session_lets_go_of_the_old_memory_that_the_new_daemon_waits_for(start: Start) -> None:
    first = start(a="700MiB", b="").serving()
    back = threading.Event()
    with Client(str(first.socket)) as client:
        session = client.open_session(pool="a", model=MODEL, name="a", on_restart=lambda _: back.set())
        works(session)
        first.process.kill()
        first.process.wait()
        start(a="700MiB", b="", wait=3600).serving()
        assert back.wait(PATIENCE_S)
        works(session)
        session.close()


def test_an_orderly_end_frees_nothing_that_a_client_has_open(
    start: Start, session_of: SessionOf, gpus: FakeGpus
) -> None:
    daemon = start().serving()
    session = session_of(daemon, "a")
    memory = attach(session.ticket())
    memory.views[0].buffer[5] = 77
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert memory.views[0].buffer[5] == 77
    assert gpus.violations() == []
    memory.close()


def test_nor_what_a_tensor_keeps_open_beyond_its_attachment(
    start: Start, session_of: SessionOf, gpus: FakeGpus
) -> None:
    daemon = start().serving()
    session = session_of(daemon, "a")
    kept = session.attach().views[0].page_rows[0]
    attachment = session.attach()
    with pytest.warns(ResourceWarning, match="outlive"):
        session.close()
    attachment.close()
    kept[3].fill_(7)
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert (kept[3] == 7).all()
    assert gpus.violations() == []
    del kept


def test_nor_what_a_process_of_a_closed_session_has_open(start: Start, session_of: SessionOf, gpus: FakeGpus) -> None:
    daemon = start(b="").serving()
    session = session_of(daemon, "a")
    memory = attach(session.ticket())
    session.close()
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert gpus.violations() == []
    memory.close()


def test_a_gpu_that_hangs_at_the_start_holds_up_neither_answers_nor_the_end(start: Start, gpus: FakeGpus) -> None:
    cudart.cudaSetDevice(1)
    _, taken = cudart.cudaMalloc(700 * MIB)
    daemon = start(b="500MiB", wait=3600)
    eventually(lambda: "waiting for at most" in daemon.log.read_text())
    with gpus.paused(0):  # which pool a has its memory on
        cudart.cudaFree(taken)
        eventually(lambda: "opened by 'radixd self-test' in pool a" in daemon.log.read_text())
        assert daemon.health() == NOT_SERVING
        daemon.process.terminate()
        assert daemon.process.wait(PATIENCE_S) == 0
    gpus.forgive()  # what it held went with the process


def test_a_gpu_that_falls_off_the_bus_stops_its_pool_alone(start: Start, session_of: SessionOf, gpus: FakeGpus) -> None:
    daemon = start().serving()
    a, b = session_of(daemon, "a"), session_of(daemon, "b")
    lease = a.acquire(np.arange(5 * P, dtype=np.uint32))
    gpus.lose(0)
    eventually(lambda: daemon.health("pool.a") == NOT_SERVING)  # though nobody asked anything of it
    assert [daemon.health(name) for name in ("", "radixd.v1.Cache", "pool.b")] == [NOT_SERVING, SERVING, SERVING]
    with pytest.raises(DeviceLost, match="restart the daemon"):
        lease.allocate(6 * P)
    works(b)
    b.close()
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0


def test_what_the_host_holds_outlives_a_lost_gpu(gpus: FakeGpus, folder: Path, start_daemon: StartDaemon) -> None:
    state = folder / "state"
    common = ("--device", "cuda", "--host-tokens", str(200 * P), "--state-dir", str(state))
    common += ("--write-policy", "write_through", "--gpus")
    first = start_daemon(*common, gpus.uuids[0]).serving()
    with Client(str(first.socket)) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session, PROMPTS)
        eventually(lambda: live_pages(state) == len(PROMPTS) * PAGES)
    gpus.lose(0)
    eventually(lambda: first.health() == NOT_SERVING)
    first.process.terminate()
    assert first.process.wait(PATIENCE_S) == 0
    second = start_daemon(*common, gpus.uuids[1]).serving()
    with Client(str(second.socket)) as client, client.open_session(model=MODEL, name="two") as session:
        verify(session, PROMPTS)


def test_a_sticky_error_under_a_copy_frees_and_publishes_nothing(
    start: Start, session_of: SessionOf, gpus: FakeGpus
) -> None:
    daemon = start().serving()
    session = session_of(daemon, "a")
    lease = session.acquire(np.arange(5 * P, dtype=np.uint32))
    with gpus.paused(0):  # so that it is the offload which meets the error, and no question of the daemon's
        lease.offload()
        gpus.fail("stream", "cudaErrorIllegalAddress", gpu=0, pid=daemon.process.pid)
    eventually(lambda: "pool a is stopped" in daemon.log.read_text())
    eventually(lambda: daemon.health("pool.a") == NOT_SERVING)
    assert "cudaErrorIllegalAddress" in daemon.log.read_text()
    pool = next(it for it in occupancy(daemon) if it.pool == "a")
    assert (pool.device.leased, pool.host.leased) == (5, 5)
    with session_of(daemon, "b") as other:
        works(other)


def test_a_sticky_error_under_an_import_frees_nothing_here_and_the_loan_there(
    start: Start, session_of: SessionOf, gpus: FakeGpus
) -> None:
    daemon = start().serving()
    borrower, lender = session_of(daemon, "a"), session_of(daemon, "b")
    prompt = np.arange(9 * P, dtype=np.uint32)
    lender.acquire(prompt).release(publish_to=9 * P)
    with gpus.paused(0):
        assert borrower.acquire(prompt, import_from_peers=True).peer_tokens == 8 * P
        gpus.fail("stream", "cudaErrorIllegalAddress", gpu=0, pid=daemon.process.pid)
    eventually(lambda: "pool a is stopped" in daemon.log.read_text())
    eventually(lambda: daemon.health("pool.a") == NOT_SERVING)
    eventually(lambda: [(it.device.evictable, it.device.protected) for it in occupancy(daemon)[1:]] == [(9, 0)])
    a, _ = occupancy(daemon)
    assert (a.device.protected, a.device.leased) == (8, 1), "what had not arrived was given away"
    lender.close()


def test_a_gpu_that_hangs_is_told_of_and_forgiven(start: Start, session_of: SessionOf, gpus: FakeGpus) -> None:
    daemon = start(metrics="127.0.0.1:0").serving()
    session = session_of(daemon, "a")
    lease = session.acquire(np.arange(5 * P, dtype=np.uint32))
    with gpus.paused(0):
        lease.offload()
        eventually(lambda: daemon.health("pool.a") == NOT_SERVING)
        assert [Scrape(daemon)("radixd_pool_silent", pool=name) for name in "ab"] == [1, 0]
        assert "its GPUs have not answered" in daemon.log.read_text()
        assert "its pages stay pinned until it does" in daemon.log.read_text()
        with session_of(daemon, "b") as other:
            works(other)
        assert occupancy(daemon)[0].device.leased == 5
    lease.wait_saved(PATIENCE_S)
    eventually(lambda: daemon.health() == SERVING)
    assert Scrape(daemon)("radixd_pool_silent") == 0


def test_an_idle_gpu_that_hangs_is_found_in_a_scrape(start: Start, gpus: FakeGpus, tmp_path: Path) -> None:
    daemon = start(metrics="127.0.0.1:0").serving()
    with gpus.paused(0):
        eventually(lambda: Scrape(daemon)("radixd_pool_silent", pool="a") == 1)
        saved = tmp_path / "a.prom"
        saved.write_text(text(daemon))
    assert Scrape(daemon)("radixd_copies_overdue") == 0
    told = radixd("doctor", "--metrics", str(saved))
    assert told.returncode == 1
    assert "pool a: 1 finding\n\n  GpuSilent: " in told.stdout
    assert "pool b: nothing found" in told.stdout


def test_a_hung_gpu_does_not_hold_the_end(start: Start, session_of: SessionOf, gpus: FakeGpus) -> None:
    daemon = start().serving()
    session = session_of(daemon, "a")
    lease = session.acquire(np.arange(5 * P, dtype=np.uint32))
    with gpus.paused(0):
        lease.offload()
        daemon.process.terminate()
        assert daemon.process.wait(PATIENCE_S) == 0
    assert "copies have not ended" in daemon.log.read_text()
    gpus.forgive()  # what it held went with the process


def test_a_handle_that_does_not_open_says_what_to_look_at(start: Start, session_of: SessionOf, gpus: FakeGpus) -> None:
    daemon = start(b="").serving()
    session = session_of(daemon, "a")
    fault = gpus.fail("cudaIpcOpenMemHandle", "cudaErrorMapBufferObjectFailed", nth=None, pid=os.getpid())
    with pytest.raises(RadixError, match="cudaErrorMapBufferObjectFailed"):
        attach(session.ticket())
    gpus.mend(fault)
    works(session)
    session.close()


def occupancy(daemon: DaemonProcess) -> list:
    from radixd.v1 import admin_pb2

    try:
        return list(daemon.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S).pools)
    except grpc.RpcError as error:
        raise AssertionError(daemon.log.read_text()) from error
