"""Which pools are peers, and what becomes of a loan that nobody has begun to read."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from radixd.gpu_pool.device import DeviceLost
from radixd.server.config.file import read_config
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.sessions.fault import stop_pool
from radixd.server.sessions.limits import Limits
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq


@pytest.fixture
async def copier() -> AsyncIterator[Copier]:
    copier = Copier()
    yield copier
    copier.close()


def made(copier: Copier, name: str, **flags: object) -> Pool:
    flags = {"name": name, "geometry": "tiny", "tokens": 16 * PAGE, "device": "meta", "import_min_pages": 2, **flags}
    (config,) = read_config(None, {}, flags).pools
    return Pool(config, Limits(), copier, epoch=1)


@pytest.mark.parametrize(
    ("flags", "alike"),
    [
        ({}, True),
        ({"layout": "layer_first", "tokens": 99 * PAGE, "devices": 2, "policy": "lru"}, True),
        ({"speculative": "drop_last_page"}, True),
        ({"speculative": "bigram"}, False),  # another pool's pages say nothing of the token after them
        ({"geometry": "llama-8b"}, False),
        ({"device": "cpu"}, False),
    ],
)
async def test_peers_are_pools_whose_pages_mean_the_same(copier: Copier, flags: dict[str, object], alike: bool) -> None:
    pools = [made(copier, "one"), made(copier, "other", **flags)]
    for pool in pools:
        pool.imports.meet(pools)
    assert [pool.imports.peers for pool in pools] == ([("other",), ("one",)] if alike else [(), ()])


async def test_late_and_punctual_host_memory_are_one_kind(copier: Copier) -> None:
    pools = [made(copier, "one", device="cpu"), made(copier, "other", device="cpu_async")]
    pools[0].imports.meet(pools)
    assert pools[0].imports.peers == ("other",)


async def test_what_a_pool_lent_whose_gpu_is_lost_is_not_believed_though_nobody_has_heard_of_it(
    copier: Copier, make_fake_gpus: MakeFakeGpus
) -> None:
    gpus = make_fake_gpus(2)
    lender = made(copier, "lender", device="cuda", gpus=gpus.uuids[:1])
    borrower = made(copier, "borrower", device="cuda", gpus=gpus.uuids[1:])
    pools = [lender, borrower]
    for pool in pools:
        pool.allocate()
        pool.imports.meet(pools)
    one, two = Scheduler(lender.cache), Scheduler(borrower.cache)
    one.publish(seq("ABCD"))
    acquired = two.acquire(seq("ABCDE"), import_from_peers=True)
    assert acquired.peer_tokens == 4 * PAGE
    borrower.turn()
    copier.close()
    gpus.lose(0)
    assert lender.memory is not None
    with pytest.raises(DeviceLost):
        lender.memory.probe().result()
    assert lender.broken is None
    await asyncio.sleep(0)
    assert two.cached(seq("ABCDE")) == 0
    stop_pool(lender, "its GPU is lost")
    for pool in pools:
        pool.close()


async def test_a_pool_that_is_stopped_before_its_import_begins_gives_the_loan_back(copier: Copier) -> None:
    lender, borrower = pools = [made(copier, "lender"), made(copier, "borrower")]
    for pool in pools:
        pool.imports.meet(pools)
    one, two = Scheduler(lender.cache), Scheduler(borrower.cache)
    one.publish(seq("ABCD"))
    two.acquire(seq("ABCDE"), import_from_peers=True)
    assert lender.cache.occupancy().protected == 4
    stop_pool(borrower, "planted")
    assert lender.cache.occupancy().protected == 0
    assert borrower.traffic.in_flight == lender.traffic.in_flight == 0
