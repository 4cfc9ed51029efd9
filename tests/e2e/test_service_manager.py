"""The daemon under a service manager: told when it serves, that it lives, and that it stops."""

import socket
import sys

import pytest

from radixd.v1 import admin_pb2
from tests.e2e import daemon_process, stalling_daemon
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, SERVING

ALIVE = b"WATCHDOG=1"
STILL_SECONDS = 3
"""Some ticks, each of which would say that the daemon lives."""


def until(listener: socket.socket, wanted: bytes) -> list[bytes]:
    """What was said before `wanted`."""
    said = []
    while not (message := listener.recv(4096)).startswith(wanted):
        said.append(message)
    return said


def test_ready_once_it_serves_and_stopping_before_it_goes(start_daemon: StartDaemon, notify: socket.socket) -> None:
    daemon = start_daemon()
    assert until(notify, b"READY=1\nSTATUS=serving default on ") == []
    assert daemon.health() == SERVING
    assert until(notify, ALIVE) == []
    daemon.process.terminate()
    assert set(until(notify, b"STOPPING=1\n")) <= {ALIVE}
    assert daemon.process.wait(PATIENCE_S) == 0


def test_a_loop_that_stands_still_is_silent(
    start_daemon: StartDaemon, notify: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_process, "COMMAND", (sys.executable, stalling_daemon.__file__))
    daemon = start_daemon().serving()
    until(notify, ALIVE)
    daemon.admin.Evict(admin_pb2.EvictRequest(pages=STILL_SECONDS), timeout=PATIENCE_S)
    until(notify, stalling_daemon.BEGUN)
    assert until(notify, stalling_daemon.OVER) == []
    until(notify, ALIVE)
