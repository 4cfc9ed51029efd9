"""Daemons and attached processes that end with their test."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from radixd.v1 import session_pb2
from tests.e2e.attached_process import AttachedProcess
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess
from tests.e2e.prometheus_server import ROOT, RULES, PrometheusServer
from tests.e2e.scraped import metrics_url

StartDaemon = Callable[..., DaemonProcess]
Attach = Callable[..., AttachedProcess]
Promtool = Callable[..., subprocess.CompletedProcess[str]]
StartPrometheus = Callable[[DaemonProcess], PrometheusServer]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="rx"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start_daemon(folder: Path) -> Iterator[StartDaemon]:
    """Starts daemons in `folder`, with more flags where given."""
    with ExitStack() as running:

        def start(*flags: str, name: str = "r.sock") -> DaemonProcess:
            daemon = DaemonProcess(folder, *flags, name=name)
            running.callback(daemon.stop)
            return daemon

        yield start


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    """A daemon that serves a pool of 100 pages."""
    return start_daemon().serving()


@pytest.fixture
def notify(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's end of what daemons tell it."""
    path = str(folder / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Starts processes that attach in a session's name."""
    with ExitStack() as running:

        def start(
            daemon: DaemonProcess, session: session_pb2.OpenSessionResponse, fork: bool = False
        ) -> AttachedProcess:
            attached = AttachedProcess(
                daemon.attach_socket, session.epoch, session.session_id, session.secret, fork=fork
            )
            running.callback(_end, attached)
            return attached

        yield start


def _end(attached: AttachedProcess) -> None:
    attached.kill()
    for pid in attached.pids[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def prometheus_programs() -> Path:
    """The folder of prometheus and promtool; where they cannot be had, the test is skipped with the reason."""
    found = subprocess.run((str(ROOT / "scripts" / "prometheus.sh"),), capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"no Prometheus: {found.stderr.strip()}")
    return Path(found.stdout.strip())


@pytest.fixture
def promtool(prometheus_programs: Path) -> Promtool:
    """Runs promtool to its end, in the folder of the rules."""

    def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = (str(prometheus_programs / "promtool"), *arguments)
        return subprocess.run(command, input=text, capture_output=True, text=True, cwd=RULES, check=False)

    return run


@pytest.fixture
def start_prometheus(prometheus_programs: Path, tmp_path: Path) -> Iterator[StartPrometheus]:
    """Starts a Prometheus that scrapes a daemon."""
    with ExitStack() as running:

        def start(daemon: DaemonProcess) -> PrometheusServer:
            target = metrics_url(daemon).removeprefix("http://").removesuffix("/metrics")
            server = PrometheusServer(prometheus_programs, tmp_path, target)
            running.callback(server.stop)
            return server.ready()

        yield start
