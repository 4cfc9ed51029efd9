"""What operators see and do."""

from radixd.server.cache.refusal import Reason
from radixd.v1 import admin_pb2, types_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, ref
from tests.contract.refusals import refused
from tests.contract.service import EPOCH, PAGES, Service
from tests.contract.test_sessions import Process, listed
from tests.sequences import seq


async def test_occupancy_describes_the_pool_and_its_ledger(service: Service, caller: Caller) -> None:
    await caller.publish(seq("AB"))
    await caller.acquire(seq("ABC"), reserve_to=256)
    await caller.acquire(seq("X"), wait=True)
    answer = await service.admin.Occupancy(admin_pb2.OccupancyRequest(pool="main"))
    assert (answer.epoch, len(answer.pools)) == (EPOCH, 1)
    pool = answer.pools[0]
    assert (pool.pool, pool.geometry, pool.layout, pool.device_kind, pool.devices) == (
        "main", "tiny", "page_first", "meta", 1,
    )  # fmt: skip
    assert (pool.page_size, pool.page_bytes) == (64, service.pool.geometry.bytes_per_page)
    assert (pool.policy, pool.speculative) == ("priority", types_pb2.SPECULATIVE_MODE_NONE)
    assert (pool.nodes, pool.sessions, pool.active_leases, pool.waiting_leases) == (1, 1, 1, 1)
    assert (pool.requested_tokens, pool.hit_tokens, pool.inserted_pages) == (128 + 192, 128, 2)
    ledger = pool.device
    assert (ledger.total, ledger.free, ledger.protected, ledger.leased) == (PAGES, PAGES - 3, 2, 1)
    assert (ledger.reserved_mine, ledger.reserved_others) == (0, 1)


async def test_evict_takes_what_can_be_evicted_and_no_more(service: Service, caller: Caller) -> None:
    await caller.publish(seq("ABCD"))
    await caller.acquire(seq("AB"), max_tokens=64)
    assert (await service.admin.Evict(admin_pb2.EvictRequest(pages=1))).evicted_pages == 1
    assert (await service.admin.Evict(admin_pb2.EvictRequest(pages=99))).evicted_pages == 2
    assert (await service.state())[0][0].evicted_pages == 3


async def test_flush_empties_the_tree_and_spares_who_reads(service: Service, caller: Caller) -> None:
    await caller.publish(seq("AB"))
    await caller.publish(seq("X"))
    lease = (await caller.acquire(seq("ABC"))).lease_id
    flushed = await service.admin.Flush(admin_pb2.FlushRequest())
    assert (flushed.generation, flushed.freed_pages, flushed.detached_pages) == (2, 1, 2)
    reply = await caller.say(pb.Match(tokens=seq("ABC")), pb.Insert(lease=ref(lease), written=192))
    assert reply.generation == 2
    assert reply.results[0].match.device_tokens == 0
    assert reply.results[1].insert.published == 128
    assert (await caller.say(pb.Release(lease=ref(lease)))).device.free == PAGES


async def test_check_recounts_everything(service: Service, caller: Caller) -> None:
    await caller.publish(seq("AB"))
    answer = await service.admin.Check(admin_pb2.CheckRequest())
    assert (list(answer.violations), answer.checked_pages, answer.checked_nodes) == ([], PAGES, 1)


async def test_dump_tree_shows_parents_first_and_no_salts(service: Service, caller: Caller) -> None:
    space = types_pb2.Namespace(cache_salt=b"secret salt")
    for tokens in (seq("ABC"), seq("ABD")):
        lease = await caller.acquire(tokens, namespace=space, priority=70)
        await caller.say(pb.Release(lease=ref(lease.lease_id), publish_to=192))
    answer = await service.admin.DumpTree(admin_pb2.DumpTreeRequest())
    assert answer.total_nodes == 3
    assert b"salt" not in answer.SerializeToString()
    top, *leaves = answer.nodes
    assert (top.parent, top.start_token, top.tokens, len(top.pages), top.hits) == (0, 0, 128, 8, 1)
    assert {leaf.parent for leaf in leaves} == {top.id}
    assert {(leaf.start_token, leaf.tokens, leaf.lock_ref, leaf.priority) for leaf in leaves} == {(128, 64, 0, 70)}
    assert len({node.namespace for node in answer.nodes}) == 1
    assert len((await service.admin.DumpTree(admin_pb2.DumpTreeRequest(max_nodes=2))).nodes) == 2
    with refused(Reason.BAD_FIELD) as told:
        await service.admin.DumpTree(admin_pb2.DumpTreeRequest(max_nodes=100_001))
    assert told.fields == ("max_nodes",)


async def test_sessions_are_listed_with_their_processes_and_pages(service: Service, caller: Caller) -> None:
    for _ in range(2):  # a process may attach more than once
        service.registry.attach(caller.id, caller.opened.secret, Process(42))
    caller.launched = 1
    await caller.acquire(seq("AB"), reserve_to=256)
    await caller.acquire(seq("C"), wait=True)
    service.registry.tick(1.0)
    info = (await listed(service))[caller.id]
    assert (info.pool, info.client_name, list(info.pids)) == ("main", "tester", [42])
    assert (info.ended, info.streaming, info.idle_seconds) == (False, True, 1)
    assert (info.launched, info.completed, info.active_leases, info.waiting_leases) == (1, 0, 1, 1)
    assert (info.leased_pages, info.retired_pages, info.reserved_pages) == (2, 0, 2)
    for _ in range(60):
        service.registry.tick(1.0)
    assert (await listed(service))[caller.id].idle_seconds == 61, "a stream that is open but silent is seen to be"
    await caller.say()
    assert (await listed(service))[caller.id].idle_seconds == 0


async def test_reap_ends_a_session_and_frees_what_a_living_process_held(service: Service, caller: Caller) -> None:
    service.registry.attach(caller.id, caller.opened.secret, Process(42))
    await caller.acquire(seq("AB"))
    async with service.unchanged():
        with refused(Reason.BAD_FIELD) as told:
            await service.admin.Reap(admin_pb2.ReapRequest(session_id=caller.id, client_name="another"))
    assert told.fields == ("client_name",)
    reap = admin_pb2.ReapRequest(session_id=caller.id, client_name="tester")
    assert (await service.admin.Reap(reap)).freed_pages == 2
    assert caller.id not in await listed(service)
    with refused(Reason.NO_SESSION):
        await service.admin.Reap(reap)


async def test_reap_frees_what_an_ended_session_left_retired(service: Service, caller: Caller) -> None:
    service.registry.attach(caller.id, caller.opened.secret, Process(42))
    await caller.acquire(seq("AB"))
    caller.launched = 1
    await caller.say()
    assert await caller.close() == 2
    reap = admin_pb2.ReapRequest(session_id=caller.id, client_name="tester")
    assert (await service.admin.Reap(reap)).freed_pages == 2
