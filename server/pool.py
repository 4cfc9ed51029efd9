"""A pool as the daemon holds it: the ledger and the tree, the memory they speak of, and who moves its bytes."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.layout import Layout
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.results import MovePlan
from radixd.server.cache.speculative import Speculative
from radixd.server.config import PoolConfig
from radixd.server.copier import Copier
from radixd.server.sessions.limits import Limits

if TYPE_CHECKING:
    from radixd.gpu_pool.memory import PoolMemory

log = logging.getLogger(__name__)


class PoolMemoryError(RuntimeError):
    """A pool's memory cannot be had; the message names the pool, the shortfall and the way out."""


class Pool:
    """Everything but `allocate`, `close` and the copier's work belongs to the event loop."""

    def __init__(self, config: PoolConfig, limits: Limits, copier: Copier) -> None:
        self.name = config.name
        self.layout: Layout = config.layout
        self.geometry: Geometry = config.layout.geometry
        self.layout_kind: str = config.layout.kind
        self.device_kind: str = config.device_kind
        self.devices = config.devices
        self.policy = config.policy
        self.speculative: Speculative = config.speculative
        self.cache = PrefixCache(
            CacheConfig(
                pages=config.layout.num_pages,
                page_size=self.geometry.page_size,
                policy=config.policy,
                speculative=config.speculative,
                max_tokens=limits.tokens,
                max_leases=limits.leases,
                max_move_pairs=limits.move_pairs,
            )
        )
        self.memory: PoolMemory | None = None
        """None until `allocate`, and for ever on the device kind meta."""
        self.broken: str | None = None
        """Why the pool is no longer served; None while it is."""
        self._kind = config.device_kind
        self._copier = copier

    def allocate(self) -> None:
        """Get the memory: seconds for a large pool, so not on the loop. Raises PoolMemoryError."""
        if self._kind == "meta":
            log.info("pool %s: %d pages without memory (meta)", self.name, self.layout.num_pages)
            return
        # Torch takes seconds to import: a daemon without memory does without it, one with memory is reachable first.
        from radixd.gpu_pool.device import DeviceMemoryError
        from radixd.gpu_pool.memory import PoolMemory

        size = f"{self.layout.nbytes / 2**30:.2f} GiB on {self.devices} x {self._kind}"
        log.info("pool %s: allocating %s", self.name, size)
        start = time.monotonic()
        try:
            self.memory = PoolMemory.allocate(self.layout, self._kind, self.devices, name=f"radixd-{self.name}")
        except DeviceMemoryError as error:
            raise PoolMemoryError(f"pool {self.name}: {error}") from error
        log.info("pool %s: %s ready after %.1f s", self.name, size, time.monotonic() - start)

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        """Move the plan's tokens on the copier thread; then `done("")`, or `done(error)`, on the loop."""
        self._copier.submit(lambda: self._move(plan), done)

    def close(self) -> None:
        """Give up the memory; processes that mapped it keep it until they unmap it."""
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def _move(self, plan: MovePlan) -> None:
        if self.memory is not None:
            from radixd.gpu_pool.move import move_tokens

            move_tokens(self.memory, plan.sources, plan.destinations).result()
