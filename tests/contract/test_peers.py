"""Two pools over the wire: what is imported, who is told, and who stands when one of them falls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from radixd.gpu_pool import peer_copy
from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.server.cache.refusal import Reason
from radixd.server.config.file import read_config
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.sessions.fault import stop_pool
from radixd.v1 import admin_pb2
from radixd.v1 import cache_pb2 as pb
from tests.contract.caller import Caller, ref
from tests.contract.refusals import refused, result_refused
from tests.contract.service import EPOCH, LIMITS, Service
from tests.contract.test_tiers import eventually, fail
from tests.sequences import PAGE, seq

PAGES = 12


class PeerService(Service):
    """Pools "left" and "right" on host memory, in different layouts. The test may hold up what "right" imports."""

    def __init__(self, path: Path, left: Pool, right: Pool) -> None:
        super().__init__(path, left, right)  # type: ignore[arg-type]
        self.left, self.right = left, right
        left.imports.meet((left, right))
        right.imports.meet((left, right))

    @property
    def device(self) -> CpuAsyncDevice:
        assert self.right.memory is not None
        device = self.right.memory.devices[0]
        assert isinstance(device, CpuAsyncDevice)
        return device

    async def callers(self) -> tuple[Caller, Caller]:
        return await Caller.open(self, pool="left"), await Caller.open(self, pool="right")

    async def quiet(self) -> list[admin_pb2.PoolOccupancy]:
        """Both pools as operators see them, once nothing is under way."""
        await eventually(lambda: not (self.left.traffic.in_flight or self.right.traffic.in_flight))
        return (await self.state())[0]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[PeerService]:
    copier, pools = Copier(), []
    for name, layout in (("left", "page_first"), ("right", "layer_first")):
        flags = {
            "name": name, "geometry": "tiny", "layout": layout, "device": "cpu_async", "tokens": PAGES * PAGE,
            "import_min_pages": 2,
        }  # fmt: skip
        (config,) = read_config(None, {}, flags).pools
        pools.append(Pool(config, LIMITS, copier, EPOCH))
        pools[-1].allocate()
    async with PeerService(tmp_path / "radixd.sock", *pools) as service:
        yield service
        service.device.resume()
        await eventually(lambda: not any(pool.traffic.in_flight for pool in pools))
        if not any(pool.broken for pool in pools):
            await service.state()
    copier.close()
    for pool in pools:
        pool.close()


def write(pool: Pool, page: int, value: int) -> None:
    """As an engine: every byte of a page."""
    assert pool.memory is not None
    for rows in pool.memory.views[0].layer_rows:
        rows[page] = value


def read(pool: Pool, pages: bytes) -> list[set[int]]:
    """The values of pages' bytes."""
    assert pool.memory is not None
    rows = pool.memory.views[0].layer_rows
    return [
        {int(value) for row in rows for value in np.unique(row[page].numpy())}
        for page in np.frombuffer(pages, "<i4").tolist()
    ]


async def publish(pool: Pool, caller: Caller, letters: str) -> None:
    """With bytes that tell the pages apart."""
    acquired = await caller.acquire(seq(letters))
    for letter, page in zip(letters, np.frombuffer(acquired.pages, "<i4").tolist(), strict=True):
        write(pool, page, ord(letter))
    await caller.say(pb.Release(lease=ref(acquired.lease_id), publish_to=len(letters) * PAGE))


async def test_a_prefix_is_imported_with_its_bytes_whatever_becomes_of_the_original(service: PeerService) -> None:
    left, right = await service.callers()
    assert "import" in right.opened.capabilities
    await publish(service.left, left, "ABCD")
    found = (await right.say(pb.Match(tokens=seq("ABCDE"), peers=True))).results[0].match
    assert (found.device_tokens, found.peer_tokens, found.peer_pool) == (0, 4 * PAGE, "left")
    unasked = (await right.say(pb.Match(tokens=seq("ABCDE")))).results[0].match
    assert (unasked.peer_tokens, unasked.peer_pool) == (0, "")

    service.device.pause()
    acquired = await right.acquire(seq("ABCDE"), import_from_peers=True)
    assert (acquired.device_tokens, acquired.peer_tokens, acquired.host_tokens) == (4 * PAGE, 4 * PAGE, 0)
    reply = await right.exchange(right.batch(pb.Insert(lease=ref(acquired.lease_id), written=5 * PAGE)))
    result_refused(reply.results[0].status, Reason.IN_FLIGHT)
    assert (reply.device.in_copy, (await left.say()).device.in_copy) == (4, 4)
    joined = await right.acquire(seq("ABCDE"))
    assert (joined.loading, joined.peer_tokens) == (acquired.loading, 4 * PAGE)
    await service.admin.Evict(admin_pb2.EvictRequest(pool="left", pages=PAGES))
    await service.admin.Flush(admin_pb2.FlushRequest(pool="left"))
    assert (await left.say()).device.protected == 4, "lent pages stay"

    service.device.resume()
    arrivals = await right.told_arrivals()
    assert {(it.lease_id, it.readable, it.HasField("status")) for it in arrivals} == {
        (lease, 4 * PAGE, False) for lease in (acquired.lease_id, joined.lease_id)
    }
    assert read(service.right, acquired.pages)[:4] == [{ord(letter)} for letter in "ABCD"]
    before, after = await service.quiet()
    assert (before.lent_pages, before.device.free) == (4, PAGES)
    assert (after.imported_pages, after.imported_hit_tokens, after.hit_tokens) == (4, 8 * PAGE, 8 * PAGE)
    totals = service.right.traffic.totals["import"]
    assert (totals.copies, totals.bytes) == (1, 4 * service.right.geometry.bytes_per_page)
    again = await right.acquire(seq("ABCDE"))
    assert (again.device_tokens, again.peer_tokens, list(again.loading)) == (4 * PAGE, 0, [])


