"""A Batch acts once, however often and over however many connections it is sent."""

import asyncio

import grpc
import pytest

from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.rpc.methods import receiver
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import cache_pb2 as pb
from radixd.v1 import session_pb2
from tests.contract.caller import Caller, end_of, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import LIMITS, PAGES, Service
from tests.sequences import PAGE, ramp, seq


async def test_a_retry_is_answered_again_with_the_same_reply(service: Service, caller: Caller) -> None:
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    first = await caller.exchange(batch)
    async with service.unchanged():
        assert await caller.exchange(batch) == first


async def test_a_retry_over_another_connection_acts_once(service: Service, caller: Caller) -> None:
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    first = await caller.exchange(batch)
    await service.channel.close()
    service.channel = grpc.aio.insecure_channel(service.address)
    caller.connect()
    async with service.unchanged():
        assert await caller.exchange(batch) == first
    await caller.say(pb.Release(lease=ref(first.results[0].acquire.lease_id)))


async def test_a_reply_that_was_lost_with_its_stream_can_be_had_again(service: Service, caller: Caller) -> None:
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    stream = caller.connect()
    await stream.write(batch)
    stream.cancel()
    caller.connect()
    reply = await caller.exchange(batch)
    assert service.pool.cache.session(caller.id).leases.keys() == {reply.results[0].acquire.lease_id}


async def test_a_refused_operation_is_recorded_too(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(ramp((PAGES - 1) * PAGE))).lease_id
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    result_refused((await caller.exchange(batch)).results[0].status, Reason.NO_PAGES)
    await caller.say(pb.Release(lease=ref(lease)))
    # There is room now; the seq's answer is the old one all the same.
    result_refused((await caller.exchange(batch)).results[0].status, Reason.NO_PAGES)


async def test_a_refused_unary_call_is_recorded_and_says_that_its_seq_is_spent(
    service: Service, caller: Caller
) -> None:
    request = pb.FreeRequest(call=caller.call(), free=pb.Free(lease=ref(77)))
    for _ in range(2):
        with refused(Reason.NO_LEASE) as told:
            await service.cache.Free(request)
        assert told.facts == {"seq": "1"}
    session = service.registry.find(caller.id, caller.opened.secret, caller.opened.epoch)
    kept = session.replies.find(1, receiver(pb.FreeRequest)(request.SerializeToString()).digest)
    assert isinstance(kept, Refusal)
    assert kept.__traceback__ is None  # else its frames would keep the request alive
    caller.seq = 1
    await caller.say()


async def test_equal_bytes_for_another_verb_are_other_content(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(ramp(100))).lease_id
    call = caller.call()
    free = pb.FreeRequest(call=call, free=pb.Free(lease=ref(lease), from_length=64))
    release = pb.ReleaseRequest.FromString(free.SerializeToString())
    await service.cache.Free(free)
    async with service.unchanged():
        with refused(Reason.SEQ_REUSED):
            await service.cache.Release(release)


async def test_a_seq_out_of_line_names_the_next(service: Service, caller: Caller) -> None:
    await caller.say()
    for seq_number in (0, 3, 2**63):
        caller.connect()
        async with service.unchanged():
            with refused(Reason.BAD_FIELD) as told:
                await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A")), seq=seq_number))
        assert (told.fields, told.facts) == (("call.seq",), {"next_seq": "2"})


async def test_replies_are_kept_until_acknowledged_or_pushed_out(service: Service, caller: Caller) -> None:
    batches = []
    for _ in range(LIMITS.replay_batches + 1):
        batches.append(caller.batch(pb.Match(tokens=seq("A"))))
        await caller.exchange(batches[-1])
    for batch in batches[1:]:
        await caller.exchange(batch)
    with refused(Reason.SEQ_EXPIRED) as told:
        await caller.exchange(batches[0])
    assert told.facts == {"next_seq": str(caller.seq + 1)}


@pytest.mark.parametrize(
    ("steps", "field"),
    [
        ({"launched": 1}, "call.launched"),
        ({"completed": 0}, "call.completed"),
        ({"completed": 3}, "call.completed"),
        ({"ack": 2}, "call.ack"),
    ],
)
async def test_a_batch_whose_call_is_wrong_is_refused_whole_and_its_seq_stays_free(
    service: Service, caller: Caller, steps: dict[str, int], field: str
) -> None:
    await caller.say(launched=2, completed=1)
    caller.launched, caller.completed = 2, 1
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A")), **steps))
    assert told.fields == (field,)
    caller.connect()
    await caller.acquire(seq("A"))


