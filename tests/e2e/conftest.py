"""Daemons and attached processes that end with their test."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from radixd.v1 import session_pb2
from tests.e2e.attached_process import AttachedProcess
from tests.e2e.daemon_process import DaemonProcess

StartDaemon = Callable[..., DaemonProcess]
Attach = Callable[..., AttachedProcess]


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
def attach() -> Iterator[Attach]:
    """Starts processes that attach in a session's name."""
    with ExitStack() as running:

        def start(
            daemon: DaemonProcess, session: session_pb2.OpenSessionResponse, fork: bool = False
        ) -> AttachedProcess:
            attached = AttachedProcess(daemon.attach_socket, session.session_id, session.secret, fork=fork)
            running.callback(_end, attached)
            return attached

        yield start


def _end(attached: AttachedProcess) -> None:
    attached.kill()
    for pid in attached.pids[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
