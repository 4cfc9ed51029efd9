"""Two tiers over the wire: what loads, what is preempted, and who is told of a copy's end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from radixd.server.cache.refusal import Reason
from radixd.server.config.file import read_config
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.v1 import admin_pb2, session_pb2
from radixd.v1 import cache_pb2 as pb
from tests import two_tiers
from tests.contract.caller import Caller, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import EPOCH, LIMITS, Service
from tests.sequences import PAGE, seq
from tests.two_tiers import Pausable, copies_of

pytestmark = pytest.mark.usefixtures("memory")

PAGES = 12
HOST_PAGES = 6


class TieredService(Service):
    """One pool of both tiers whose copies the test may hold up."""

    def __init__(self, path: Path, pool: Pool) -> None:
        super().__init__(path, pool)  # type: ignore[arg-type]
        self.real = pool

    @property
    def device(self) -> Pausable:
        assert self.real.memory is not None
        return copies_of(self.real.memory)

    def write(self, page: int, value: int) -> None:
        """As an engine: every byte of a page."""
        assert self.real.memory is not None
        for rows in self.real.memory.views[0].page_rows:
            rows[page] = value

    def read(self, page: int) -> set[int]:
        """The values of a page's bytes."""
        assert self.real.memory is not None
        return {int(value) for rows in self.real.memory.views[0].page_rows for value in np.unique(rows[page].numpy())}


@pytest.fixture
async def service(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[TieredService]:
    """12 device pages and 6 host pages, copied when they are published unless the test's parameters say otherwise."""
    flags = {
        "geometry": "tiny", "device": "cuda" if two_tiers.GPUS else "cpu_async",
        "tokens": PAGES * PAGE, "host_tokens": HOST_PAGES * PAGE,
        "write_policy": "write_through", "free_target_pages": 0, "promote_min_pages": 1,
        **getattr(request, "param", {}),
    }  # fmt: skip
    (config,) = read_config(None, {}, flags).pools
    copier = Copier()
    pool = Pool(config, LIMITS, copier, EPOCH)
    pool.allocate()
    async with TieredService(tmp_path / "radixd.sock", pool) as service:
        yield service
        service.device.resume()
        await eventually(lambda: pool.traffic.in_flight == 0)
        if pool.broken is None:
            await service.state()
    copier.close()
    pool.close()


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0.001)


async def on_the_host_alone(service: TieredService, caller: Caller, letters: str) -> None:
    """Published with bytes that tell the pages apart, copied, and evicted from the device."""
    acquired = await caller.acquire(seq(letters))
    for letter, page in zip(letters, np.frombuffer(acquired.pages, "<i4"), strict=True):
        service.write(int(page), ord(letter))
    await caller.say(pb.Release(lease=ref(acquired.lease_id), publish_to=len(letters) * PAGE))
    await eventually(lambda: service.real.traffic.in_flight == 0)
    await service.admin.Evict(admin_pb2.EvictRequest(pages=PAGES))


async def test_an_acquired_host_prefix_is_loading_until_an_arrival_says_otherwise(service: TieredService) -> None:
    caller = await Caller.open(service)
    assert caller.opened.total_host_pages == HOST_PAGES
    assert "offload" in caller.opened.capabilities
    await on_the_host_alone(service, caller, "ABC")

    reply = await caller.say(pb.Match(tokens=seq("ABCD")))
    assert (reply.results[0].match.device_tokens, reply.results[0].match.host_tokens) == (0, 3 * PAGE)
    assert (reply.host.total, reply.host.evictable, reply.host.free) == (HOST_PAGES, 3, 3)

    service.device.pause()
    acquired = await caller.acquire(seq("ABCD"))
    assert (acquired.device_tokens, acquired.host_tokens, len(acquired.loading)) == (3 * PAGE, 3 * PAGE, 1)
    reply = await caller.exchange(caller.batch(pb.Insert(lease=ref(acquired.lease_id), written=4 * PAGE)))
    result_refused(reply.results[0].status, Reason.IN_FLIGHT)
    assert not reply.arrivals
    assert reply.device.in_copy == 3
    joined = await caller.acquire(seq("ABCD"))
    assert joined.loading == acquired.loading

    service.device.resume()
    arrivals = await caller.told_arrivals()
    assert {(it.lease_id, it.copy_id, it.readable) for it in arrivals} == {
        (lease, acquired.loading[0], 3 * PAGE) for lease in (acquired.lease_id, joined.lease_id)
    }
    assert not any(it.HasField("status") for it in arrivals)
    pages = np.frombuffer(acquired.pages, "<i4").tolist()
    assert [service.read(page) for page in pages[:3]] == [{ord(letter)} for letter in "ABC"]
    assert service.real.cache.counters.host_hit_tokens == 6 * PAGE


