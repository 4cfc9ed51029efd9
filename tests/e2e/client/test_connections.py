"""Connections that break, and daemons that restart."""

import signal
import threading
from pathlib import Path

import pytest

from radixd.client import Client, LeaseStatus, NoSession, StaleEpoch, Unreachable
from radixd.client.attach import attach
from tests.e2e.client.conftest import WITH_MEMORY, tokens
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually
from tests.e2e.dropping_proxy import DroppingProxy

pytestmark = pytest.mark.usefixtures("memory")


def test_a_cut_connection_loses_and_repeats_nothing(daemon: DaemonProcess, proxy: DroppingProxy):
    with Client(proxy.path) as client, client.open_session(model=MODEL) as session:
        session.keep_alive()
        proxy.hold_answers()
        batches = [session.batch() for _ in range(10)]
        opened = [batch.acquire(tokens(64, i)) for i, batch in enumerate(batches)]
        futures = [batch.send() for batch in batches]
        eventually(lambda: daemon.ledger()[1] > 0)
        proxy.drop()
        for future in futures:
            future.result()
        assert sorted(page for operation in opened for page in operation.result().pages.tolist()) == sorted(
            {page for operation in opened for page in operation.result().pages.tolist()}
        )
        assert session.keep_alive().leased == 10


def test_a_session_outlives_idle_cuts(daemon: DaemonProcess, proxy: DroppingProxy):
    with Client(proxy.path) as client, client.open_session(model=MODEL) as session:
        lease = session.acquire(tokens(64))
        for _ in range(3):
            proxy.drop()
            assert lease.match(peek=True).device_tokens == 0
        listed = daemon.listed(session.session_id)
        assert listed is not None
        assert listed.streaming


def test_an_abandoned_batch_gives_back_what_it_opens(daemon: DaemonProcess, proxy: DroppingProxy):
    with Client(proxy.path) as client, client.open_session(model=MODEL) as session:
        session.keep_alive()
        proxy.hold_answers()
        batch = session.batch()
        opened = batch.acquire(tokens(64))
        future = batch.send()
        eventually(lambda: daemon.ledger()[1] == 1)
        with pytest.raises(TimeoutError):
            future.result(timeout=0)
        batch.abandon()
        proxy.drop()
        eventually(lambda: daemon.ledger() == (100, 0, 0))
        eventually(lambda: opened.done and opened.result().status is LeaseStatus.RELEASED)


def test_a_killed_daemon_voids_views_and_leases_and_the_session_reopens(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        attachment, lease = session.attach(), session.acquire(tokens(64))
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        start_daemon(*WITH_MEMORY).serving()
        eventually(lambda: session.over is not None)  # until it hears of the new one, the daemon is unreachable
        with pytest.raises(StaleEpoch):
            lease.allocate(128)
        for use in (lambda: lease.pages, lambda: attachment.views, lambda: session.acquire(tokens(64))):
            with pytest.raises(StaleEpoch):
                use()
        old_epoch, old_ticket = session.epoch, session.ticket()
        session.reopen()
        assert session.epoch != old_epoch
        current = session.attach()
        with pytest.raises(StaleEpoch):
            attach(old_ticket)
        assert current.views
        assert session.acquire(tokens(64)).pages.size == 1
        assert session.attach() is not attachment
        assert session.attach().epoch == session.epoch
        assert session.attach().views[0].buffer.count_nonzero() == 0
        with pytest.raises(StaleEpoch):
            lease.allocate(128)


def test_a_session_reopens_by_itself_where_asked(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY).serving()
    reopened = threading.Event()
    with Client(daemon.socket) as client:
        session = client.open_session(model=MODEL, on_restart=lambda _: reopened.set())
        with session:
            lease = session.acquire(tokens(64))
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
            start_daemon(*WITH_MEMORY).serving()
            assert reopened.wait(PATIENCE_S)
            assert session.acquire(tokens(64)).pages.size == 1
            with pytest.raises(StaleEpoch):
                _ = lease.pages


def test_a_reopening_that_failed_is_still_to_attach(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY).serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        session.attach()
        daemon.stop()
        for _ in range(2):
            with pytest.raises(Unreachable, match="patience="):
                session.reopen()
        start_daemon(*WITH_MEMORY)
        session.reopen(patience=PATIENCE_S)
        assert session._attachment is not None
        assert session._attachment.epoch == session.epoch
        session.close()
        session.reopen()
        assert session._attachment is None  # closed on purpose


def test_reopening_a_live_session_gives_the_old_ones_pages_back(daemon: DaemonProcess):
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        old = session.acquire(tokens(64))
        session.step(launched=1, completed=1)
        session.reopen()
        assert session.keep_alive().free == 100
        with pytest.raises(NoSession):
            _ = old.pages


def test_without_a_daemon_the_error_says_where_it_looked(folder: Path):
    with Client(folder / "none.sock") as client, pytest.raises(Unreachable, match=r"none\.sock.*radixd serve"):
        client.open_session(model=MODEL)


def test_a_daemon_that_comes_late_is_waited_for(folder: Path, start_daemon: StartDaemon):
    with Client(folder / "r.sock") as client:
        start_daemon()
        with client.open_session(model=MODEL, patience=PATIENCE_S) as session:
            assert session.keep_alive().total == 100
