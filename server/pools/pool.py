"""A pool as the daemon holds it: the ledger and the tree, the memory they speak of, and who moves its bytes."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING

from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.handle import HOST_KINDS
from radixd.gpu_pool.layout import Layout
from radixd.server.byte_text import byte_text
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason
from radixd.server.cache.results import MovePlan
from radixd.server.cache.speculative import Speculative
from radixd.server.config import PoolConfig
from radixd.server.pools.allocation import PoolMemoryError
from radixd.server.pools.copier import Copier
from radixd.server.pools.device_tier import DeviceTier
from radixd.server.pools.host_tier import HostTier
from radixd.server.pools.peer_imports import PeerImports
from radixd.server.pools.traffic import Traffic
from radixd.server.sessions.fault import guarded, lose_pool
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.served_pool import Snapshot
from radixd.server.sessions.work import Work

if TYPE_CHECKING:
    from radixd.gpu_pool.memory import PoolMemory

log = logging.getLogger(__name__)


class Pool:
    """Everything but `allocate`, `close` and the copier's work belongs to the event loop."""

    def __init__(self, config: PoolConfig, limits: Limits, copier: Copier, epoch: int) -> None:
        self.name = config.name
        self.layout: Layout = config.layout
        self.geometry: Geometry = config.layout.geometry
        self.layout_kind: str = config.layout.kind
        self.device_kind: str = config.device_kind
        self.devices = config.devices
        self.policy = config.policy
        self.speculative: Speculative = config.speculative
        self.cache = PrefixCache(_cache_config(config, limits))
        self.work = Work()
        self.broken: str | None = None
        """Why the pool is no longer served; None while it is."""
        self.broken_reason = Reason.BROKEN_INVARIANT
        self.spared = config.device_kind == "cuda"
        """A lost GPU stops its own pools, no others. What any other kind lacks is the operator's mistake."""
        self.traffic = Traffic(config.name, config.copy_deadline_seconds)
        self._state_dir = config.host.state_dir
        self._epoch = epoch
        self._device = DeviceTier(config, copier, self.traffic)
        copier.before_failure = self._look_after_memory  # a pool whose memory is lost frees nothing more
        self.imports = PeerImports(self, copier, self.traffic)
        self.tier = HostTier(self, self._state_dir, copier, self.traffic) if config.host.pages else None

    # --- memory

    @property
    def memory(self) -> "PoolMemory | None":
        """The device tier's: None until `allocate`, after the end, and always on the device kind meta."""
        return self._device.memory

    def memory_parts(self) -> Mapping[str, int]:
        """Host memory that `allocate` will take, in bytes, by name. Raises OSError."""
        parts = {}
        if self.device_kind in HOST_KINDS:
            parts[f"pool {self.name}"] = self.layout.nbytes * self.devices
        if self.tier is not None and self.device_kind != "meta":
            parts[f"host tier of pool {self.name}"] = self.tier.memory_bytes()
        return parts

    def allocate(self) -> None:
        """Get the memory: seconds for a large pool, so not on the loop. Raises PoolMemoryError, and holds none then."""
        ids = {"pool": self.name}
        if self.device_kind == "meta":
            log.info("pool %s: %d pages without memory (meta)", self.name, self.layout.num_pages, extra=ids)
            return
        # Torch takes seconds to import: a daemon without memory does without it, one with memory is reachable first.
        from radixd.gpu_pool.device import DeviceFull, DeviceMemoryError

        size = f"{byte_text(self.layout.nbytes)} on {self.devices} x {self.device_kind}"
        if self.tier is not None:
            host_bytes = self.cache.config.host_pages * self.geometry.bytes_per_page
            size += f", {byte_text(host_bytes)} in {self._state_dir or 'host memory'}"
        log.info("pool %s: allocating %s", self.name, size, extra=ids)
        start = time.monotonic()
        try:
            memory = self._device.allocate()
            with ExitStack() as undo:
                undo.callback(memory.close)
                if self.tier is not None:
                    self.tier.allocate(memory, self._epoch)
                undo.pop_all()
        except DeviceMemoryError as error:
            raise PoolMemoryError(f"pool {self.name}: {error}", may_pass=isinstance(error, DeviceFull)) from error
        except ImportError as error:
            raise PoolMemoryError(f"pool {self.name}: {error}") from error
        self._device.own(memory)
        log.info("pool %s: %s ready after %.1f s", self.name, size, time.monotonic() - start, extra=ids)

    def beside(self, work: Callable[[], Future[None] | None]) -> asyncio.Future[str]:
        """Run `work` on the copier's thread; see DeviceTier."""
        return self._device.beside(work)

    def adopt(self) -> None:
        """Take over the host pages that `allocate` has found. On the loop, before any session."""
        if self.tier is not None:
            self.tier.adopt()

    def close(self) -> None:
        """Give up the memory, which no other process has open."""
        self._device.close()
        if self.tier is not None:
            self.tier.close()

    def leave(self) -> None:
        """As `close`, while processes that have the memory open keep it until they end or unmap it."""
        self._device.leave()
        self.close()

    @property
    def silent(self) -> bool:
        """Whether its GPUs do not answer; a pool that is stopped asks them nothing."""
        return self.broken is None and self._device.silent

    @property
    def trouble(self) -> str:
        """What is the matter with the pool; "" where nothing is."""
        if self.silent:
            return "its GPUs do not answer"
        return self.broken or ""

    def _look_after_memory(self) -> None:
        if self._device.lost is not None:
            lose_pool(self, self._device.lost)

    # --- copies

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        """See ServedPool."""
        self._device.run_move(plan, done)

    def turn(self) -> None:
        """See ServedPool."""
        if self.broken is None:
            with guarded(self, "starting copies"):
                if self.tier is not None:
                    self.tier.turn()
                self.imports.turn()
            return
        self.imports.give_back()
        if self.tier is not None and self.tier.journal is not None and self.broken_reason is Reason.BROKEN_INVARIANT:
            self.tier.journal.poison(f"the pool was stopped: {self.broken}")

    def tick(self) -> None:
        """Time has passed."""
        self._device.tick()
        self._look_after_memory()
        if self.broken is None:
            with guarded(self, "ticking"):
                self.cache.tick()
                if self.tier is not None:
                    self.tier.give_up_held()
        self.turn()
        self.traffic.check_deadlines()

    # --- snapshots

    @property
    def journal(self) -> str:
        """See ServedPool."""
        if self.tier is None or self.tier.journal is None:
            return ""
        return self.tier.journal.trouble or "ok"

    async def snapshot(self) -> Snapshot:
        """See ServedPool."""
        assert self.tier is not None
        return await self.tier.snapshot()

    async def save_everything(self) -> None:
        """Before the end: copy to the host what fits, where the next daemon will find it."""
        if self.tier is not None and self.tier.journal is not None and self.broken is None:
            with guarded(self, "saving the host tier"):
                await self.tier.save_everything()

    def close_journal(self) -> None:
        """Make the journal a snapshot, once nothing changes any more; a broken pool leaves none."""
        if self.tier is not None and self.tier.journal is not None:
            self.turn()
            if self.broken is None:
                self.tier.journal.close()


def _cache_config(config: PoolConfig, limits: Limits) -> CacheConfig:
    return CacheConfig(
        pages=config.layout.num_pages,
        page_size=config.layout.geometry.page_size,
        policy=config.policy,
        speculative=config.speculative,
        max_tokens=limits.tokens,
        max_leases=limits.leases,
        max_move_pairs=limits.move_pairs,
        host_pages=config.host.pages,
        write_policy=config.host.write_policy,
        promote_min_pages=config.host.promote_min_pages,
        free_target_pages=config.host.free_target_pages,
        max_copy_pages=config.host.max_copy_pages,
        import_min_pages=config.import_min_pages,
    )
