"""A host tier that outlives its daemon: what comes back after SIGTERM and kill -9, and what is in the way."""

import json
import resource
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from radixd.client import Client, Session
from radixd.client.attach import attach
from radixd.v1 import admin_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, SERVING, DaemonProcess, eventually, radixd
from tests.e2e.test_daemon_life import scrape

pytestmark = pytest.mark.usefixtures("memory")

P = 64
PAGES = 7  # of each prompt
PROMPTS = range(5)


def prompt(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 2**32, PAGES * P, dtype=np.uint32)


def content(number: int, page: int, row_bytes: int) -> np.ndarray:
    return np.random.default_rng((number, page)).integers(0, 256, row_bytes, dtype=np.uint8)


def publish(session: Session, numbers: Iterable[int] = PROMPTS) -> None:
    """As an engine: every byte of every page of some prompts, which nobody holds afterwards."""
    with attach(session.ticket()) as memory:
        for number in numbers:
            lease = session.acquire(prompt(number))
            for i, page in enumerate(lease.pages):
                for rows in memory.views[0].page_rows:
                    rows[int(page)].numpy().reshape(-1)[:] = content(number, i, rows[0].numel())
            lease.release(publish_to=PAGES * P)
            del rows


def verify(session: Session, numbers: Iterable[int] = PROMPTS) -> None:
    """All of these prompts' pages come from the host, with their bytes."""
    with attach(session.ticket()) as memory:
        for number in numbers:
            match = session.match(prompt(number), max_tokens=PAGES * P)
            assert (match.device_tokens, match.host_tokens) == (0, PAGES * P)
            lease = session.acquire(prompt(number), max_tokens=PAGES * P)
            lease.wait_loaded(PATIENCE_S)
            assert lease.readable == PAGES * P
            for i, page in enumerate(lease.pages):
                for rows in memory.views[0].page_rows:
                    found = rows[int(page)].numpy().reshape(-1)
                    assert np.array_equal(found, content(number, i, rows[0].numel()))
            lease.release()
            del rows, found


def flags(state: Path, *more: str) -> tuple[str, ...]:
    return ("--device", "cpu", "--host-tokens", str(200 * P), "--state-dir", str(state), *more)


def pool_of(daemon: DaemonProcess) -> admin_pb2.PoolOccupancy:
    return daemon.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S).pools[0]


def live_pages(state: Path) -> int:
    """As an operator sees them, beside a daemon or without one."""
    return int(json.loads(radixd("inspect", str(state), "--json").stdout)[0]["live_pages"])


@pytest.fixture
def state(folder: Path) -> Path:
    return folder / "state"


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_after_sigterm_everything_cached_is_found_again(start_daemon: StartDaemon, state: Path, layout: str) -> None:
    first = start_daemon(*flags(state, "--layout", layout)).serving()
    with Client(first.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session)
        assert pool_of(first).host.evictable == 0  # write_back has had no reason to copy anything
        first.process.terminate()
        assert first.process.wait(PATIENCE_S) == 0
    assert "35 host pages stand in the snapshot" in first.log.read_text()

    second = start_daemon(*flags(state, "--layout", layout)).serving()
    assert "35 host pages adopted; the daemon before ended in order" in second.log.read_text()
    with Client(second.socket) as client, client.open_session(model=MODEL, name="two") as session:
        verify(session)
    assert "the ledger adds up" in radixd("check", "--target", str(second.socket)).stdout


def test_after_kill_9_what_the_journal_held_is_found_again(start_daemon: StartDaemon, state: Path) -> None:
    first = start_daemon(*flags(state, "--write-policy", "write_through")).serving()
    with Client(first.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session)
        eventually(lambda: live_pages(state) == len(PROMPTS) * PAGES)
        first.process.kill()
        first.process.wait()
    second = start_daemon(*flags(state, "--write-policy", "write_through")).serving()
    assert "35 host pages adopted; the daemon before did not end in order" in second.log.read_text()
    with Client(second.socket) as client, client.open_session(model=MODEL, name="two") as session:
        verify(session)


def test_pages_that_have_rotted_are_dropped_with_all_behind_them(start_daemon: StartDaemon, state: Path) -> None:
    first = start_daemon(*flags(state)).serving()
    with Client(first.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session, [1])
    first.process.terminate()
    assert first.process.wait(PATIENCE_S) == 0
    with (state / "default" / "host.pages").open("r+b") as file:
        (page_bytes,) = {json.loads(radixd("inspect", str(state), "--json").stdout)[0]["page_bytes"]}
        data = file.read()
        rotten = content(1, 4, page_bytes)[:64].tobytes()
        file.seek(data.index(rotten))
        file.write(b"rot")
    second = start_daemon(*flags(state)).serving()
    assert "4 host pages adopted" in second.log.read_text()
    assert "host pages dropped: 1 (checksum), 2 (orphan)" in second.log.read_text()
    with Client(second.socket) as client, client.open_session(model=MODEL, name="two") as session:
        assert session.match(prompt(1)).host_tokens == 4 * P


def test_flushed_pages_do_not_come_back(start_daemon: StartDaemon, state: Path) -> None:
    first = start_daemon(*flags(state, "--write-policy", "write_through")).serving()
    with Client(first.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session)
        eventually(lambda: live_pages(state) == len(PROMPTS) * PAGES)
        first.admin.Flush(admin_pb2.FlushRequest(), timeout=PATIENCE_S)
        first.process.kill()
        first.process.wait()
    assert live_pages(state) == 0
    start_daemon(*flags(state)).serving()


