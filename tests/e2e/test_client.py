"""The client against real daemons: verbs, pipelining, broken connections, restarts, attached memory."""

import asyncio
import dataclasses
import gc
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from radixd.client import (
    AsyncClient,
    BadSecret,
    Client,
    DependencyFailed,
    Fenced,
    GeometryMismatch,
    LeaseStatus,
    LimitExceeded,
    NeverFits,
    NoLease,
    NoPages,
    NoSession,
    NotActive,
    Session,
    Skipped,
    StaleEpoch,
    Unreachable,
)
from radixd.client.attach import attach
from radixd.v1 import admin_pb2, cache_pb2
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually
from tests.e2e.dropping_proxy import DroppingProxy

pytestmark = pytest.mark.usefixtures("memory")

P = 64
WITH_MEMORY = ("--device", "cpu")


def tokens(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, length, dtype=np.uint32)


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[DaemonProcess]:
    """One for all tests that leave it running: a start takes seconds."""
    folder = Path(tempfile.mkdtemp(prefix="rx"))
    daemon = DaemonProcess(folder, *WITH_MEMORY)
    try:
        yield daemon.serving()
    finally:
        daemon.stop()
        shutil.rmtree(folder)


@pytest.fixture
def daemon(shared_daemon: DaemonProcess) -> DaemonProcess:
    """With an empty tree and no page held."""
    shared_daemon.admin.Flush(admin_pb2.FlushRequest(), timeout=PATIENCE_S)
    assert shared_daemon.ledger() == (100, 0, 0)
    return shared_daemon


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[Session]:
    with Client(daemon.socket) as client, client.open_session(model=MODEL, name="one") as session:
        yield session


@pytest.fixture
def proxy(daemon: DaemonProcess, folder: Path) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy(folder / "proxy.sock", daemon.socket)
    yield proxy
    proxy.close()


def test_a_request_from_acquire_to_release(session: Session):
    prompt = tokens(200)
    lease = session.acquire(prompt, allocate_to=130, reserve_to=300)
    assert (lease.device_tokens, lease.known, lease.allocated) == (0, 200, 192)
    assert lease.allocate(250, tokens=[7, 8]).size == 1
    assert (lease.known, lease.allocated) == (202, 256)
    assert lease.insert(200).published == 192
    assert lease.free(202) == 0
    assert session.match(prompt).device_tokens == 192
    assert session.match(prompt, cache_salt=b"other").device_tokens == 0
    again = session.acquire(prompt)
    assert again.device_tokens == 192
    assert again.pages[:3].tolist() == lease.pages[:3].tolist()
    assert lease.release().freed_pages == 1
    with pytest.raises(NoLease):
        lease.allocate(400)
    again.release()
    occupancy = session.keep_alive()
    assert (occupancy.evictable, occupancy.leased) == (3, 0)


def test_a_waiting_lease_is_matched_and_activated_by_id(session: Session):
    prompt = tokens(200)
    session.acquire(prompt).insert(200)
    lease = session.wait(prompt)
    assert lease.match().device_tokens == 192
    assert lease.activate(allocate_to=200) is lease
    assert lease.device_tokens == 192
    lease.release(keep=True, tokens=[1, 2])
    assert (lease.known, lease.allocated) == (202, 0)
    assert lease.match().device_tokens == 192


def test_one_batch_opens_uses_and_groups(session: Session):
    batch = session.batch()
    opened = batch.acquire(tokens(100))
    grown = batch.allocate(opened, 129)
    too_big = batch.acquire(tokens(90 * P, 1), reserve_to=99 * P)
    behind = batch.acquire(tokens(10, 2))
    batch.group(1, too_big, behind)
    orphan = batch.allocate(too_big, 100 * P)
    reply = batch.send().result()
    assert opened.result().allocated == 192
    assert grown.result().size == 1
    assert isinstance(too_big.error, NoPages)
    assert {"needed", "free", "evictable", "retired", "reserved"} <= set(too_big.error.facts)
    assert too_big.error.retry_after is not None
    assert isinstance(behind.error, Skipped)
    assert isinstance(orphan.error, DependencyFailed)
    assert reply.device.leased == 3


