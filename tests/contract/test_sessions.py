"""How sessions are opened, kept, resumed and ended, over the wire."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from radixd.server.cache.refusal import Reason, Refusal
from radixd.v1 import admin_pb2, session_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, end_of, opening, ref
from tests.contract.refusals import refused
from tests.contract.service import LIVENESS, PAGES, LedgerPool, Service
from tests.sequences import ramp, seq


@dataclass(frozen=True)
class Process:
    """An attached process, alive until the test says otherwise."""

    pid: int

    def release(self) -> bool:
        """Nobody watches it here."""
        return False


async def listed(service: Service) -> dict[int, admin_pb2.SessionInfo]:
    answer = await service.admin.ListSessions(admin_pb2.ListSessionsRequest())
    return {info.session_id: info for info in answer.sessions}


async def test_an_opening_retried_by_its_nonce_opens_one_session(service: Service) -> None:
    request = opening()
    first = await service.sessions.OpenSession(request)
    assert await service.sessions.OpenSession(request) == first
    assert len(await listed(service)) == 1


async def test_a_nonce_with_other_content_is_refused(service: Service) -> None:
    await service.sessions.OpenSession(opening(nonce=bytes(16)))
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await service.sessions.OpenSession(opening(nonce=bytes(16), model=b"another"))
    assert told.fields == ("nonce",)


async def test_the_nonce_of_an_ended_session_opens_another(service: Service) -> None:
    request = opening()
    caller = Caller(service, await service.sessions.OpenSession(request))
    await caller.close()
    again = await service.sessions.OpenSession(request)
    assert again.session_id != caller.id
    assert again.secret != caller.opened.secret


async def test_where_there_are_several_pools_one_must_be_named(tmp_path: Path) -> None:
    async with Service(tmp_path / "s.sock", LedgerPool("a", 8), LedgerPool("b", 16)) as service:
        with refused(Reason.BAD_FIELD) as told:
            await service.sessions.OpenSession(opening())
        assert told.fields == ("pool",)
        assert (await Caller.open(service, pool="b")).opened.total_pages == 16
        with refused(Reason.NO_POOL):
            await service.admin.Flush(admin_pb2.FlushRequest())
        everything = await service.admin.Occupancy(admin_pb2.OccupancyRequest())
        assert [pool.pool for pool in everything.pools] == ["a", "b"]


async def test_a_closed_session_gives_everything_back_and_is_unknown(service: Service, caller: Caller) -> None:
    await caller.publish(seq("AB"))
    await caller.acquire(seq("ABCD"), reserve_to=640)
    stream = caller.stream
    assert await caller.close() == 0
    with refused(Reason.NO_SESSION):
        await end_of(stream)
    ledger = (await service.state())[0][0].device
    assert (ledger.free, ledger.evictable, ledger.reserved_others) == (PAGES - 2, 2, 0)
    with refused(Reason.NO_SESSION):
        await service.cache.Match(pb.MatchRequest(call=caller.call(), match=pb.Match()))
    assert await caller.close() == 0  # idempotent


async def test_closing_needs_the_secret_and_a_step_that_was_launched(service: Service, caller: Caller) -> None:
    await caller.acquire(seq("AB"))
    with refused(Reason.BAD_SECRET):
        await caller.close(secret=bytes(16))
    caller.completed = 1
    with refused(Reason.BAD_FIELD) as told:
        await caller.close()
    assert told.fields == ("completed",)
    assert caller.id in await listed(service)


async def test_a_step_in_flight_keeps_a_closed_sessions_pages_until_its_process_is_gone(
    service: Service, caller: Caller
) -> None:
    worker = Process(100)
    service.registry.attach(caller.id, caller.opened.secret, worker)
    await caller.acquire(seq("AB"))
    caller.launched = 1
    await caller.say()
    assert await caller.close() == 2
    info = (await listed(service))[caller.id]
    assert (info.ended, info.retired_pages, list(info.pids)) == (True, 2, [100])
    assert await caller.close() == 2
    service.registry.holder_gone(caller.id, worker)
    assert (await service.state())[0][0].device.free == PAGES


async def test_keep_alive_completes_steps(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(seq("AB"))).lease_id
    caller.launched = 1
    await caller.say(pb.Release(lease=ref(lease)))
    request = session_pb2.KeepAliveRequest(**caller.identity(completed=1))
    answer = await service.sessions.KeepAlive(request)
    assert (answer.device.free, answer.device.retired, answer.generation) == (PAGES, 0, 1)
    with refused(Reason.BAD_FIELD) as told:
        await service.sessions.KeepAlive(session_pb2.KeepAliveRequest(**caller.identity(completed=2)))
    assert told.fields == ("completed",)


async def half_close(caller: Caller) -> None:
    """Ends the caller's stream in peace."""
    assert caller.stream is not None
    await caller.stream.done_writing()
    assert await caller.stream.code() is grpc.StatusCode.OK


