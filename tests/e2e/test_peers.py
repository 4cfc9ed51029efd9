"""Two pools of one daemon: a prefix moves from one to the other, whoever dies meanwhile."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from radixd.client import AsyncClient, Client
from radixd.gpu_pool.cuda.gpu import visible_gpus
from radixd.v1 import admin_pb2
from tests.e2e import daemon_process, held_imports
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess, eventually, radixd
from tests.e2e.peer_client import MODEL, PAGES, P, fill, holds, prompt, start

POOLS = """
[[pools]]
name = "left"
geometry = "tiny"
{left}
tokens = 1024

[[pools]]
name = "right"
geometry = "tiny"
{right}
layout = "layer_first"
tokens = 1024
"""
TOTAL = 16


@pytest.fixture
def hold(folder: Path) -> Path:
    """While it exists, no import begins."""
    path = folder / "hold"
    path.touch()
    return path


@pytest.fixture
def released(hold: Path) -> None:
    """No import is held up."""
    hold.unlink()


@pytest.fixture
def daemon(
    memory: str, folder: Path, hold: Path, start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaemonProcess]:
    """With pools "left" and "right"."""
    config = folder / "radixd.toml"
    left, right = (
        ["device = 'cpu_async'"] * 2
        if memory == "host"
        else [f"device = 'cuda'\ngpus = ['{gpu.uuid}']" for gpu in visible_gpus()]
    )
    config.write_text(POOLS.format(left=left, right=right))
    with monkeypatch.context() as patch:
        patch.setenv("RADIXD_HOLD", str(hold))
        patch.setattr(daemon_process, "COMMAND", (sys.executable, held_imports.__file__))
        daemon = start_daemon("--config", str(config)).serving()
    yield daemon
    if daemon.process.poll() is None:
        assert "the ledger adds up" in radixd("check", "--target", str(daemon.socket)).stdout


def ledgers(daemon: DaemonProcess) -> list[admin_pb2.PoolOccupancy]:
    return list(daemon.admin.Occupancy(admin_pb2.OccupancyRequest(), timeout=PATIENCE_S).pools)


def settled(daemon: DaemonProcess, *cached: int) -> Callable[[], bool]:
    """Whether everybody is gone from both pools, and they hold so many pages."""

    def holds() -> bool:
        found = [(it.device.free, it.device.evictable, it.device.in_copy) for it in ledgers(daemon)]
        return found == [(TOTAL - pages, pages, 0) for pages in cached]

    return holds


def test_a_prefix_comes_from_the_other_pool_though_that_forgets_it(daemon: DaemonProcess, hold: Path) -> None:
    with Client(daemon.socket) as client:
        left = client.open_session(model=MODEL, name="left", pool="left")
        right = client.open_session(model=MODEL, name="right", pool="right")
        assert "import" in left.capabilities & right.capabilities
        lease = left.acquire(prompt()[: PAGES * P])
        fill(left.attach(), lease.pages)
        lease.release(publish_to=PAGES * P)
        found = right.match(prompt(), peers=True)
        assert (found.device_tokens, found.peer_tokens, found.peer_pool) == (0, PAGES * P, "left")

        imported = right.acquire(prompt(), import_from_peers=True)
        assert (imported.device_tokens, imported.peer_tokens, len(imported.loading)) == (PAGES * P, PAGES * P, 1)
        with pytest.raises(TimeoutError):
            imported.wait_loaded(0.1)
        assert daemon.admin.Evict(admin_pb2.EvictRequest(pool="left", pages=TOTAL)).evicted_pages == 0
        daemon.admin.Flush(admin_pb2.FlushRequest(pool="left"), timeout=PATIENCE_S)
        hold.unlink()
        imported.wait_loaded(PATIENCE_S)
        assert (imported.readable, imported.peer_tokens) == (PAGES * P, PAGES * P)
        assert holds(right.attach(), imported.pages[:PAGES])
        assert left.match(prompt()).device_tokens == 0
        imported.release(publish_to=(PAGES + 1) * P)
        assert right.match(prompt(), max_tokens=(PAGES + 1) * P).device_tokens == (PAGES + 1) * P
        left.close()
        right.close()
    eventually(settled(daemon, 0, PAGES + 1))


@pytest.mark.usefixtures("released")
async def test_the_async_client_imports_too(daemon: DaemonProcess) -> None:
    publisher = start(daemon.socket, "publish")
    async with (
        AsyncClient(daemon.socket) as client,
        await client.open_session(model=MODEL, name="right", pool="right") as right,
    ):
        waiting = await right.wait(prompt())
        assert (await waiting.match(peers=True)).peer_tokens == PAGES * P
        await waiting.activate(import_from_peers=True)
        assert (waiting.device_tokens, waiting.peer_tokens) == (PAGES * P, PAGES * P)
        await waiting.wait_loaded()
        assert holds(await right.attach(), waiting.pages[:PAGES])
    publisher.kill()
    publisher.wait()
    eventually(settled(daemon, PAGES, PAGES))


def test_a_borrower_that_is_killed_in_mid_import_leaves_the_prefix_to_others(daemon: DaemonProcess, hold: Path) -> None:
    publisher, borrower = start(daemon.socket, "publish"), start(daemon.socket, "import")
    assert [it.device.in_copy for it in ledgers(daemon)] == [PAGES, PAGES]
    borrower.kill()
    borrower.wait()
    eventually(lambda: ledgers(daemon)[1].sessions == 0)
    assert ledgers(daemon)[1].device.protected == PAGES, "the copy has yet to write them"
    hold.unlink()
    publisher.kill()
    publisher.wait()
    eventually(settled(daemon, PAGES, PAGES))
    with (
        Client(daemon.socket) as client,
        client.open_session(model=MODEL, name="next", pool="right") as right,
    ):
        lease = right.acquire(prompt())
        assert (lease.device_tokens, lease.loading) == (PAGES * P, frozenset())
        assert holds(right.attach(), lease.pages[:PAGES])


def test_a_lenders_clients_that_are_killed_in_mid_import_take_nothing_with_them(
    daemon: DaemonProcess, hold: Path
) -> None:
    publisher = start(daemon.socket, "publish")
    with Client(daemon.socket) as client:
        right = client.open_session(model=MODEL, name="right", pool="right")
        lease = right.acquire(prompt(), import_from_peers=True)
        publisher.kill()
        publisher.wait()
        eventually(lambda: ledgers(daemon)[0].sessions == 0)
        assert daemon.admin.Evict(admin_pb2.EvictRequest(pool="left", pages=TOTAL)).evicted_pages == 0
        hold.unlink()
        lease.wait_loaded(PATIENCE_S)
        assert holds(right.attach(), lease.pages[:PAGES])
        right.close()
    eventually(settled(daemon, PAGES, PAGES))


def test_a_daemon_that_is_told_to_stop_lets_an_import_end_before_either_pools_memory_goes(
    daemon: DaemonProcess, hold: Path
) -> None:
    publisher, borrower = start(daemon.socket, "publish"), start(daemon.socket, "import")
    for process in (publisher, borrower):
        process.kill()
        process.wait()
    daemon.process.terminate()
    eventually(lambda: "draining" in daemon.log.read_text())
    hold.unlink()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in daemon.log.read_text()