def test_another_geometry_starts_cold_and_says_why(start_daemon: StartDaemon, state: Path) -> None:
    first = start_daemon(*flags(state)).serving()
    first.process.terminate()
    assert first.process.wait(PATIENCE_S) == 0
    second = start_daemon(*flags(state, "--geometry", "deepseek-v3.2", "--tokens", "64", "--host-tokens", "64"))
    second.serving()
    assert "the host tier starts cold: geometry fingerprint: the journal has" in second.log.read_text()
    assert pool_of(second).journal == "ok"


def test_a_second_daemon_on_a_state_directory_is_refused(start_daemon: StartDaemon, state: Path) -> None:
    first = start_daemon(*flags(state)).serving()
    second = start_daemon(*flags(state), name="other.sock")
    assert second.process.wait(PATIENCE_S) == 1
    message = f"another radixd (pid {first.process.pid}) holds {state}/.lock"
    assert message in second.log.read_text()
    assert "another --state-dir" in second.log.read_text()
    assert first.health() == SERVING
    first.process.kill()
    first.process.wait()
    start_daemon(*flags(state), name="other.sock").serving()


def test_a_state_directory_that_cannot_be_written_is_named(start_daemon: StartDaemon, folder: Path) -> None:
    (folder / "file").write_text("")
    for state in (Path("/proc/radixd"), folder / "file"):
        daemon = start_daemon(*flags(state))
        assert daemon.process.wait(PATIENCE_S) == 1
        assert f"cannot use the state directory: {state}" in daemon.log.read_text()
        assert "Traceback" not in daemon.log.read_text()


def test_a_disk_that_fills_up_ends_the_journal_and_nothing_else(start_daemon: StartDaemon, state: Path) -> None:
    metrics = ("--metrics", "127.0.0.1:0", "--write-policy", "write_through")
    daemon = start_daemon(*flags(state, *metrics)).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session, [1])
        eventually(lambda: live_pages(state) == PAGES)
        assert scrape(daemon)['radixd_journal_ok{pool="default"}'] == 1
        # No file of the daemon may grow: what a full disk is to the journal.
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        publish(session, [2])
        eventually(lambda: "the journal cannot be written" in pool_of(daemon).journal)
        assert daemon.health() == SERVING
        assert scrape(daemon)['radixd_journal_ok{pool="default"}'] == 0
        assert "the journal cannot be written" in radixd("status", "--target", str(daemon.socket)).stdout
        eventually(lambda: pool_of(daemon).host.evictable == 2 * PAGES)
        daemon.admin.Evict(admin_pb2.EvictRequest(pages=100), timeout=PATIENCE_S)
        verify(session, [1, 2])
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    daemon.process.terminate()
    assert daemon.process.wait(PATIENCE_S) == 0
    second = start_daemon(*flags(state)).serving()
    assert "the host tier starts cold: the journal is empty: the daemon before gave it up" in second.log.read_text()


@pytest.mark.host_memory
def test_pools_that_do_not_fit_together_are_refused_with_their_sum(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--device", "cpu", "--geometry", "glm-5.3", "--host-tokens", "300000000")
    assert daemon.process.wait(PATIENCE_S) == 1
    page = 3_452_160
    device, host = 101 * page, (300_000_000 // P + 1) * page
    text = daemon.log.read_text()
    assert f"{device + host:,} bytes of host memory are needed" in text
    assert f"host tier of pool default: {host:,}, pool default: {device:,}" in text


def test_a_snapshot_is_taken_on_demand_and_one_scrape_adds_up(start_daemon: StartDaemon, state: Path) -> None:
    daemon = start_daemon(*flags(state, "--metrics", "127.0.0.1:0")).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session)
        done = radixd("snapshot", "--target", str(daemon.socket))
        assert done.stdout == f"35 host pages stand in {state}/default\n", done.stderr
        assert live_pages(state) == 35
        series = scrape(daemon)
        pages = [value for name, value in series.items() if 'tier="host"' in name and name.startswith("radixd_pages{")]
        assert sum(pages) == series['radixd_pool_pages{pool="default",tier="host"}'] == 201
        assert series['radixd_copies_total{kind="demote",pool="default"}'] == len(PROMPTS)
        assert series['radixd_copy_bytes_total{kind="demote",pool="default"}'] == 35 * pool_of(daemon).page_bytes
        assert series['radixd_copies_in_flight{pool="default"}'] == 0
        assert series['radixd_journal_pages{pool="default"}'] == 35
        status = radixd("status", "--target", str(daemon.socket)).stdout
        assert "write_back" in status
        shutil.rmtree(state / "default")
        done = radixd("snapshot", "--target", str(daemon.socket))
        assert (done.returncode, done.stdout) == (1, "")
        assert "keeps no journal any more: the journal cannot be written: [Errno 2]" in done.stderr
        assert scrape(daemon)['radixd_journal_ok{pool="default"}'] == 0


def test_a_second_signal_does_not_wait_for_copies(start_daemon: StartDaemon, state: Path) -> None:
    daemon = start_daemon(*flags(state, "--device", "cpu_async", "--drain-seconds", "3600")).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        publish(session)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE_S) == 0
    start_daemon(*flags(state)).serving()
