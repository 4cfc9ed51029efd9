"""Exceptions where none should be: the daemon serves on, or stops serving a pool whose ledger no longer adds up."""

import pytest

from radixd.server.cache.refusal import BrokenInvariant, Reason
from radixd.v1 import admin_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, opened_by, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import PAGES, Service
from tests.sequences import PAGE, seq


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("planted")


async def test_an_exception_refuses_one_operation_and_spares_the_rest_of_the_batch(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.pool.cache, "insert", fail)
    batch = caller.batch(
        pb.Acquire(tokens=seq("AB")), pb.Insert(lease=opened_by(0), written=128), pb.Release(lease=opened_by(0))
    )
    reply = await caller.exchange(batch)
    result_refused(reply.results[1].status, Reason.BUG)
    assert not reply.results[2].HasField("status")
    monkeypatch.undo()
    async with service.unchanged():
        assert await caller.exchange(batch) == reply


async def test_an_exception_that_leaves_the_ledger_wrong_stops_the_pool(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = service.pool.cache

    def fail_midway(*_: object, **__: object) -> None:
        cache.device.evictable += 1
        raise RuntimeError("planted")

    monkeypatch.setattr(cache, "insert", fail_midway)
    reply = await caller.exchange(
        caller.batch(pb.Acquire(tokens=seq("AB")), pb.Insert(lease=opened_by(0)), pb.Match(tokens=seq("A")))
    )
    assert not reply.results[0].HasField("status")
    for result in reply.results[1:]:
        result_refused(result.status, Reason.BROKEN_INVARIANT)
    with refused(Reason.BROKEN_INVARIANT):
        await caller.exchange(caller.batch())
    assert (await service.admin.Check(admin_pb2.CheckRequest())).violations


async def test_a_broken_invariant_is_believed_without_a_recount(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_out(*_: object, **__: object) -> None:
        raise BrokenInvariant("page 7 has two owners")

    monkeypatch.setattr(service.pool.cache, "acquire", find_out)
    reply = await caller.exchange(caller.batch(pb.Acquire(tokens=seq("A"))))
    assert "page 7 has two owners" in result_refused(reply.results[0].status, Reason.BROKEN_INVARIANT).message
    assert service.pool.broken == "its ledger does not add up: page 7 has two owners"


async def test_a_batch_whose_reply_cannot_be_made_acted_once_all_the_same(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.pool.cache, "take_publications", fail)
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    incidents = []
    for _ in range(2):
        with refused(Reason.BUG) as told:
            await caller.exchange(batch)
        assert told.facts is not None
        incidents.append(told.facts["incident"])
        monkeypatch.undo()
        caller.connect()
    assert incidents[0] == incidents[1]
    assert len(service.pool.cache.session(caller.id).leases) == 1
    caller.seq = 1
    await caller.say()


async def test_a_batch_that_cannot_begin_leaves_its_seq_free(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.pool.cache, "advance", fail)
    batch = caller.batch(pb.Acquire(tokens=seq("AB")))
    async with service.unchanged():
        with refused(Reason.BUG):
            await caller.exchange(batch)
    monkeypatch.undo()
    caller.connect()
    await caller.exchange(batch)


async def test_a_copy_that_cannot_be_started_ends_with_an_error(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquired = await caller.acquire(seq("A"))
    slot = int.from_bytes(acquired.pages[:4], "little") * PAGE
    monkeypatch.setattr(service.pool, "run_move", fail)
    move = pb.Move(
        lease=ref(acquired.lease_id), sources=slot.to_bytes(4, "little"), destinations=(slot + 1).to_bytes(4, "little")
    )
    reply = await caller.say(move)
    [copy] = reply.finished_copies
    assert "planted" in result_refused(copy.status, Reason.BUG).message
    assert (await caller.say(pb.Release(lease=ref(acquired.lease_id)))).device.free == PAGES
