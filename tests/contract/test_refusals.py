"""Every documented reason, provoked over the wire: it says what it must, and has changed nothing."""

from collections.abc import Awaitable, Callable

import pytest

from radixd.server.cache.refusal import Reason
from radixd.server.gate import State
from radixd.server.rpc.status import CODES
from radixd.server.sessions.fault import lose_pool, stop_pool
from radixd.v1 import admin_pb2, errors_pb2, session_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, end_of, opened_by, opening, operation, ref
from tests.contract.refusals import Told, refused, result_refused
from tests.contract.service import PAGES, Service
from tests.sequences import PAGE, ramp, seq

Provoke = Callable[[Service, Caller], Awaitable[Told]]

PROVOKED: dict[Reason, Provoke] = {}


def provokes(reason: Reason) -> Callable[[Provoke], Provoke]:
    def register(provoke: Provoke) -> Provoke:
        PROVOKED[reason] = provoke
        return provoke

    return register


async def told_of(service: Service, caller: Caller, reason: Reason, verb: object) -> Told:
    """The one operation of a Batch is refused for `reason`, and the Batch itself is answered."""
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(verb))
    return result_refused(reply.results[0].status, reason)


@provokes(Reason.BAD_FIELD)
async def bad_field(service: Service, caller: Caller) -> Told:
    told = await told_of(service, caller, Reason.BAD_FIELD, pb.Acquire(tokens=b"abc"))
    assert told.fields == ("tokens",)
    return told


@provokes(Reason.NO_SESSION)
async def no_session(service: Service, caller: Caller) -> Told:
    async with service.unchanged():
        with refused(Reason.NO_SESSION) as told:
            await caller.exchange(caller.batch(session_id=999))
    return told


@provokes(Reason.NO_LEASE)
async def no_lease(service: Service, caller: Caller) -> Told:
    ended = await caller.publish(seq("AB"))
    await told_of(service, caller, Reason.NO_LEASE, pb.Release(lease=ref(2**64 - 1)))
    return await told_of(service, caller, Reason.NO_LEASE, pb.Release(lease=ref(ended)))


@provokes(Reason.NO_POOL)
async def no_pool(service: Service, caller: Caller) -> Told:
    with refused(Reason.NO_POOL):
        await service.admin.Flush(admin_pb2.FlushRequest(pool="elsewhere"))
    async with service.unchanged():
        with refused(Reason.NO_POOL) as told:
            await service.sessions.OpenSession(opening(pool="elsewhere"))
    assert told.facts == {"pools": "main"}
    return told


@provokes(Reason.NOT_YOURS)
async def not_yours(service: Service, caller: Caller) -> Told:
    other = await Caller.open(service)
    theirs = (await other.acquire(seq("AB"))).lease_id
    return await told_of(service, caller, Reason.NOT_YOURS, pb.Free(lease=ref(theirs)))


@provokes(Reason.BAD_SECRET)
async def bad_secret(service: Service, caller: Caller) -> Told:
    for secret in (b"", b"x" * 16, caller.opened.secret + b"x"):
        async with service.unchanged():
            with refused(Reason.BAD_SECRET) as told:
                await service.sessions.KeepAlive(session_pb2.KeepAliveRequest(**caller.identity(secret=secret)))
    return told


@provokes(Reason.FENCED)
async def fenced(service: Service, caller: Caller) -> Told:
    older = caller.connect()
    await caller.say()
    caller.connect()
    await caller.say()
    with refused(Reason.FENCED) as told:
        await end_of(older)
    await caller.say()
    return told


@provokes(Reason.STALE_EPOCH)
async def stale_epoch(service: Service, caller: Caller) -> Told:
    async with service.unchanged():
        with refused(Reason.STALE_EPOCH) as told:
            await caller.exchange(caller.batch(session_id=999, epoch=1))
        with refused(Reason.STALE_EPOCH):
            await caller.close(epoch=1)
    return told


@provokes(Reason.GEOMETRY_MISMATCH)
async def geometry_mismatch(service: Service, caller: Caller) -> Told:
    async with service.unchanged():
        with refused(Reason.GEOMETRY_MISMATCH):
            await service.sessions.OpenSession(opening(speculative="SPECULATIVE_MODE_BIGRAM"))
        with refused(Reason.GEOMETRY_MISMATCH) as told:
            await service.sessions.OpenSession(opening(geometry_fingerprint=bytes(16)))
    assert told.facts is not None
    assert told.facts["pool_geometry_fingerprint"] == service.pool.geometry.fingerprint.hex()
    return told


