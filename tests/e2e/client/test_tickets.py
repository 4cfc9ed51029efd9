"""Workers that map the pool with a session's ticket."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from radixd.client import BadSecret, GeometryMismatch, NoSession, Session, StaleEpoch, Unreachable
from radixd.client.attach import attach
from tests.e2e.client.conftest import P, tokens
from tests.e2e.daemon_process import PATIENCE_S

pytestmark = pytest.mark.usefixtures("memory")


def test_workers_attach_with_a_ticket_and_share_the_bytes(session: Session):
    lease = session.acquire(tokens(100))
    slots = lease.slots(0, 100)
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("attached_worker.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(f"{session.ticket().to_json()}\n{' '.join(map(str, slots))}\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "wrote\n"
        rows = session.attach().views[0].token_rows[0]
        assert rows[slots // P, slots % P, 0, 0].tolist() == slots.astype(rows.numpy().dtype).tolist()
    finally:
        worker.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"secret": b"x" * 16}, BadSecret),
        ({"session_id": 2**40}, NoSession),
        ({"epoch": 1}, StaleEpoch),
        ({"geometry_fingerprint": b"x" * 16}, GeometryMismatch),
        ({"attach_socket": "/nowhere"}, Unreachable),
    ],
)
def test_a_wrong_ticket_maps_nothing(session: Session, change: dict[str, object], error: type[Exception]):
    with pytest.raises(error):
        attach(dataclasses.replace(session.ticket(), **change))


def test_a_closed_attachment_gives_no_views(session: Session):
    attachment = attach(session.ticket())
    attachment.close()
    attachment.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = attachment.views