async def test_the_number_of_operations_has_a_limit_and_the_seq_stays_free(service: Service, caller: Caller) -> None:
    one = pb.Match(tokens=seq("A"))
    async with service.unchanged():
        with refused(Reason.LIMIT_EXCEEDED) as told:
            await caller.exchange(caller.batch(*[one] * (LIMITS.operations + 1)))
    assert told.fields == ("operations",)
    caller.connect()
    await caller.say(*[one] * LIMITS.operations)


class Pause:
    """Holds every Batch of several operations after its first one, until `over` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over = asyncio.Event()
        monkeypatch.setattr("radixd.server.rpc.batch_run.YIELD_SECONDS", -1.0)  # no operation is short enough
        monkeypatch.setattr("radixd.server.rpc.dispatch.sleep", self._wait)

    async def _wait(self, _: float) -> None:
        await self.over.wait()
        await asyncio.sleep(0)


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Pause:
    return Pause(monkeypatch)


def long_batch(caller: Caller, **fields: int) -> pb.Batch:
    return caller.batch(*[pb.Acquire(tokens=seq("A"), wait=True)] * 100, **fields)


def served(service: Service, caller: Caller) -> ServedSession:
    return service.registry.find(caller.id, caller.opened.secret, caller.opened.epoch)


async def begun(service: Service, caller: Caller) -> None:
    """Waits until the caller's Batch is under way."""
    session = served(service, caller)
    while session.running is None:  # noqa: ASYNC110  # the server shares the loop: each turn brings it further
        await asyncio.sleep(0)


def leases(service: Service, caller: Caller) -> int:
    return len(service.pool.cache.session(caller.id).leases)


async def test_a_cancelled_stream_leaves_its_batch_to_run_to_the_end(
    service: Service, caller: Caller, pause: Pause
) -> None:
    batch = long_batch(caller)
    stream = caller.connect()
    await stream.write(batch)
    await begun(service, caller)
    stream.cancel()
    while served(service, caller).stream is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert leases(service, caller) == 1
    pause.over.set()
    caller.connect()
    reply = await caller.exchange(batch)
    assert leases(service, caller) == len(reply.results) == 100


async def test_a_retry_joins_the_running_batch_and_the_next_one_waits_for_it(
    service: Service, caller: Caller, pause: Pause
) -> None:
    batch = long_batch(caller)
    older = caller.connect()
    await older.write(batch)
    await begun(service, caller)
    newer = caller.connect()
    await newer.write(batch)
    await newer.write(caller.batch(pb.Acquire(tokens=seq("B"), wait=True), seq=2))
    with refused(Reason.FENCED):
        await end_of(older)
    assert leases(service, caller) == 1
    pause.over.set()
    assert len((await caller.read(1)).results) == 100
    assert len((await caller.read(2)).results) == 1
    assert leases(service, caller) == 101


async def test_a_unary_retry_of_a_cancelled_call_acts_once(service: Service, caller: Caller) -> None:
    request = pb.AcquireRequest(call=caller.call(), acquire=pb.Acquire(tokens=seq("AB")))
    cancelled = service.cache.Acquire(request)
    await asyncio.sleep(0)
    cancelled.cancel()
    answered = await service.cache.Acquire(request)
    assert service.pool.cache.session(caller.id).leases.keys() == {answered.result.lease_id}


async def test_a_session_that_ends_under_a_running_batch_ends_it_and_all_that_wait(
    service: Service, caller: Caller, pause: Pause
) -> None:
    answered = pb.MatchRequest(call=caller.call(), match=pb.Match(tokens=seq("A")))
    await service.cache.Match(answered)
    stream = caller.connect()
    await stream.write(long_batch(caller, seq=2))
    await begun(service, caller)
    waiting = [service.cache.Match(answered), service.cache.Match(pb.MatchRequest(call=caller.call(seq=3)))]
    await service.state()  # by then the server has read both
    await caller.close()
    pause.over.set()
    with refused(Reason.NO_SESSION):
        await end_of(stream)
    for call in waiting:
        with refused(Reason.NO_SESSION):
            await call
    assert (await service.state())[0][0].sessions == 0


async def test_other_sessions_are_served_between_the_operations_of_a_long_batch(
    service: Service, caller: Caller, other: Caller, pause: Pause
) -> None:
    stream = caller.connect()
    await stream.write(long_batch(caller))
    await begun(service, caller)
    await service.sessions.KeepAlive(session_pb2.KeepAliveRequest(**other.identity()))
    assert leases(service, caller) == 1
    pause.over.set()
    await caller.read(1)
