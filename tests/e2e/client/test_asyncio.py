"""The asyncio client against a real daemon."""

import asyncio
import gc
import signal
from pathlib import Path

import pytest

from radixd.client import AsyncClient, LeaseStatus, NeverFits, SessionOver, StaleEpoch
from radixd.v1 import cache_pb2
from tests.e2e.client.conftest import WITH_MEMORY, P, tokens
from tests.e2e.conftest import StartDaemon
from tests.e2e.daemon_process import MODEL, PATIENCE_S, DaemonProcess, eventually
from tests.e2e.dropping_proxy import DroppingProxy

pytestmark = pytest.mark.usefixtures("memory")


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


async def test_an_asyncio_client_closed_before_its_session_ends_it(start_daemon: StartDaemon):
    daemon = start_daemon().serving()  # which keeps its pages a while
    client = AsyncClient(daemon.socket)
    session = await client.open_session(model=MODEL)
    lease = await session.acquire(tokens(64))
    await client.close()
    with pytest.raises(SessionOver, match="client was closed"):
        await lease.allocate(128)
    await session.close()
    for use in (session.reopen, lambda: client.open_session(model=MODEL)):
        with pytest.raises(SessionOver, match="client was closed"):
            await use()


async def test_an_asyncio_session_closed_as_its_client_was_is_over(start_daemon: StartDaemon):
    daemon = start_daemon().serving()  # which keeps its pages a while
    client = AsyncClient(daemon.socket)
    session = await client.open_session(model=MODEL)
    session.step(launched=1, completed=0)
    await client.close()
    await session.close()
    with pytest.raises(SessionOver):
        await session.match(tokens(64))
