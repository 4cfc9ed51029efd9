"""GPUs for these tests: the machine's own under RADIXD_REAL_CUDA (scripts/gpu_check.sh), otherwise the fake's."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from radixd.client import Client, Session
from radixd.gpu_pool.cuda.gpu import Gpu, visible_gpus
from tests.e2e.conftest import StartDaemon, folder, start_daemon  # noqa: F401 - fixtures
from tests.e2e.daemon_process import MODEL, DaemonProcess
from tests.fake_cuda.plugin import MakeFakeGpus

REAL = "RADIXD_REAL_CUDA" in os.environ

OpenSession = Callable[..., Session]


@pytest.fixture
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Gpu, ...]:
    """The machine's; programs that a test starts see the same ones."""
    if not REAL:
        make: MakeFakeGpus = request.getfixturevalue("make_fake_gpus")
        monkeypatch.setenv("PYTHONPATH", make(2, delay_s=0.05).env()["PYTHONPATH"])
    return visible_gpus()


@pytest.fixture
def gpu(gpus: tuple[Gpu, ...]) -> Gpu:
    """One of them."""
    return gpus[0]


@pytest.fixture
def start_gpu_daemon(gpu: Gpu, start_daemon: StartDaemon) -> StartDaemon:  # noqa: F811
    """Starts daemons whose pool of 100 tiny pages lies on the GPU."""
    return lambda *flags: start_daemon("--device", "cuda", "--gpus", gpu.uuid, *flags).serving()


@pytest.fixture
def open_session() -> Iterator[OpenSession]:
    """Opens sessions that end with their test."""
    with ExitStack() as stack:

        def start(daemon: DaemonProcess, name: str = "engine") -> Session:
            client = stack.enter_context(Client(str(daemon.socket)))
            return stack.enter_context(client.open_session(model=MODEL, name=name))

        yield start
