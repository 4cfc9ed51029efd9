"""The unary verbs are Batches of one: the same results, seqs and steps."""

import grpc
import pytest

from radixd.server.cache.refusal import Reason
from radixd.v1 import admin_pb2, session_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, opened_by, ref
from tests.contract.refusals import refused
from tests.contract.service import PAGES, Service
from tests.sequences import PAGE, seq

METHODS = [
    f"/{described.full_name}/{method}"
    for module in (pb, session_pb2, admin_pb2)
    for described in module.DESCRIPTOR.services_by_name.values()
    for method in described.methods_by_name
]


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_of_the_contract_is_served(service: Service, method: str) -> None:
    """An empty message is answered, or refused by radixd itself."""
    call = service.channel.unary_unary(method)(b"")
    code = await call.code()
    details = dict(await call.trailing_metadata())
    assert code is grpc.StatusCode.OK or "grpc-status-details-bin" in details


async def test_a_request_from_acquire_to_release(service: Service, caller: Caller) -> None:
    cache = service.cache

    def call() -> pb.Call:
        caller.seq += 1
        return caller.call(seq=caller.seq, ack=caller.seq - 1)

    acquired = await cache.Acquire(pb.AcquireRequest(call=call(), acquire=pb.Acquire(tokens=seq("AB"))))
    lease = ref(acquired.result.lease_id)
    assert (acquired.reply.seq, acquired.reply.device.leased, len(acquired.reply.results)) == (1, 2, 0)
    grown = await cache.Allocate(pb.AllocateRequest(call=call(), allocate=pb.Allocate(lease=lease, allocate_to=256)))
    assert (grown.result.allocated, len(grown.result.pages)) == (256, 8)
    slot = int.from_bytes(acquired.result.pages[:4], "little") * PAGE
    move = pb.Move(lease=lease, sources=slot.to_bytes(4, "little"), destinations=(slot + 1).to_bytes(4, "little"))
    moved = await cache.Move(pb.MoveRequest(call=call(), move=move))
    service.pool.end_move()
    inserted = await cache.Insert(pb.InsertRequest(call=call(), insert=pb.Insert(lease=lease, written=128)))
    assert inserted.result.published == 128
    assert [copy.copy_id for copy in inserted.reply.finished_copies] == [moved.result.copy_id]
    freed = await cache.Free(pb.FreeRequest(call=call(), free=pb.Free(lease=lease, from_length=128)))
    assert (freed.result.allocated, freed.result.freed_pages) == (128, 2)
    released = await cache.Release(pb.ReleaseRequest(call=call(), release=pb.Release(lease=lease)))
    assert (released.result.published, released.result.freed_pages) == (128, 0)
    matched = await cache.Match(pb.MatchRequest(call=call(), match=pb.Match(tokens=seq("ABC"))))
    assert (matched.result.device_tokens, matched.reply.device.free) == (128, PAGES - 2)


async def test_the_stream_and_the_unary_verbs_share_one_line_of_seqs(service: Service, caller: Caller) -> None:
    lease = (await caller.acquire(seq("AB"))).lease_id
    request = pb.InsertRequest(call=caller.call(), insert=pb.Insert(lease=ref(lease), written=128))
    first = await service.cache.Insert(request)
    caller.seq += 1
    await caller.say(pb.Release(lease=ref(lease)))
    assert await service.cache.Insert(request) == first


async def test_a_unary_verb_has_no_earlier_operation(service: Service, caller: Caller) -> None:
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await service.cache.Free(pb.FreeRequest(call=caller.call(), free=pb.Free(lease=opened_by(0))))
    assert told.fields == ("lease.opened_by",)
