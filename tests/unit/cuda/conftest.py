"""Pools on fake GPUs, under both layouts, over drivers with batched copies and without."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch

from radixd.gpu_pool.cuda.gpu import find_gpus
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry
from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus

TINY = load_geometry("tiny")
PAGES = 12

OpenPool = Callable[..., PoolMemory]


@pytest.fixture(params=["page_first", "layer_first"])
def layout(request: pytest.FixtureRequest) -> LayoutKind:
    """Each in turn."""
    kind: LayoutKind = request.param
    return kind


@pytest.fixture(params=[True, False], ids=["batches", "no batches"])
def gpus(request: pytest.FixtureRequest, make_fake_gpus: MakeFakeGpus) -> FakeGpus:
    """A machine of two GPUs, whose driver batches copies or does not."""
    return make_fake_gpus(2, batch_memcpy=request.param)


@pytest.fixture
def open_pool(make_fake_gpus: MakeFakeGpus) -> Iterator[OpenPool]:
    """Opens pools of random bytes on the first GPUs, and closes them before the machine is looked at."""
    with ExitStack() as pools:

        def open_one(kind: LayoutKind = "page_first", count: int = 1, name: str = "tiny") -> PoolMemory:
            memory = pools.enter_context(
                PoolMemory.on_gpus(Layout(load_geometry(name), kind, PAGES), find_gpus((), count))
            )
            for views in memory.views:
                views.buffer.copy_(torch.randint(0, 256, (memory.layout.nbytes,), dtype=torch.uint8))
            return memory

        yield open_one


@pytest.fixture
def host() -> Iterator[HostPool]:
    """A host tier of as many pages, with random bytes; closed after the pools."""
    pool = HostPool.anonymous(TINY, PAGES)
    torch.from_numpy(pool.pages).random_()
    yield pool
    pool.close()
