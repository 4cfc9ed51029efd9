"""What a Batch of operations does, and what its reply says."""

from dataclasses import replace

import pytest

from radixd.server.cache.refusal import Reason
from radixd.v1 import cache_pb2 as pb
from radixd.v1 import types_pb2
from tests.contract.caller import Caller, opened_by, operation, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import LIMITS, PAGES, Service
from tests.sequences import PAGE, ramp, seq


async def test_a_request_from_acquire_to_release(service: Service, caller: Caller) -> None:
    await caller.publish(seq("AB"))
    acquired = await caller.acquire(seq("ABC", tail=30))
    assert (acquired.device_tokens, acquired.allocated, len(acquired.pages)) == (128, 192, 3 * 4)
    lease = ref(acquired.lease_id)
    grown, inserted = (
        await caller.say(
            pb.Allocate(lease=lease, allocate_to=260, tokens=ramp(40, 7)), pb.Insert(lease=lease, written=192)
        )
    ).results
    assert (grown.allocate.allocated, len(grown.allocate.pages)) == (320, 2 * 4)
    assert (inserted.insert.published, inserted.insert.pending) == (192, False)
    freed, released = (
        await caller.say(pb.Free(lease=lease, from_length=200), pb.Release(lease=lease, publish_to=192))
    ).results
    assert (freed.free.allocated, freed.free.freed_pages) == (256, 1)
    assert (released.release.published, released.release.freed_pages) == (192, 1)
    matched = (await caller.say(pb.Match(tokens=seq("ABC", tail=30) + ramp(40, 7)))).results[0].match
    assert (matched.device_tokens, matched.unlocked_pages) == (192, 3)
    assert matched.speculative == types_pb2.SPECULATIVE_MODE_NONE


async def test_a_miss_is_ok_with_length_zero(caller: Caller) -> None:
    reply = await caller.say(pb.Match(tokens=seq("A")), pb.Match())
    assert [result.match.device_tokens for result in reply.results] == [0, 0]
    assert all(result.WhichOneof("result") == "match" for result in reply.results)


async def test_a_result_of_zeros_is_a_result(caller: Caller) -> None:
    lease = ref((await caller.acquire(seq("A"))).lease_id)
    verbs = (pb.Insert(lease=lease), pb.Free(lease=lease), pb.Release(lease=lease))
    reply = await caller.say(*verbs)
    assert [result.WhichOneof("result") for result in reply.results] == ["insert", "free", "release"]


async def test_a_waiting_lease_is_matched_and_activated_by_its_id(caller: Caller) -> None:
    await caller.publish(seq("AB"))
    opened = await caller.acquire(seq("ABC"), wait=True)
    assert (opened.allocated, opened.pages) == (0, b"")
    reply = await caller.say(pb.Match(lease=ref(opened.lease_id)), pb.Acquire(lease_id=opened.lease_id))
    assert reply.results[0].match.device_tokens == 128
    assert reply.results[1].acquire.lease_id == opened.lease_id
    assert reply.results[1].acquire.device_tokens == 128


async def test_operations_without_a_group_are_independent(service: Service, caller: Caller) -> None:
    await caller.acquire(ramp((PAGES - 4) * PAGE))
    long, short = pb.Acquire(tokens=seq("ABCDEF")), pb.Acquire(tokens=seq("X"))
    reply = await caller.exchange(caller.batch(long, short))
    result_refused(reply.results[0].status, Reason.NO_PAGES)
    assert not reply.results[1].HasField("status")


async def test_only_the_group_that_met_no_pages_is_skipped(service: Service, caller: Caller) -> None:
    await caller.acquire(ramp((PAGES - 4) * PAGE))
    long, short = pb.Acquire(tokens=seq("ABCDEF")), pb.Acquire(tokens=seq("X"))
    never, dependent = pb.Acquire(tokens=ramp((PAGES + 1) * PAGE)), pb.Insert(lease=opened_by(3), written=64)
    batch = caller.batch(
        operation(never, group=1),  # no reason for the rest of its group to wait
        operation(short, group=1),
        operation(long, group=2),
        operation(short, group=2),
        operation(dependent, group=3),
        operation(short),
    )
    reply = await caller.exchange(batch)
    result_refused(reply.results[0].status, Reason.NEVER_FITS)
    assert not reply.results[1].HasField("status")
    result_refused(reply.results[2].status, Reason.NO_PAGES)
    result_refused(reply.results[3].status, Reason.SKIPPED)
    result_refused(reply.results[4].status, Reason.DEPENDENCY_FAILED)
    assert not reply.results[5].HasField("status")


