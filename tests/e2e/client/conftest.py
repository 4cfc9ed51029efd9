"""A daemon, and what stands between it and a client."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from radixd.client import Client, Session
from radixd.v1 import admin_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess
from tests.e2e.dropping_proxy import DroppingProxy

P = 64
WITH_MEMORY = ("--device", "cpu")


def tokens(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, length, dtype=np.uint32)


@pytest.fixture(scope="package")
def shared_daemon() -> Iterator[DaemonProcess]:
    """One in host memory for all tests that leave it running: a start takes seconds."""
    folder = Path(tempfile.mkdtemp(prefix="rx"))
    daemon = DaemonProcess(folder, *WITH_MEMORY)
    try:
        yield daemon.serving()
    finally:
        daemon.stop()
        shutil.rmtree(folder)


@pytest.fixture
def daemon(memory: str, request: pytest.FixtureRequest) -> DaemonProcess:
    """With an empty tree and no page held: the shared one, or on GPUs, which are the test's alone, one of its own."""
    if memory == "gpu":
        start_daemon: StartDaemon = request.getfixturevalue("start_daemon")
        return start_daemon(*WITH_MEMORY).serving()
    shared: DaemonProcess = request.getfixturevalue("shared_daemon")
    shared.admin.Flush(admin_pb2.FlushRequest(), timeout=PATIENCE_S)
    assert shared.ledger() == (100, 0, 0)
    return shared


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[Session]:
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        yield session


@pytest.fixture
def proxy(daemon: DaemonProcess, folder: Path) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy(folder / "proxy.sock", daemon.socket)
    yield proxy
    proxy.close()
