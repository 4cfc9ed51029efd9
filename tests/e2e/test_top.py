"""`radixd top` against a real daemon, once and on a terminal."""

import os
import pty
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from radixd.client import Client, Session
from tests.e2e.daemon_process import COMMAND, MODEL, PATIENCE_S, DaemonProcess, radixd

P = 64


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[Session]:
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="a[red]\x1b[2J") as session:
        lease = session.acquire(np.arange(10 * P, dtype=np.uint32))
        lease.insert(written=10 * P)
        session.acquire(np.arange(12 * P, dtype=np.uint32))
        yield session


def test_once_shows_the_ledger_the_sessions_and_the_prefixes(daemon: DaemonProcess, session: Session) -> None:
    done = radixd("top", "--once", "--target", str(daemon.socket))
    assert done.returncode == 0, done.stderr
    free, leased, _ = daemon.ledger()
    assert f"free {free}  evictable 0  protected 10  leased {leased}  retired 0" in done.stdout
    assert "█" * 72 + " 100" in done.stdout
    assert r"'a[red]\x1b[2J'" in done.stdout  # what a client has called itself is neither markup nor a command
    (row,) = (line.split() for line in done.stdout.splitlines() if line.endswith(" 50"))
    assert row[2:] == ["640", "10", "0", "1", "2", "50"]  # ends at, pages, host, hits, locks, priority
    assert "hit rate 45.5%" in done.stdout  # 640 of 640 + 768 tokens


def test_it_needs_a_terminal_or_once(daemon: DaemonProcess) -> None:
    done = radixd("top", "--target", str(daemon.socket))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "radixd top: this is no terminal that can be redrawn: give --once\n"


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_key_ends_it_and_leaves_the_terminal_as_it_was(daemon: DaemonProcess, session: Session, key: bytes) -> None:
    keyboard, terminal = pty.openpty()
    # Of a session of its own, whose ^C comes from this terminal and is heeded, however the tests were started.
    own = ("setsid", "--ctty", "env", "--default-signal=INT")
    command = (*own, *COMMAND, "top", "--target", str(daemon.socket), "--interval", "0.1")
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as top:
        os.close(terminal)
        shown = b""
        try:
            while b"/s)" not in shown:  # the second reading has rates
                shown += os.read(keyboard, 65536)
            os.write(keyboard, key)
            while b"\x1b[?1049l" not in shown:  # back from the alternate screen
                shown += os.read(keyboard, 65536)
            assert top.wait(PATIENCE_S) == 0
        finally:
            top.kill()
    assert b"\x1b[2J'" not in shown
    os.close(keyboard)