@provokes(Reason.DOUBLE_FREE)
async def double_free(service: Service, caller: Caller) -> Told:
    lease = (await caller.acquire(ramp(100))).lease_id
    freed = await caller.say(pb.Free(lease=ref(lease), from_length=64))
    assert freed.results[0].free.freed_pages == 1
    return await told_of(service, caller, Reason.DOUBLE_FREE, pb.Free(lease=ref(lease), from_length=99))


@provokes(Reason.PUBLISHED)
async def published(service: Service, caller: Caller) -> Told:
    lease = (await caller.acquire(seq("ABC"))).lease_id
    await caller.say(pb.Insert(lease=ref(lease), written=128))
    return await told_of(service, caller, Reason.PUBLISHED, pb.Free(lease=ref(lease), from_length=64))


@provokes(Reason.NOT_ACTIVE)
async def not_active(service: Service, caller: Caller) -> Told:
    lease = (await caller.acquire(seq("A"), wait=True)).lease_id
    told = await told_of(service, caller, Reason.NOT_ACTIVE, pb.Insert(lease=ref(lease), written=64))
    assert told.facts == {"state": "waiting"}
    await caller.say(pb.Acquire(lease_id=lease))
    told = await told_of(service, caller, Reason.NOT_ACTIVE, pb.Acquire(lease_id=lease))
    assert told.facts == {"state": "active"}
    return told


def move(lease: int, source: int, destination: int) -> pb.Move:
    return pb.Move(
        lease=ref(lease), sources=source.to_bytes(4, "little"), destinations=destination.to_bytes(4, "little")
    )


@provokes(Reason.IN_FLIGHT)
async def in_flight(service: Service, caller: Caller) -> Told:
    acquired = await caller.acquire(seq("AB"))
    page = int.from_bytes(acquired.pages[:4], "little")
    await caller.say(move(acquired.lease_id, page * PAGE, page * PAGE + 5))
    told = await told_of(service, caller, Reason.IN_FLIGHT, pb.Insert(lease=ref(acquired.lease_id), written=64))
    service.pool.end_move()
    return told


@provokes(Reason.DEPENDENCY_FAILED)
async def dependency_failed(service: Service, caller: Caller) -> Told:
    too_long = pb.Acquire(tokens=ramp((PAGES + 1) * PAGE))
    async with service.unchanged():
        batch = caller.batch(too_long, pb.Insert(lease=opened_by(0), written=64))
        reply = await caller.exchange(batch)
    return result_refused(reply.results[1].status, Reason.DEPENDENCY_FAILED)


@provokes(Reason.SEQ_REUSED)
async def seq_reused(service: Service, caller: Caller) -> Told:
    await caller.acquire(seq("AB"))
    async with service.unchanged():
        with refused(Reason.SEQ_REUSED) as told:
            await caller.exchange(caller.batch(pb.Acquire(tokens=seq("AC")), seq=caller.seq))
    return told


@provokes(Reason.SEQ_EXPIRED)
async def seq_expired(service: Service, caller: Caller) -> Told:
    first = caller.batch(pb.Acquire(tokens=seq("AB")))
    await caller.exchange(first)
    await caller.say(ack=1)
    async with service.unchanged():
        with refused(Reason.SEQ_EXPIRED) as told:
            await caller.exchange(first)
    return told


@provokes(Reason.NEVER_FITS)
async def never_fits(service: Service, caller: Caller) -> Told:
    await caller.say(pb.Acquire(tokens=ramp(PAGES * PAGE)), pb.Release(lease=opened_by(0)))
    told = await told_of(service, caller, Reason.NEVER_FITS, pb.Acquire(tokens=ramp(PAGES * PAGE + 1)))
    assert told.facts is not None
    assert (told.facts["max_pages"], told.facts["max_tokens"]) == (str(PAGES), str(PAGES * PAGE))
    assert told.retry_seconds is None
    return told


