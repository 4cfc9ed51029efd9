"""A pool of two tiers with real bytes: the cache's plans run as copies between memories that are late, or fail."""

import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Protocol, Self

import numpy as np
import torch

from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.cuda.gpu import find_gpus
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.tier_copy import load_pages, save_pages
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.results import Arrival, CopyKind, CopyPlan, Saved
from tests.fake_cuda.control import FakeGpus
from tests.scheduler import Scheduler

TO_HOST = (CopyKind.DEMOTE, CopyKind.OFFLOAD)

GPUS: FakeGpus | None = None
"""Where pools lie in place of host memory, for tests that run on both; see the fixture `memory`."""


class Pausable(Protocol):
    """What holds copies up."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def copies_of(memory: PoolMemory) -> Pausable:
    """The only device's copies."""
    device = memory.devices[0]
    if isinstance(device, CpuAsyncDevice):
        return device
    assert GPUS is not None
    return GPUS


def _allocated(layout: Layout) -> PoolMemory:
    if GPUS is None:
        return PoolMemory.allocate(layout, "cpu_async", copy_delay_s=0.0005)
    GPUS.set_delay(0.0005)
    return PoolMemory.on_gpus(layout, find_gpus((), 1))


class TwoTiers:
    """One scheduler, its cache, and both tiers' memory on a device whose copies wait while it is paused."""

    def __init__(self, config: CacheConfig, memory: PoolMemory, host: HostPool) -> None:
        self.cache = PrefixCache(config)
        self.scheduler = Scheduler(self.cache)
        self.memory = memory
        self.host = host
        self.running: list[tuple[CopyPlan, Future[None]]] = []
        self.done: list[CopyPlan] = []

    @classmethod
    @contextmanager
    def opened(cls, layout: LayoutKind, config: CacheConfig) -> Iterator[Self]:
        geometry = load_geometry("tiny")
        host = HostPool.anonymous(geometry, config.host_pages)
        with _allocated(Layout(geometry, layout, config.pages)) as memory:
            memory.pin(host)
            tiers = cls(config, memory, host)
            yield tiers
            tiers.resume()
            tiers.settle()
        host.close()

    # --- copies

    def pause(self) -> None:
        copies_of(self.memory).pause()

    def resume(self) -> None:
        copies_of(self.memory).resume()

    def turn(self) -> tuple[CopyPlan, ...]:
        """Hands new plans to the copier. Returns them."""
        plans = self.cache.take_plans()
        for plan in plans:
            if plan.kind in TO_HOST:
                copy = save_pages(self.memory, self.host, plan.device_pages, plan.host_pages)
            else:
                copy = load_pages(self.memory, self.host, plan.host_pages, plan.device_pages)
            self.running.append((plan, copy))
        check_invariants(self.cache)
        return plans

    def confirm(self, error: str = "") -> CopyPlan:
        """The oldest copy has ended, however it went."""
        plan, copy = self.running.pop(0)
        copy.result()
        self.done.append(plan)
        self.cache.finish_copy(plan.copy_id, error)
        check_invariants(self.cache)
        return plan

    def settle(self) -> None:
        """Runs copies until there are none."""
        self.turn()
        while self.running:
            self.confirm()
            self.turn()

    def copied(self, kind: CopyKind) -> int:
        """Pages of a kind of copy that have been copied."""
        return sum(len(plan.device_pages) for plan in self.done if plan.kind is kind)

    def arrivals(self) -> tuple[Arrival, ...]:
        return self.cache.take_arrivals(self.scheduler.id)

    def saved(self) -> tuple[Saved, ...]:
        return self.cache.take_saved(self.scheduler.id)

    # --- bytes

    def write(self, tokens: bytes, pages: np.ndarray, first: int = 0) -> None:
        """What an engine leaves in table entries from `first` on: bytes that follow from the tokens up to each page."""
        for index in range(first, len(pages)):
            for rows, wanted in zip(self.memory.views[0].page_rows, self._bytes(tokens, index), strict=True):
                rows[int(pages[index])] = wanted

    def scribble(self, pages: np.ndarray) -> None:
        for rows in self.memory.views[0].page_rows:
            rows[torch.from_numpy(pages.astype(np.int64))] = 0xEE

    def holds(self, tokens: bytes, pages: np.ndarray, upto: int | None = None) -> bool:
        """Whether table entries hold just the bytes that `write` has left: every region of every token."""
        return all(
            torch.equal(rows[int(pages[index])], wanted)
            for index in range(len(pages) if upto is None else upto)
            for rows, wanted in zip(self.memory.views[0].page_rows, self._bytes(tokens, index), strict=True)
        )

    def _bytes(self, tokens: bytes, index: int) -> list[torch.Tensor]:
        prefix = tokens[: (index + 1) * self.cache.config.page_size * 4]
        generator = torch.Generator().manual_seed(zlib.crc32(prefix))
        shapes = [rows.shape[1:] for rows in self.memory.views[0].page_rows]
        return [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]

    # --- requests

    def publish(self, tokens: bytes) -> np.ndarray:
        """A whole request: acquire, write, publish, release. Returns its pages."""
        lease = self.scheduler.acquire(tokens)
        self.write(tokens, lease.pages, lease.device_tokens // self.cache.config.page_size)
        self.scheduler.release(lease.lease_id, publish_to=len(tokens) // 4)
        return lease.pages

    def to_host(self, tokens: bytes) -> np.ndarray:
        """Publishes tokens, saves them, and takes them off the device. Returns the pages they were in."""
        pages = self.publish(tokens)
        self.settle()
        self.cache.evict(len(pages))
        self.scribble(pages)
        return pages
