"""What a message may say: each field's rule, each limit, and an answer that names the field."""

import math

import pytest
from google.protobuf.message import Message

from radixd.server.cache.refusal import Reason
from radixd.v1 import admin_pb2, session_pb2, types_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, opening, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import LIMITS, LIVENESS, PAGES, Service
from tests.sequences import PAGE, ramp, seq

A = seq("A")
LEASE = ref(1)  # active, two pages
WAITING = 2

MALFORMED = [
    (pb.Match(tokens=b"12345"), "tokens"),
    (pb.Match(tokens=A, lease=LEASE), "lease"),
    (pb.Match(namespace=types_pb2.Namespace(), lease=LEASE), "lease"),
    (pb.Match(lease=pb.LeaseRef()), "lease"),
    (pb.Match(lease=pb.LeaseRef(opened_by=0)), "lease.opened_by"),
    (pb.Acquire(tokens=A, priority=101), "priority"),
    (pb.Acquire(tokens=A, retain_seconds=0), "retain_seconds"),
    (pb.Acquire(tokens=A, retain_seconds=-1), "retain_seconds"),
    (pb.Acquire(tokens=A, retain_seconds=math.nan), "retain_seconds"),
    (pb.Acquire(tokens=A, retain_seconds=math.inf, wait=True), "retain_seconds"),
    (pb.Acquire(tokens=A, wait=True, allocate_to=64), "allocate_to"),
    (pb.Acquire(tokens=A, wait=True, reserve_to=64), "reserve_to"),
    (pb.Acquire(tokens=A, wait=True, max_tokens=64), "max_tokens"),
    (pb.Acquire(tokens=A, lease_id=WAITING), "lease_id"),
    (pb.Acquire(wait=True, lease_id=WAITING), "lease_id"),
    (pb.Acquire(priority=1, lease_id=WAITING), "lease_id"),
    (pb.Allocate(allocate_to=64), "lease"),
    (pb.Allocate(lease=LEASE, tokens=b"1"), "tokens"),
    (pb.Insert(lease=LEASE, written=129), "written"),
    (pb.Insert(lease=LEASE, written=64, after_step=1), "after_step"),
    (pb.Release(lease=LEASE, publish_to=129), "publish_to"),
    (pb.Release(lease=LEASE, publish_to=64, after_step=1), "after_step"),
    (pb.Move(lease=LEASE, sources=b"123"), "sources"),
    (pb.Move(lease=LEASE, sources=b"1234", destinations=b"12345678"), "destinations"),
    (pb.Move(lease=LEASE, sources=b"\0\0\0\0", destinations=b"\0\0\0\0"), "sources"),
    (pb.Operation(), "verb"),
]

TOO_LARGE = [
    (pb.Match(tokens=ramp(LIMITS.tokens + 1)), "tokens", LIMITS.tokens),
    (pb.Acquire(tokens=ramp(LIMITS.tokens + 1)), "tokens", LIMITS.tokens),
    (pb.Acquire(tokens=ramp(LIMITS.tokens + 1), wait=True), "tokens", LIMITS.tokens),
    (pb.Allocate(lease=LEASE, tokens=ramp(LIMITS.tokens)), "tokens", LIMITS.tokens),
    (
        pb.Match(namespace=types_pb2.Namespace(extra_key=bytes(LIMITS.namespace_bytes + 1))),
        "namespace.extra_key",
        LIMITS.namespace_bytes,
    ),
    (
        pb.Acquire(namespace=types_pb2.Namespace(cache_salt=bytes(LIMITS.namespace_bytes + 1))),
        "namespace.cache_salt",
        LIMITS.namespace_bytes,
    ),
    (
        pb.Move(lease=LEASE, sources=bytes(4 * LIMITS.move_pairs + 4), destinations=bytes(4 * LIMITS.move_pairs + 4)),
        "sources",
        LIMITS.move_pairs,
    ),
]


@pytest.fixture
async def caller(caller: Caller) -> Caller:
    """With an active lease of two pages and a waiting one."""
    assert (await caller.acquire(seq("AB"))).lease_id == LEASE.id
    assert (await caller.acquire(seq("C"), wait=True)).lease_id == WAITING
    return caller


@pytest.mark.parametrize(("verb", "field"), MALFORMED)
async def test_a_malformed_field_is_named(service: Service, caller: Caller, verb: Message, field: str) -> None:
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(verb))
    told = result_refused(reply.results[0].status, Reason.BAD_FIELD)
    assert told.fields == (field,)
    assert told.message.startswith(field)