def tick(service: Service, seconds: float) -> None:
    for _ in range(int(seconds)):
        service.registry.tick(1.0)


async def test_an_open_stream_never_expires(service: Service, caller: Caller) -> None:
    await caller.say()
    tick(service, 10 * LIVENESS.ttl_seconds)
    await caller.say()


async def test_a_stream_that_ended_can_be_resumed_within_the_grace(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(seq("AB"))).lease_id
    await half_close(caller)
    tick(service, LIVENESS.grace_seconds)
    caller.connect()
    await caller.say(pb.Insert(lease=ref(lease), written=128))
    await half_close(caller)
    tick(service, LIVENESS.grace_seconds + 2)
    caller.connect()
    with refused(Reason.NO_SESSION):
        await caller.exchange(caller.batch())
    assert (await service.state())[0][0].device.free == PAGES - 2


async def test_the_death_of_all_processes_ends_a_session_with_its_open_stream(
    service: Service, caller: Caller, other: Caller
) -> None:
    scheduler, worker = Process(1), Process(2)
    for process in (scheduler, worker):
        service.registry.attach(caller.id, caller.opened.secret, process)
    await caller.acquire(seq("AB"))
    service.registry.holder_gone(caller.id, scheduler)
    await caller.say()
    service.registry.holder_gone(caller.id, worker)
    assert caller.stream is not None
    with refused(Reason.NO_SESSION):
        await end_of(caller.stream)
    reply = await other.say(pb.Acquire(tokens=ramp(64 * PAGES)))
    assert reply.device.free == 0


async def test_streams_end_when_the_daemon_drains_and_running_work_is_answered(
    service: Service, caller: Caller, other: Caller
) -> None:
    streams = [caller.connect(), other.connect(), service.cache.Schedule()]
    await caller.say()
    await other.say()
    await streams[2].wait_for_connection()
    while len(service.registry.streams) < len(streams):  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0)
    service.registry.stop_streams(Refusal(Reason.DRAINING, "bye"))
    for stream in streams:
        with refused(Reason.DRAINING) as told:
            await end_of(stream)
        assert told.retry_seconds is not None
    assert not any(info.streaming for info in (await listed(service)).values())


async def test_a_stream_serves_one_session(service: Service, caller: Caller, other: Caller) -> None:
    await caller.say()
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await caller.exchange(other.batch())
    assert told.fields == ("call.session_id",)


async def test_a_client_that_vanishes_leaves_its_session_in_grace(service: Service, caller: Caller) -> None:
    await caller.acquire(seq("AB"))
    assert (await listed(service))[caller.id].streaming
    await service.channel.close()
    service.channel = grpc.aio.insecure_channel(service.address)
    while (await listed(service))[caller.id].streaming:
        pass  # the end of the old connection is news from elsewhere than the new one's call


@pytest.mark.parametrize("half_closed", [True, False])
async def test_a_stream_that_says_nothing_holds_nothing(service: Service, caller: Caller, half_closed: bool) -> None:
    stream = caller.connect()
    if half_closed:
        await half_close(caller)
    else:
        stream.cancel()
    assert not (await listed(service))[caller.id].streaming