def test_refusals_say_what_would_fit(session: Session):
    with pytest.raises(NeverFits) as never:
        session.acquire(tokens(101 * P))
    assert never.value.facts["max_pages"] == "100"
    with pytest.raises(LimitExceeded):
        session.match(np.zeros(session.limits.tokens + 1, np.uint32))
    with pytest.raises(LimitExceeded):
        session.match(np.zeros(session.limits.message_bytes // 4, np.uint32))
    assert session.match([]).device_tokens == 0


def test_a_lease_comes_back_from_the_host_on_other_pages(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY, "--host-tokens", "6400").serving()
    with Client(daemon.socket) as client, client.open_session(model=MODEL) as session:
        attachment, lease = session.attach(), session.acquire(tokens(200))
        rows = attachment.views[0].page_rows[0]
        kept = [rows[int(page)].clone().fill_(i + 1) for i, page in enumerate(lease.pages)]
        for page, content in zip(lease.pages, kept, strict=True):
            rows[int(page)].copy_(content)
        lease.insert(200)
        assert lease.offload() == 4
        assert lease.status is LeaseStatus.OFFLOADING
        with pytest.raises(NotActive):
            lease.allocate(300)
        lease.wait_saved(PATIENCE_S)
        assert (lease.status, lease.allocated, lease.known, lease.written) == (LeaseStatus.OFFLOADED, 0, 200, 200)
        other = session.acquire(tokens(99 * P, 1))
        with pytest.raises(NoPages):
            lease.restore()
        other.release()
        assert lease.restore(allocate_to=256, reserve_to=300) is lease
        lease.wait_loaded(PATIENCE_S)
        assert (lease.status, lease.readable, lease.allocated) == (LeaseStatus.ACTIVE, 200, 256)
        for page, content in zip(lease.pages, kept, strict=True):
            assert rows[int(page)].equal(content)
        assert session.host is not None
        assert session.host.total == 100
        del rows


def test_the_async_client_offloads_and_restores_too(start_daemon: StartDaemon):
    daemon = start_daemon(*WITH_MEMORY, "--host-tokens", "6400").serving()

    async def run() -> None:
        async with AsyncClient(daemon.socket) as client, await client.open_session(model=MODEL) as session:
            lease = await session.acquire(tokens(100))
            batch = session.batch()
            saved = batch.offload(lease)
            reply = await batch.send()
            assert (saved.result(), reply.host.total) == (2, 100)
            async with asyncio.timeout(PATIENCE_S):
                await lease.wait_saved()
                assert lease.status is LeaseStatus.OFFLOADED
                await lease.restore()
                await lease.wait_loaded()
            assert (lease.status, lease.readable, lease.loading) == (LeaseStatus.ACTIVE, 100, frozenset())

    asyncio.run(run())


def test_a_copy_that_does_not_end_is_not_waited_for_for_ever(session: Session):
    lease = session.acquire(tokens(64))
    lease.loading = frozenset({404})
    with pytest.raises(TimeoutError, match="still active after 0"):
        lease.wait_loaded(0.01)


def test_many_batches_in_flight_are_answered_in_order(session: Session):
    batches = [session.batch() for _ in range(50)]
    for i, batch in enumerate(batches):
        batch.match(tokens(100, i))
    futures = [batch.send() for batch in batches]
    seqs = [future.result().seq for future in futures]
    assert seqs == list(range(seqs[0], seqs[0] + 50))


def test_patches_come_at_the_step_boundary_and_the_copies_go_free(daemon: DaemonProcess):
    prompt = tokens(128)
    with Client(daemon.socket) as client, client.open_session(model=MODEL, dedup="patch") as session:
        first, second = session.acquire(prompt), session.acquire(prompt)
        session.step(launched=1, completed=0)
        first.insert(128)
        second.insert(128)
        session.step(launched=2, completed=1)
        session.keep_alive()
        own = second.pages
        session.step(launched=3, completed=2)
        assert second.pages.tolist() == first.pages.tolist()
        assert not set(own.tolist()) & set(first.pages.tolist())
        session.keep_alive()
        session.step(completed=3)
        assert session.keep_alive().leased == 0
        assert session.keep_alive().protected == 2


def test_an_idle_session_reports_its_last_step_by_itself(session: Session):
    lease = session.acquire(tokens(64))
    session.step(launched=1, completed=0)
    lease.release()
    session.step(completed=1)
    eventually(lambda: session.device is not None and session.device.retired == 0)


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


def test_without_a_daemon_the_error_says_where_it_looked(folder: Path):
    with Client(folder / "none.sock") as client, pytest.raises(Unreachable, match=r"none\.sock.*radixd serve"):
        client.open_session(model=MODEL)


def test_a_daemon_that_comes_late_is_waited_for(folder: Path, start_daemon: StartDaemon):
    with Client(folder / "r.sock") as client:
        start_daemon()
        with client.open_session(model=MODEL, patience=PATIENCE_S) as session:
            assert session.keep_alive().total == 100


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


def test_a_closed_session_is_over_at_once(daemon: DaemonProcess):
    with Client(daemon.socket) as client:
        session = client.open_session(model=MODEL)
        lease = session.acquire(tokens(64))
        session.close()
        session.close()
        with pytest.raises(NoSession):
            lease.allocate(128)
    assert daemon.ledger() == (100, 0, 0)


async def test_the_asyncio_client_does_the_same(daemon: DaemonProcess):
    prompt = tokens(200)
    async with AsyncClient(daemon.socket) as client, await client.open_session(model=MODEL) as session:
        lease = await session.acquire(prompt, reserve_to=300)
        assert (await lease.allocate(250)).size == 0
        assert (await lease.insert(200)).published == 192
        batch = session.batch()
        hit, again = batch.match(prompt), batch.acquire(prompt)
        batch.release(again)
        await batch.send()
        assert hit.result().device_tokens == again.result().device_tokens == 192
        replies = [batch.send() for batch in (session.batch() for _ in range(20))]
        seqs = [(await reply).seq for reply in replies]
        assert seqs == sorted(seqs)
        with pytest.raises(NeverFits):
            await session.acquire(tokens(101 * P))
        attachment = await session.attach()
        assert len(attachment.views) == 1
        await lease.release()
        assert (await session.keep_alive()).leased == 0


async def test_the_asyncio_client_reconnects_and_reopens(start_daemon: StartDaemon, folder: Path):
    daemon = start_daemon(*WITH_MEMORY).serving()
    proxy = DroppingProxy(folder / "proxy.sock", daemon.socket)
    reopened = asyncio.Event()
    async with (
        AsyncClient(proxy.path) as client,
        await client.open_session(model=MODEL, on_restart=lambda _: reopened.set()) as session,
    ):
        lease = await session.acquire(tokens(64))
        attachment = await session.attach()
        proxy.drop()
        assert (await lease.match()).device_tokens == 0
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        start_daemon(*WITH_MEMORY).serving()
        proxy.drop()
        with pytest.raises(StaleEpoch):
            await lease.match()
        with pytest.raises(StaleEpoch):
            _ = attachment.views
        await reopened.wait()
        assert (await session.acquire(tokens(64))).pages.size == 1
        with pytest.raises(StaleEpoch):
            _ = lease.pages
    proxy.close()


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


async def test_a_cancelled_acquire_gives_its_lease_back(daemon: DaemonProcess, proxy: DroppingProxy):
    async with AsyncClient(proxy.path) as client, await client.open_session(model=MODEL) as session:
        kept = await session.acquire(tokens(64))
        proxy.hold_answers()
        alone = asyncio.create_task(session.acquire(tokens(64, 1)))
        batch = session.batch()
        batch.wait(tokens(64, 2))
        batch.acquire(tokens(64, 3))
        together = batch.send()
        await asyncio.to_thread(eventually, lambda: daemon.ledger()[1] == 3)
        alone.cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(together, 0)
        proxy.drop()
        await asyncio.to_thread(eventually, lambda: daemon.ledger()[1] == 1)
        listed = daemon.listed(session.session_id)
        assert listed is not None
        assert (listed.active_leases, listed.waiting_leases) == (1, 0)
        assert (await kept.match(peek=True)).device_tokens == 0


async def test_an_acquire_cancelled_as_its_reply_comes_gives_its_lease_back(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
):
    async with AsyncClient(daemon.socket) as client, await client.open_session(model=MODEL) as session:
        await session.keep_alive()
        receive = session.exchange.receive

        def receive_and_cancel(message: cache_pb2.BatchReply) -> None:
            receive(message)
            task.cancel()

        monkeypatch.setattr(session.exchange, "receive", receive_and_cancel)
        task = asyncio.create_task(session.acquire(tokens(64)))
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(eventually, lambda: daemon.ledger() == (100, 0, 0))


async def test_asyncio_has_nothing_to_say_while_the_daemon_is_dead(
    start_daemon: StartDaemon, caplog: pytest.LogCaptureFixture
):
    daemon = start_daemon().serving()
    async with AsyncClient(daemon.socket) as client, await client.open_session(model=MODEL) as session:
        await session.keep_alive()
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        waiting = [session.batch().send() for _ in range(5)]
        await asyncio.sleep(1)
        assert not any(future.done() for future in waiting)
        start_daemon().serving()
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, StaleEpoch)
    await asyncio.sleep(0)
    gc.collect()
    assert caplog.records == []


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