async def test_a_lease_can_be_used_in_the_batch_that_opens_it(caller: Caller) -> None:
    reply = await caller.say(
        pb.Match(tokens=seq("AB")),
        pb.Acquire(tokens=seq("AB")),
        pb.Insert(lease=opened_by(1), written=128),
        pb.Match(lease=opened_by(1), max_tokens=128),
        pb.Release(lease=opened_by(1)),
    )
    assert reply.results[2].insert.published == 128
    assert reply.results[3].match.device_tokens == 128


@pytest.mark.parametrize("index", [0, 1, 2, 9])
async def test_opened_by_names_an_earlier_acquire_of_the_same_batch(
    service: Service, caller: Caller, index: int
) -> None:
    await caller.acquire(seq("A"))
    async with service.unchanged():
        batch = caller.batch(pb.Match(tokens=seq("A")), pb.Free(lease=opened_by(index)), pb.Match(tokens=seq("A")))
        told = result_refused((await caller.exchange(batch)).results[1].status, Reason.BAD_FIELD)
    assert told.fields == ("lease.opened_by",)


async def test_a_thousand_operations_are_answered_in_order(service: Service, caller: Caller) -> None:
    verbs = [pb.Match(tokens=seq("A")), pb.Free(lease=ref(10**6)), pb.Acquire(tokens=seq("A"), wait=True), pb.Match()]
    reply = await caller.exchange(caller.batch(*verbs * 200, *[pb.Match(peek=True)] * 200))
    assert len(reply.results) == LIMITS.operations
    assert [result.status.code for result in reply.results] == [0, 5, 0, 0] * 200 + [0] * 200
    ids = [result.acquire.lease_id for result in reply.results if result.HasField("acquire")]
    assert ids == sorted(set(ids))
    assert len(ids) == 200


async def test_several_batches_in_flight_are_answered_in_order(caller: Caller) -> None:
    stream = caller.connect()
    for number in range(1, 21):
        await stream.write(caller.batch(pb.Match(tokens=seq("A")), seq=number))
    for number in range(1, 21):
        assert (await caller.read(number)).seq == number


async def test_a_reply_carries_the_pool_as_it_is(service: Service, caller: Caller, other: Caller) -> None:
    await other.acquire(seq("X"), reserve_to=3 * PAGE)
    reply = await caller.say(pb.Acquire(tokens=seq("AB"), reserve_to=4 * PAGE))
    ledger = reply.device
    assert (ledger.total, ledger.free, ledger.leased) == (PAGES, PAGES - 3, 3)
    assert (ledger.reserved_mine, ledger.reserved_others) == (2, 2)
    assert ledger.available == PAGES - 3 - 2
    assert (reply.generation, reply.epoch) == (1, caller.opened.epoch)


async def test_an_insert_that_waits_for_its_step_is_told_of_in_a_later_reply(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(seq("AB"))).lease_id
    caller.launched = 1
    reply = await caller.say(pb.Insert(lease=ref(lease), written=128, after_step=1))
    assert (reply.results[0].insert.published, reply.results[0].insert.pending) == (0, True)
    assert (await caller.say(pb.Match(tokens=seq("ABC")))).results[0].match.device_tokens == 0
    caller.completed = 1
    reply = await caller.say(pb.Match(tokens=seq("ABC")))
    assert reply.results[0].match.device_tokens == 128
    assert [(told.lease_id, told.published) for told in reply.publications] == [(lease, 128)]
    assert not (await caller.say()).publications


