"""A pool's device tier: its memory, whether that still answers, and moves within it."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from radixd.server.cache.results import MovePlan
from radixd.server.config import PoolConfig
from radixd.server.pools.copier import Copier
from radixd.server.pools.gpu_watch import GpuWatch
from radixd.server.pools.traffic import Traffic

if TYPE_CHECKING:
    from radixd.gpu_pool.memory import PoolMemory

log = logging.getLogger(__name__)


class DeviceTier:
    """Everything but `allocate`, `own`, `close`, `leave` and the copier's work belongs to the loop."""

    def __init__(self, config: PoolConfig, copier: Copier, traffic: Traffic) -> None:
        self.memory: PoolMemory | None = None
        self._config = config
        self._copier = copier
        self._traffic = traffic
        self._watch: GpuWatch | None = None

    # --- start and end

    def allocate(self) -> "PoolMemory":
        """Memory to `own` or to close. Raises DeviceMemoryError, or ImportError without the extra `cuda`."""
        from radixd.gpu_pool.device import DeviceMemoryError
        from radixd.gpu_pool.memory import PoolMemory

        if self._config.unsized:
            raise DeviceMemoryError(self._config.unsized)
        name, kind, devices = self._config.name, self._config.device_kind, self._config.devices
        if kind != "cuda":
            return PoolMemory.allocate(self._config.layout, kind, devices, name=f"radixd-{name}")
        from radixd.gpu_pool.cuda.gpu import find_gpus

        gpus = find_gpus(self._config.gpus, devices)
        listed = ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in gpus)
        log.info("pool %s: on %s", name, listed, extra={"pool": name})
        return PoolMemory.on_gpus(self._config.layout, gpus)

    def own(self, memory: "PoolMemory") -> None:
        """From now on it is the tier's, to be watched and closed."""
        self.memory = memory
        if self._config.device_kind == "cuda":
            self._watch = GpuWatch(self._config.name, self._ask, self._copier, self._traffic.deadline_seconds)

    def beside(self, work: Callable[[], Future[None] | None]) -> asyncio.Future[str]:
        """Run `work` on the copier's thread: a GPU that hangs holds up that one alone. What went wrong; "" if nothing.

        As with copies, the memory stays where the work never ends.
        """
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def ended(error: str) -> None:
            if not outcome.cancelled():
                outcome.set_result(error)

        self._copier.submit(work, ended)
        return outcome

    def close(self) -> None:
        """Give up the memory, which no other process has open."""
        if self.memory is not None:
            self.memory.close()
            self._forget()

    def leave(self) -> None:
        """As `close`, while processes that have the memory open keep it until they end or unmap it."""
        if self.memory is not None:
            self.memory.leave()
            self._forget()

    def _forget(self) -> None:
        self.memory = self._watch = None

    # --- whether it is still there

    @property
    def lost(self) -> str | None:
        """Why no copy of it means anything any more; None where that is not so."""
        return self.memory.lost if self.memory is not None else None

    @property
    def silent(self) -> bool:
        """Whether its GPUs have left a question open for longer than a copy may take."""
        return self._watch is not None and self._watch.silent

    def tick(self) -> None:
        """Time has passed."""
        if self._watch is not None and self.lost is None:  # a GPU that is lost has nothing more to say
            self._watch.tick()

    def _ask(self) -> Future[None]:
        """On the copier's thread."""
        assert self.memory is not None
        return self.memory.probe()

    # --- moves

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        """Move the plan's tokens on the copier's thread; then `done("")`, or `done(error)`, on the loop."""

        def ended(error: str) -> None:
            self._traffic.end(plan.copy_id, error)
            done(error)

        nbytes = len(plan.sources) * self._config.layout.geometry.bytes_per_token * self._config.devices
        self._traffic.begin(plan.copy_id, "move", nbytes)
        self._copier.submit(lambda: self._move(plan), ended)

    def _move(self, plan: MovePlan) -> Future[None] | None:
        """On the copier's thread."""
        if self.memory is None:
            return None  # a pool without memory
        from radixd.gpu_pool.move import move_tokens

        return move_tokens(self.memory, plan.sources, plan.destinations)
