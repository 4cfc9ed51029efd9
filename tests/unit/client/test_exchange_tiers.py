"""The host tier in a session's conversation: offloads, restores, arrivals."""

import pytest

from radixd.client.errors import Bug
from radixd.client.lease import LeaseStatus
from radixd.v1 import cache_pb2, types_pb2
from tests.unit.client.refusals import refusal
from tests.unit.client.wire import Wire, ids, patch


@pytest.fixture
def wire():
    return Wire()


def test_arrivals_reach_the_lease_and_their_patches_wait_for_no_step(wire):
    wire.exchange.step(1, 0)
    batch = wire.batch()
    opened = batch.acquire(range(12))
    wire.send(batch)
    told = cache_pb2.AcquireResult(lease_id=5, device_tokens=8, host_tokens=8, loading=[31], pages=ids(1, 2, 3))
    wire.answer(1, {"acquire": told})
    lease = opened.result()
    assert (lease.loading, lease.host_tokens) == ({31}, 8)
    future = wire.send()
    failed = cache_pb2.Arrival(lease_id=5, copy_id=31, readable=0, patches=[patch(0, 8, 9)], status=refusal("BUG"))
    wire.answer(2, arrivals=[failed, cache_pb2.Arrival(lease_id=404, copy_id=31, readable=8)])
    assert (lease.loading, lease.readable, lease.pages.tolist()) == (frozenset(), 0, [8, 9, 3])
    told = [(it.lease_id, it.copy_id, it.readable, it.error is None) for it in future.result().arrivals]
    assert told == [(5, 31, 0, False), (404, 31, 8, True)]
    wire.send()
    assert wire.call().ack == 2


def test_an_offload_and_its_restore(wire):
    lease = wire.lease()
    batch = wire.batch()
    saved = batch.offload(lease)
    batch.group(3, saved)
    wire.send(batch)
    assert cache_pb2.Batch.FromString(wire.sent[-1]).operations[0].offload.lease.id == 5
    wire.answer(2, {"offload": cache_pb2.OffloadResult(host_pages=2)}, host=types_pb2.HostOccupancy(total=9, leased=2))
    assert (saved.result(), lease.status) == (2, LeaseStatus.OFFLOADING)
    assert (wire.exchange.host.total, wire.exchange.host.leased) == (9, 2)
    future = wire.send()
    wire.answer(3, saved=[cache_pb2.SavedLease(lease_id=5), cache_pb2.SavedLease(lease_id=404)])
    assert lease.status is LeaseStatus.OFFLOADED
    assert [(it.lease_id, it.error) for it in future.result().saved] == [(5, None), (404, None)]
    batch = wire.batch()
    restored = batch.restore(lease, allocate_to=8, reserve_to=12)
    wire.send(batch)
    verb = cache_pb2.Batch.FromString(wire.sent[-1]).operations[0].restore
    assert (verb.lease_id, verb.allocate_to, verb.reserve_to) == (5, 8, 12)
    told = cache_pb2.RestoreResult(readable=7, loading=[4], allocated=8, pages=ids(6, 7))
    arrived = cache_pb2.Arrival(lease_id=5, copy_id=4, readable=7)
    wire.answer(4, {"restore": told}, arrivals=[arrived])
    assert restored.result() is lease
    assert (lease.status, lease.readable, lease.pages.tolist()) == (LeaseStatus.ACTIVE, 7, [6, 7])


def test_an_offload_that_failed_says_why(wire):
    lease = wire.lease()
    batch = wire.batch()
    batch.offload(lease)
    wire.send(batch)
    wire.answer(2, {"offload": cache_pb2.OffloadResult(host_pages=2)})
    future = wire.send()
    wire.answer(3, saved=[cache_pb2.SavedLease(lease_id=5, status=refusal("BUG"))])
    assert lease.status is LeaseStatus.ACTIVE
    assert isinstance(future.result().saved[0].error, Bug)


def test_an_offload_may_name_a_lease_that_its_batch_opens(wire):
    batch = wire.batch()
    opened = batch.acquire(range(8))
    batch.offload(opened)
    wire.send(batch)
    told = cache_pb2.AcquireResult(lease_id=5, pages=ids(1, 2))
    wire.answer(1, {"acquire": told}, {"offload": cache_pb2.OffloadResult(host_pages=2)})
    assert opened.result().status is LeaseStatus.OFFLOADING


def test_a_match_tells_what_the_host_has_beyond_the_device(wire):
    batch = wire.batch()
    found = batch.match(range(20))
    wire.send(batch)
    wire.answer(1, {"match": cache_pb2.MatchResult(device_tokens=4, host_tokens=8)})
    assert (found.result().device_tokens, found.result().host_tokens) == (4, 8)