async def test_a_refused_unary_call_leaves_publications_to_the_next_reply(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(seq("AB"))).lease_id
    caller.launched = 1
    await caller.say(pb.Insert(lease=ref(lease), written=128, after_step=1))
    caller.completed = 1
    with refused(Reason.NO_LEASE):
        await service.cache.Free(pb.FreeRequest(call=caller.call(), free=pb.Free(lease=ref(999))))
    caller.seq += 1
    assert [told.published for told in (await caller.say()).publications] == [128]


async def test_dedup_patch_sends_the_canonical_pages(service: Service) -> None:
    caller = await Caller.open(service, dedup=types_pb2.DEDUP_PATCH)
    first, second = await caller.acquire(seq("AB")), await caller.acquire(seq("AB"))
    verbs = [pb.Insert(lease=ref(lease.lease_id), written=128) for lease in (first, second)]
    reply = await caller.say(*verbs)
    assert not reply.results[0].insert.patches
    [patch] = reply.results[1].insert.patches
    assert (patch.first_page, patch.pages) == (0, first.pages)
    assert reply.device.leased == 2
    assert (await caller.say(ack=caller.seq)).device.leased == 0


def slots(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


@pytest.mark.parametrize("error", ["", "the device is on fire"])
async def test_a_copy_is_over_when_a_later_reply_says_so(service: Service, caller: Caller, error: str) -> None:
    acquired = await caller.acquire(seq("AB"))
    first = int.from_bytes(acquired.pages[:4], "little") * PAGE
    move = pb.Move(lease=ref(acquired.lease_id), sources=slots(first, first + 1), destinations=slots(first + 1, first))
    reply = await caller.say(move)
    assert not reply.finished_copies
    assert reply.device.in_copy == 1
    [(plan, _)] = service.pool.moves
    assert (plan.sources.tolist(), plan.destinations.tolist()) == ([first, first + 1], [first + 1, first])
    service.pool.end_move(error)
    reply = await caller.say()
    [copy] = reply.finished_copies
    assert copy.copy_id == plan.copy_id
    assert reply.device.in_copy == 0
    if error:
        assert error in result_refused(copy.status, Reason.BUG).message
    else:
        assert not copy.HasField("status")


async def test_prefixes_of_different_namespaces_never_meet(service: Service, caller: Caller) -> None:
    spaces = [
        pb.Acquire(tokens=seq("AB")).namespace,
        types_pb2.Namespace(extra_key=b"ab", cache_salt=b"c"),
        types_pb2.Namespace(extra_key=b"a", cache_salt=b"bc"),
        types_pb2.Namespace(extra_key=b"abc"),
        types_pb2.Namespace(cache_salt=b"abc"),
        types_pb2.Namespace(extra_key=b"a\0", cache_salt=b"|" * LIMITS.namespace_bytes),
    ]
    for space in spaces:
        match = pb.Match(namespace=space, tokens=seq("ABC"))
        first, _, _, second = (
            await caller.say(
                match,
                pb.Acquire(namespace=space, tokens=seq("AB")),
                pb.Release(lease=opened_by(1), publish_to=128),
                match,
            )
        ).results
        assert (first.match.device_tokens, second.match.device_tokens) == (0, 128)
    stranger = await Caller.open(service, model=b"model-2")
    reply = await stranger.say(*[pb.Match(namespace=space, tokens=seq("ABC")) for space in spaces])
    assert [result.match.device_tokens for result in reply.results] == [0] * len(spaces)


async def test_a_reply_never_grows_beyond_a_message(service: Service) -> None:
    """A small Batch asked for page tables of many times the largest message, whose reply could never be sent."""
    service.registry.limits = replace(LIMITS, message_bytes=400)
    caller = await Caller.open(service)
    waiting = (await caller.acquire(seq("ABCDEFGH"), wait=True)).lease_id
    activate = pb.Acquire(lease_id=waiting)
    retract = pb.Release(lease=ref(waiting), keep=True)
    reply = await caller.exchange(caller.batch(*[activate, retract] * 10))
    assert sum(result.ByteSize() for result in reply.results if not result.HasField("status")) <= 400
    assert not any(result.HasField("status") for result in reply.results[:6])
    result_refused(reply.results[-2].status, Reason.LIMIT_EXCEEDED)
    await caller.say(activate)