@provokes(Reason.LIMIT_EXCEEDED)
async def limit_exceeded(service: Service, caller: Caller) -> Told:
    limit = caller.opened.limits.tokens
    told = await told_of(service, caller, Reason.LIMIT_EXCEEDED, pb.Match(tokens=ramp(limit + 1)))
    assert (told.facts, told.fields) == ({"limit": str(limit), "value": str(limit + 1)}, ("tokens",))
    return told


@provokes(Reason.NO_PAGES)
async def no_pages(service: Service, caller: Caller) -> Told:
    await caller.acquire(ramp((PAGES - 1) * PAGE))
    told = await told_of(service, caller, Reason.NO_PAGES, pb.Acquire(tokens=seq("AB")))
    assert told.facts is not None
    assert {"needed", "free", "evictable", "retired", "reserved"} <= told.facts.keys()
    assert told.retry_seconds is not None
    return told


@provokes(Reason.SKIPPED)
async def skipped(service: Service, caller: Caller) -> Told:
    await caller.acquire(ramp((PAGES - 4) * PAGE))
    long, short = pb.Acquire(tokens=seq("ABCDEF")), pb.Acquire(tokens=seq("A"))
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(operation(long, group=7), operation(short, group=7)))
    result_refused(reply.results[0].status, Reason.NO_PAGES)
    return result_refused(reply.results[1].status, Reason.SKIPPED)


async def shut(service: Service, caller: Caller, state: State) -> Told:
    """Nothing new is taken in that phase."""
    reason = Reason(state.value)
    service.gate.state = state
    async with service.unchanged():
        with refused(reason):
            await service.sessions.OpenSession(opening())
        with refused(reason):
            await service.admin.Evict(admin_pb2.EvictRequest(pages=1))
        with refused(reason):
            await service.cache.Match(pb.MatchRequest(call=caller.call(), match=pb.Match(tokens=seq("A"))))
        with refused(reason) as told:
            await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A"))))
    assert told.retry_seconds is not None
    # It was not recorded: the same Batch is carried out once the gate opens.
    service.gate.state = State.SERVING
    caller.connect()
    await caller.acquire(seq("A"))
    return told


@provokes(Reason.STARTING)
async def starting(service: Service, caller: Caller) -> Told:
    return await shut(service, caller, State.STARTING)


@provokes(Reason.DRAINING)
async def draining(service: Service, caller: Caller) -> Told:
    return await shut(service, caller, State.DRAINING)


@provokes(Reason.BUG)
async def bug(service: Service, caller: Caller) -> Told:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.pool.cache, "acquire", fail)
        told = await told_of(service, caller, Reason.BUG, pb.Acquire(tokens=seq("A")))
    assert told.facts is not None
    assert told.facts["incident"]
    await caller.acquire(seq("A"))  # it serves on
    return told


@provokes(Reason.BROKEN_INVARIANT)
async def broken_invariant(service: Service, caller: Caller) -> Told:
    other = await Caller.open(service)
    await other.say()
    service.pool.cache.device.evictable += 1
    checked = await service.admin.Check(admin_pb2.CheckRequest())
    assert checked.violations
    with refused(Reason.BROKEN_INVARIANT):
        await other.exchange(other.batch(pb.Match(tokens=seq("A"))))
    with refused(Reason.BROKEN_INVARIANT):
        await service.sessions.OpenSession(opening())
    with refused(Reason.BROKEN_INVARIANT):
        await service.admin.Flush(admin_pb2.FlushRequest())
    with refused(Reason.BROKEN_INVARIANT) as told:
        await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A"))))
    return told


@provokes(Reason.DEVICE_LOST)
async def device_lost(service: Service, caller: Caller) -> Told:
    lose_pool(service.pool, "GPU-1 has fallen off the bus")
    stop_pool(service.pool, "the first cause stays")
    with refused(Reason.DEVICE_LOST):
        await service.sessions.OpenSession(opening())
    with refused(Reason.DEVICE_LOST) as told:
        await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A"))))
    assert "GPU-1 has fallen off the bus" in told.message
    return told


@pytest.mark.parametrize("reason", Reason)
async def test_every_reason_is_told_and_changes_nothing(reason: Reason, service: Service, caller: Caller) -> None:
    told = await PROVOKED[reason](service, caller)
    assert told.message


def test_the_contract_the_core_and_the_codes_name_the_same_reasons() -> None:
    documented = set(errors_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
    assert documented == set(Reason) == set(CODES) == set(PROVOKED)