async def test_a_copy_that_fails_shortens_the_hit_and_patches_the_table(
    service: TieredService, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await Caller.open(service)
    await on_the_host_alone(service, caller, "ABC")
    assert service.real.tier is not None
    monkeypatch.setattr(service.real.tier, "_begin", fail)
    acquired = await caller.acquire(seq("ABCD"))
    (arrival,) = await caller.told_arrivals()
    result_refused(arrival.status, Reason.BUG)
    assert arrival.readable == 0
    assert [(patch.first_page, len(patch.pages)) for patch in arrival.patches] == [(0, 12)]
    assert service.real.traffic.totals["promote"].failed == 1
    await caller.say(pb.Insert(lease=ref(acquired.lease_id), written=4 * PAGE))


def fail(*_: object) -> None:
    raise OSError("planted")


@pytest.mark.parametrize("unary", [False, True])
async def test_a_lease_is_offloaded_and_comes_back_with_its_bytes(service: TieredService, unary: bool) -> None:
    caller = await Caller.open(service)
    await on_the_host_alone(service, caller, "A")
    acquired = await caller.acquire(seq("ABC", tail=10))
    await caller.told_arrivals()
    pages = np.frombuffer(acquired.pages, "<i4").tolist()
    for letter, page in zip("BC", pages[1:], strict=True):
        service.write(page, ord(letter))

    service.device.pause()
    lease = acquired.lease_id
    if unary:
        request = pb.OffloadRequest(call=caller.call(), offload=pb.Offload(lease=ref(lease)))
        offloaded = (await service.cache.Offload(request)).result
        caller.seq += 1
    else:
        offloaded = (await caller.say(pb.Offload(lease=ref(lease)))).results[0].offload
    assert offloaded.host_pages == 2
    for verb in (pb.Allocate(lease=ref(lease), allocate_to=PAGE), pb.Offload(lease=ref(lease))):
        reply = await caller.exchange(caller.batch(verb))
        result_refused(reply.results[0].status, Reason.NOT_ACTIVE)
    reply = await caller.exchange(caller.batch(pb.Restore(lease_id=lease)))
    result_refused(reply.results[0].status, Reason.NOT_ACTIVE)
    service.device.resume()
    saved = await caller.told_saved()
    assert (saved.lease_id, saved.HasField("status")) == (lease, False)
    ledger = (await caller.say()).device
    assert (ledger.leased, ledger.protected) == (0, 0)
    await service.admin.Evict(admin_pb2.EvictRequest(pages=PAGES))
    for page in range(1, PAGES + 1):
        service.write(page, 0)

    if unary:
        request = pb.RestoreRequest(call=caller.call(), restore=pb.Restore(lease_id=lease))
        restored = (await service.cache.Restore(request)).result
        caller.seq += 1
    else:
        restored = (await caller.say(pb.Restore(lease_id=lease))).results[0].restore
    assert (restored.readable, restored.allocated, len(restored.loading)) == (2 * PAGE + 10, 3 * PAGE, 2)
    left = set(restored.loading)
    while left:
        left -= {it.copy_id for it in await caller.told_arrivals()}
    pages = np.frombuffer(restored.pages, "<i4").tolist()
    assert [service.read(page) for page in pages] == [{ord(letter)} for letter in "ABC"]
    await caller.say(pb.Insert(lease=ref(lease), written=2 * PAGE + 10))


async def test_an_offload_that_fails_leaves_the_lease_active(
    service: TieredService, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await Caller.open(service)
    acquired = await caller.acquire(seq("AB"))
    assert service.real.tier is not None
    monkeypatch.setattr(service.real.tier, "_begin", fail)
    await caller.say(pb.Offload(lease=ref(acquired.lease_id)))
    saved = await caller.told_saved()
    result_refused(saved.status, Reason.BUG)
    await caller.say(pb.Allocate(lease=ref(acquired.lease_id), allocate_to=3 * PAGE))
    assert (await caller.say()).host.free == HOST_PAGES


async def test_a_full_host_tier_refuses_an_offload_by_name(service: TieredService) -> None:
    caller = await Caller.open(service)
    acquired = await caller.acquire(seq("ABCDEFG"))
    async with service.unchanged():
        reply = await caller.exchange(caller.batch(pb.Offload(lease=ref(acquired.lease_id))))
        refusal = result_refused(reply.results[0].status, Reason.NO_PAGES)
    assert refusal.facts == {"needed": "7", "max_fit": "6", "tier": "host"}
    request = pb.OffloadRequest(call=caller.call(), offload=pb.Offload(lease=ref(acquired.lease_id)))
    with refused(Reason.NO_PAGES):
        await service.cache.Offload(request)


async def test_a_session_ends_while_its_copies_run_and_its_pages_return_when_they_have_ended(
    service: TieredService,
) -> None:
    caller, other = await Caller.open(service), await Caller.open(service)
    await on_the_host_alone(service, caller, "AB")
    service.device.pause()
    await caller.acquire(seq("ABC"))
    offloading = await caller.acquire(seq("XYZ", tail=5))
    await caller.say(pb.Offload(lease=ref(offloading.lease_id)))
    await caller.close()
    reply = await other.say()
    assert (reply.device.in_copy, reply.device.retired) == (5, 3)
    assert reply.host.leased == 3
    service.device.resume()
    await eventually(lambda: service.real.traffic.in_flight == 0)
    reply = await other.say()
    assert (reply.device.leased, reply.device.retired, reply.device.protected) == (0, 0, 0)
    assert (reply.host.leased, reply.host.evictable) == (0, 2)


@pytest.mark.parametrize("service", [{"write_policy": "write_back", "free_target_pages": 3}], indirect=True)
async def test_write_back_keeps_device_pages_free_without_being_asked(service: TieredService) -> None:
    caller = await Caller.open(service)
    await caller.publish(seq("ABCDEFGHIJK"))
    await eventually(lambda: service.real.cache.occupancy().free == 3)
    (pool,), nodes = await service.state()
    assert (pool.demoted_pages, pool.host.evictable, pool.write_policy) == (2, 2, "write_back")
    assert sum(len(node.host_pages) for node in nodes) == 2 * 4
    assert sum(node.tokens for node in nodes) == 11 * PAGE


async def test_keepalive_shows_the_host_tier(service: TieredService) -> None:
    caller = await Caller.open(service)
    reply = await service.sessions.KeepAlive(session_pb2.KeepAliveRequest(**caller.identity()))
    assert (reply.host.total, reply.host.free) == (HOST_PAGES, HOST_PAGES)


async def test_a_snapshot_needs_a_state_directory(service: TieredService) -> None:
    with refused(Reason.BAD_FIELD) as told:
        await service.admin.Snapshot(admin_pb2.SnapshotRequest())
    assert "--state-dir" in told.message


async def test_a_late_copy_is_counted_once_and_ends_well(service: TieredService) -> None:
    caller = await Caller.open(service)
    await on_the_host_alone(service, caller, "AB")
    service.device.pause()
    acquired = await caller.acquire(seq("ABC"))
    service.real.traffic.deadline_seconds = 0.0
    for _ in range(2):
        service.real.tick()
    assert (service.real.traffic.totals["promote"].late, service.real.traffic.overdue) == (1, 1)
    reply = await caller.say()
    assert (reply.device.in_copy, len(reply.arrivals)) == (2, 0)
    service.device.resume()
    (arrival,) = await caller.told_arrivals()
    assert (arrival.lease_id, arrival.readable) == (acquired.lease_id, 2 * PAGE)
    assert service.real.traffic.overdue == 0