async def test_the_unary_verbs_and_waiting_leases_import_too(service: PeerService) -> None:
    left, right = await service.callers()
    await publish(service.left, left, "ABCD")
    waiting = (await right.say(pb.Acquire(tokens=seq("ABCDE"), wait=True))).results[0].acquire.lease_id
    request = pb.MatchRequest(call=right.call(), match=pb.Match(lease=ref(waiting), peers=True))
    assert (await service.cache.Match(request)).result.peer_tokens == 4 * PAGE
    right.seq += 1
    activation = pb.Acquire(lease_id=waiting, import_from_peers=True)
    acquired = (await service.cache.Acquire(pb.AcquireRequest(call=right.call(), acquire=activation))).result
    right.seq += 1
    assert (acquired.peer_tokens, len(acquired.loading)) == (4 * PAGE, 1)
    (arrival,) = await right.told_arrivals()
    assert arrival.readable == 4 * PAGE

    wrong = pb.Acquire(tokens=seq("A"), wait=True, import_from_peers=True)
    with refused(Reason.BAD_FIELD) as refusal:
        await service.cache.Acquire(pb.AcquireRequest(call=right.call(), acquire=wrong))
    assert refusal.fields == ("import_from_peers",)


async def test_an_import_that_fails_shortens_the_hit(service: PeerService, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = await service.callers()
    await publish(service.left, left, "ABCD")
    monkeypatch.setattr(peer_copy, "import_pages", fail)
    acquired = await right.acquire(seq("ABCDE"), import_from_peers=True)
    (arrival,) = await right.told_arrivals()
    result_refused(arrival.status, Reason.BUG)
    assert arrival.readable == 0
    assert [(patch.first_page, len(patch.pages)) for patch in arrival.patches] == [(0, 16)]
    assert service.right.traffic.totals["import"].failed == 1
    before, after = await service.quiet()
    assert (before.device.evictable, after.failed_copy_pages, after.nodes) == (4, 4, 0)
    await right.say(pb.Release(lease=ref(acquired.lease_id), publish_to=5 * PAGE))
    assert (await right.say()).device.evictable == 5


async def test_sessions_of_both_pools_end_in_mid_import_and_every_page_returns(service: PeerService) -> None:
    left, right = await service.callers()
    await publish(service.left, left, "ABCD")
    service.device.pause()
    await right.acquire(seq("ABCDE"), import_from_peers=True)
    await right.close()
    await left.close()
    service.device.resume()
    before, after = await service.quiet()
    assert (before.device.evictable, before.device.free) == (4, PAGES - 4)
    assert (after.device.evictable, after.device.free) == (4, PAGES - 4), "what has arrived is of use to others"


async def test_a_lender_that_is_stopped_has_lent_nothing_that_can_be_trusted(service: PeerService) -> None:
    left, right = await service.callers()
    await publish(service.left, left, "ABCD")
    service.device.pause()
    await right.acquire(seq("ABCDE"), import_from_peers=True)
    stop_pool(service.left, "planted")  # type: ignore[arg-type]
    service.device.resume()
    (arrival,) = await right.told_arrivals()
    assert arrival.readable == 0
    assert "left" in result_refused(arrival.status, Reason.BUG).message
    assert (await right.say(pb.Match(tokens=seq("ABCDE"), peers=True))).results[0].match.peer_tokens == 0


async def test_a_borrower_that_is_stopped_gives_back_what_it_was_lent(service: PeerService) -> None:
    left, right = await service.callers()
    await publish(service.left, left, "ABCD")
    service.device.pause()
    await right.acquire(seq("ABCDE"), import_from_peers=True)
    stop_pool(service.right, "planted")  # type: ignore[arg-type]
    assert (await left.say()).device.protected == 4, "the copy may still read"
    service.device.resume()
    await eventually(lambda: service.left.cache.occupancy().protected == 0)
    assert (await left.say()).device.in_copy == 0
