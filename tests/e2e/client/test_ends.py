"""How sessions end."""

import dataclasses
import threading

import grpc
import pytest

from radixd.client import Client, Fenced, NoSession, Session, SessionOver
from radixd.client.sync import session as sync_session
from radixd.client.sync.stream import Stream
from radixd.v1 import admin_pb2
from tests.e2e.client.conftest import tokens
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually

pytestmark = pytest.mark.usefixtures("memory")


def test_a_reaped_session_is_over_and_another_one_goes_on(daemon: DaemonProcess):
    with Client(daemon.socket) as client:
        mine, other = (client.open_session(model=MODEL, name=name) for name in ("mine", "other"))
        with mine, other:
            lease = mine.acquire(tokens(64))
            daemon.admin.Reap(admin_pb2.ReapRequest(session_id=mine.session_id, client_name="mine"))
            eventually(lambda: mine.over is not None)
            with pytest.raises(NoSession):
                _ = lease.pages
            assert other.acquire(tokens(64)).pages.size == 1


def test_a_second_writer_of_a_session_fences_the_first_out(daemon: DaemonProcess, session: Session):
    session.keep_alive()
    rival = dataclasses.replace(session.opened)
    with Client(daemon.socket) as client:
        twin = Session(client, session._opening, rival, None)
        eventually(lambda: session.over is not None)
        assert isinstance(session.over, Fenced)
        twin.close()


def test_a_closed_session_is_over_at_once(daemon: DaemonProcess):
    with Client(daemon.socket) as client:
        session = client.open_session(model=MODEL)
        lease = session.acquire(tokens(64))
        session.close()
        session.close()
        with pytest.raises(NoSession):
            lease.allocate(128)
    assert daemon.ledger() == (100, 0, 0)


def test_a_client_closed_before_its_session_ends_it(start_daemon: StartDaemon):
    daemon = start_daemon().serving()  # which keeps its pages a while
    client = Client(daemon.socket)
    before = set(threading.enumerate())
    session = client.open_session(model=MODEL)
    lease = session.acquire(tokens(64))
    client.close()
    with pytest.raises(SessionOver, match="client was closed"):
        lease.allocate(128)
    assert session.over is not None
    eventually(lambda: not [it for it in set(threading.enumerate()) - before if it.name.endswith("-replies")])
    session.close()
    for use in (session.reopen, lambda: client.open_session(model=MODEL)):
        with pytest.raises(SessionOver, match="client was closed"):
            use()


def test_a_session_closed_as_its_client_was_is_over(start_daemon: StartDaemon):
    daemon = start_daemon().serving()  # which keeps its pages a while
    client = Client(daemon.socket)
    session = client.open_session(model=MODEL)
    session.step(launched=1, completed=0)
    client.close()
    session.close()
    with pytest.raises(SessionOver):
        session.match(tokens(64))


def test_a_session_closed_as_a_stream_is_opened_ends_it(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch):
    """The one who closes finds no stream to cancel yet."""
    with Client(daemon.socket) as client:
        session = client.open_session(model=MODEL)
        session.keep_alive()
        opening, closing = threading.Event(), threading.Event()

        class LateStream(Stream):
            def __init__(self, channel: grpc.Channel) -> None:
                opening.set()
                assert closing.wait(PATIENCE_S)
                super().__init__(channel)

        monkeypatch.setattr(sync_session, "Stream", LateStream)
        session.reconnect()
        assert opening.wait(PATIENCE_S)
        closer = threading.Thread(target=session.close)
        closer.start()
        eventually(session._closing.is_set)
        closing.set()
        closer.join(PATIENCE_S)
        assert not closer.is_alive()
    assert daemon.ledger() == (100, 0, 0)


def test_on_restart_may_close_the_session_and_cannot_reopen_it(start_daemon: StartDaemon):
    daemon = start_daemon().serving()
    told: list[BaseException] = []
    closed = threading.Event()

    def close(session: Session) -> None:
        session.step(launched=1, completed=1)
        try:
            session.reopen()
        except RuntimeError as error:
            told.append(error)
        session.close()
        closed.set()

    with Client(daemon.socket) as client:
        session = client.open_session(model=MODEL, on_restart=close)
        daemon.process.kill()
        daemon.process.wait()
        second = start_daemon().serving()
        assert closed.wait(PATIENCE_S)
        assert len(told) == 1
        with pytest.raises(NoSession, match="was closed"):
            session.match(tokens(64))
        session.close()
        assert second.ledger() == (100, 0, 0)
