"""`radixd health`: the exit status that a container's probes go by."""

import signal

import pytest

from radixd.server.cli import main
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import PATIENCE_S, DaemonProcess, radixd

PATIENTLY = ("--timeout", str(PATIENCE_S))


def test_a_daemon_that_serves(daemon: DaemonProcess) -> None:
    for service in ((), ("radixd.v1.Cache",)):
        asked = radixd("health", *service, *PATIENTLY, "--target", str(daemon.socket))
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "SERVING\n", "")


def test_a_service_that_it_does_not_have(daemon: DaemonProcess) -> None:
    asked = radixd("health", "pool.other", *PATIENTLY, "--target", str(daemon.socket))
    assert asked.returncode == 1
    assert asked.stderr == f"radixd health: the daemon at {daemon.socket} has no service 'pool.other'\n"


def test_a_daemon_that_is_not_ready(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    asked = radixd("health", *PATIENTLY, "--target", str(daemon.socket))
    while asked.returncode:  # not there, then NOT_SERVING, then SERVING
        assert asked.returncode == 1
        assert asked.stdout == "NOT_SERVING\n" or "no daemon answers" in asked.stderr
        asked = radixd("health", *PATIENTLY, "--target", str(daemon.socket))
    assert asked.stdout == "SERVING\n"


def test_a_daemon_that_hangs(daemon: DaemonProcess) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    asked = radixd("health", "--timeout", "0.3", "--target", str(daemon.socket))
    assert asked.returncode == 1
    assert asked.stderr == f"radixd health: the daemon at {daemon.socket} did not answer within 0.3 s\n"


@pytest.mark.parametrize("timeout", ["inf", "nan", "-1", "1e300", "soon"])
def test_a_timeout_that_is_none(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("health", "--timeout", timeout))
    assert ended.value.code == 2
    assert "argument --timeout: " in capsys.readouterr().err