@pytest.mark.parametrize(("verb", "field", "limit"), TOO_LARGE)
async def test_what_is_too_large_names_the_limit(
    service: Service, caller: Caller, verb: Message, field: str, limit: int
) -> None:
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(verb))
    told = result_refused(reply.results[0].status, Reason.LIMIT_EXCEEDED)
    assert told.fields == (field,)
    assert told.facts is not None
    assert told.facts["limit"] == str(limit)
    assert str(limit) in told.message


async def test_the_largest_allowed_is_allowed(service: Service, caller: Caller) -> None:
    space = types_pb2.Namespace(extra_key=bytes(LIMITS.namespace_bytes), cache_salt=b"x" * LIMITS.namespace_bytes)
    await caller.say(
        pb.Match(namespace=space, tokens=ramp(LIMITS.tokens)),
        pb.Acquire(tokens=A, priority=100, retain_seconds=1e-3),
        pb.Acquire(tokens=A, priority=0, retain_seconds=1e9, max_tokens=0, allocate_to=0, reserve_to=0),
    )


async def test_a_session_has_so_many_leases_and_no_more(service: Service, caller: Caller) -> None:
    wait = pb.Acquire(tokens=A, wait=True)
    await caller.say(*[wait] * (LIMITS.leases - 2))
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(wait, pb.Acquire(tokens=A)))
    for result in reply.results:
        told = result_refused(result.status, Reason.LIMIT_EXCEEDED)
        assert told.fields == ("leases",)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"nonce": b""}, "nonce"),
        ({"nonce": bytes(17)}, "nonce"),
        ({"model": b""}, "model"),
        ({"model": bytes(65)}, "model"),
        ({"geometry_fingerprint": bytes(15)}, "geometry_fingerprint"),
        ({"speculative": 9}, "speculative"),
        ({"dedup": 9}, "dedup"),
    ],
)
async def test_a_malformed_opening_opens_nothing(service: Service, fields: dict[str, object], field: str) -> None:
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await service.sessions.OpenSession(opening(**fields))
    assert told.fields == (field,)


async def test_a_client_name_has_a_limit_in_bytes(service: Service) -> None:
    with refused(Reason.LIMIT_EXCEEDED) as told:
        await service.sessions.OpenSession(opening(client_name="é" * 17))
    assert told.facts == {"limit": "32", "value": "34"}
    await service.sessions.OpenSession(opening(client_name="é" * 16))


async def test_opening_states_the_pool_the_limits_and_the_liveness(service: Service) -> None:
    opened = await service.sessions.OpenSession(opening())
    assert (opened.pool, opened.page_size, opened.total_pages) == ("main", PAGE, PAGES)
    assert (opened.speculative, opened.dedup) == (types_pb2.SPECULATIVE_MODE_NONE, types_pb2.DEDUP_KEEP)
    assert opened.geometry_fingerprint == service.pool.geometry.fingerprint
    assert (len(opened.secret), opened.generation, opened.contract_revision) == (16, 1, 1)
    assert opened.server_version
    assert "move" in opened.capabilities
    for field in types_pb2.Limits.DESCRIPTOR.fields:
        assert getattr(opened.limits, field.name) == getattr(LIMITS, field.name)
    for field in session_pb2.Liveness.DESCRIPTOR.fields:
        assert getattr(opened.liveness, field.name) == getattr(LIVENESS, field.name)


@pytest.mark.parametrize("method", ["Cache/Acquire", "Sessions/OpenSession", "Admin/Evict"])
async def test_bytes_that_are_no_message_are_a_bad_field(
    service: Service, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's fault, so no error of the daemon's in its log."""
    with refused(Reason.BAD_FIELD):
        await service.channel.unary_unary(f"/radixd.v1.{method}")(b"\xff" * 9)
    assert not caplog.records


async def test_a_batch_that_is_none_ends_its_stream(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    stream = service.channel.stream_stream("/radixd.v1.Cache/Schedule")()
    await stream.write(b"\xff" * 9)
    with refused(Reason.BAD_FIELD):
        await stream.read()
    assert not caplog.records


async def test_a_name_that_is_told_back_is_told_in_short(service: Service, caller: Caller) -> None:
    """gRPC drops a status that is longer than its limit for headers."""
    name = "x" * 100_000
    with refused(Reason.NO_POOL):
        await service.sessions.OpenSession(opening(pool=name))
    with refused(Reason.NO_POOL):
        await service.admin.Flush(admin_pb2.FlushRequest(pool=name))
    with refused(Reason.BAD_FIELD):
        await service.admin.Reap(admin_pb2.ReapRequest(session_id=caller.id, client_name=name))
