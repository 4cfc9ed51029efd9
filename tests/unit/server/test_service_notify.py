"""What is said on the service manager's socket, and what becomes of it where nobody listens."""

import logging
import socket
from pathlib import Path

import pytest

from radixd.server.service_notify import ServiceNotify


def listening(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(address)
    listener.settimeout(10)
    return listener


def lines(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


@pytest.mark.parametrize("abstract", [False, True])
def test_a_life_as_the_manager_hears_it(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    notify = ServiceNotify({"NOTIFY_SOCKET": f"@{path}" if abstract else path})
    with listening(f"\0{path}" if abstract else path) as listener:
        notify.ready("serving default on /run/radixd/radixd.sock")
        notify.alive()
        notify.stopping()
        assert lines(listener) == ["READY=1", "STATUS=serving default on /run/radixd/radixd.sock"]
        assert lines(listener) == ["WATCHDOG=1"]
        assert lines(listener) == ["STOPPING=1", "STATUS=draining"]
    notify.close()


def test_no_manager_no_message(caplog: pytest.LogCaptureFixture) -> None:
    notify = ServiceNotify({})
    notify.ready("serving")
    notify.close()
    assert not caplog.records


def test_a_manager_that_does_not_read_never_holds_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "notify")
    notify = ServiceNotify({"NOTIFY_SOCKET": path})
    with listening(path) as listener:
        for _ in range(10_000):  # far more than its queue takes
            notify.alive()
        assert lines(listener) == ["WATCHDOG=1"]
    notify.close()
    assert not caplog.records


def test_a_manager_that_is_gone_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notify = ServiceNotify({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with caplog.at_level(logging.WARNING):
        notify.alive()
        notify.alive()
    notify.close()
    (record,) = caplog.records
    assert record.getMessage().endswith("/gone': No such file or directory")
