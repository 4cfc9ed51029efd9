"""A pool moves bytes elsewhere and says so on the loop."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from radixd.gpu_pool.handle import DeviceKind
from radixd.server.cache.results import MovePlan
from radixd.server.config.file import read_config
from radixd.server.pools import gpu_watch
from radixd.server.pools.allocation import PoolMemoryError
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.sessions.limits import Limits
from tests.fake_cuda.control import FakeGpus


@pytest.fixture
async def copier() -> AsyncIterator[Copier]:
    copier = Copier()
    yield copier
    copier.close()


def made(copier: Copier, device: DeviceKind, tokens: int = 640, devices: int = 1, geometry: str = "tiny") -> Pool:
    flags = {"geometry": geometry, "tokens": tokens, "device": device, "devices": devices}
    (config,) = read_config(None, {}, flags).pools
    pool = Pool(config, Limits(), copier, epoch=1)
    pool.allocate()
    return pool


async def moved(pool: Pool, sources: list[int], destinations: list[int]) -> str:
    done = asyncio.get_running_loop().create_future()
    pool.run_move(MovePlan(1, np.array(sources, np.int32), np.array(destinations, np.int32)), done.set_result)
    return str(await done)


@pytest.mark.parametrize("device", ["cpu", "cpu_async"])
async def test_tokens_are_in_place_on_every_device_when_the_move_is_done(copier: Copier, device: DeviceKind) -> None:
    pool = made(copier, device, devices=2)
    assert pool.memory is not None
    for views in pool.memory.views:
        for rows in views.token_rows:
            rows[1] = 7
    assert await moved(pool, [64, 65], [200, 300]) == ""
    for views in pool.memory.views:
        for rows in views.token_rows:
            assert (rows[200 // 64, 200 % 64] == 7).all()
            assert (rows[300 // 64, 300 % 64] == 7).all()
            assert (rows[5] == 0).all()
    pool.close()


async def test_a_move_that_cannot_be_says_why(copier: Copier) -> None:
    pool = made(copier, "cpu")
    assert "outside" in await moved(pool, [64], [10**6])
    assert await moved(pool, [64], [128]) == ""
    pool.close()


async def test_a_pool_without_memory_moves_nothing_and_says_done(copier: Copier) -> None:
    pool = made(copier, "meta", tokens=1_048_576, geometry="glm-5.3")
    assert pool.memory is None
    assert await moved(pool, [64], [128]) == ""
    assert pool.cache.occupancy().total == 16_384


async def test_memory_that_is_not_there_is_refused_by_name(copier: Copier) -> None:
    with pytest.raises(PoolMemoryError, match=r"pool default: .*make the pools smaller"):
        made(copier, "cpu", tokens=30_000_000, geometry="glm-5.3")


async def test_a_gpu_that_is_lost_is_asked_no_more(
    copier: Copier, fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_SECONDS", 0.0)
    pool = made(copier, "cuda")
    fake_gpus.lose(0)
    while pool.broken is None:
        pool.tick()
        await asyncio.sleep(0.001)
    asked: list[object] = []
    monkeypatch.setattr(copier, "submit", lambda *work: asked.append(work))
    for _ in range(3):
        pool.tick()
        await asyncio.sleep(0.001)
    assert asked == []
    monkeypatch.undo()
    pool.close()
