"""Pools filled with bytes of which no two neighbours agree."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry
from tests.fake_cuda.control import FakeGpus
from tests.fake_cuda.plugin import MakeFakeGpus
from tests.unit.gpu_pool.pools import MakePool


@pytest.fixture
def make_pool(make_fake_gpus: MakeFakeGpus) -> Iterator[MakePool]:
    """Makes pools of random bytes, different on each device, and closes them after the test.

    Pools on cuda share a machine of three fake GPUs, whose copies are late.
    """
    gpus: list[FakeGpus] = []
    with ExitStack() as pools:

        def make(
            name: str = "tiny",
            kind: LayoutKind = "page_first",
            pages: int = 12,
            device: DeviceKind = "cpu",
            count: int = 1,
            stride_multiple: int = 1,
        ) -> PoolMemory:
            layout = Layout(load_geometry(name), kind, pages, stride_multiple)
            if device == "cuda" and not gpus:
                gpus.append(make_fake_gpus(3))
            memory = pools.enter_context(PoolMemory.allocate(layout, device, count))
            generator = torch.Generator().manual_seed(20)
            for views in memory.views:
                views.buffer.copy_(torch.randint(0, 256, (layout.nbytes,), dtype=torch.uint8, generator=generator))
            return memory

        yield make
