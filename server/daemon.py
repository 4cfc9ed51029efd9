"""The daemon's life: startup, serve, drain, stop."""

import asyncio
import gc
import logging
import resource
import time
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING

from radixd.server.attach import AttachServer
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.claims import ClaimError, claimed_sockets, claimed_state_dir
from radixd.server.config import Config
from radixd.server.gate import Gate, State
from radixd.server.grpc_server import BindError, GrpcServer
from radixd.server.lockfile import AlreadyRunning
from radixd.server.observability.metrics import Metrics
from radixd.server.pools.allocation import PoolMemoryError, allocate_unless
from radixd.server.pools.copier import Copier
from radixd.server.pools.pool import Pool
from radixd.server.rpc import add_services
from radixd.server.self_test import SelfTest
from radixd.server.service_notify import ServiceNotify
from radixd.server.sessions.fault import lose_pool
from radixd.server.sessions.liveness import TICK_SECONDS
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.signals import StopSignals

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0
"""How long the end waits for copies that have begun. A GPU that hangs ends none."""


class StartupError(RuntimeError):
    """The daemon cannot start; the message is one line for the operator."""


class Daemon:
    """One life of the pools: made and run on one event loop, whose thread owns every cache."""

    def __init__(self, config: Config, tracer: "Tracer | None" = None) -> None:
        """With a tracer, every Batch is a span."""
        self._config = config
        self._epoch = time.time_ns()
        # A copier for each pool: one whose GPU hangs keeps no other waiting.
        self._copiers = {pool.name: Copier(pool.name) for pool in config.pools}
        self._pools = {
            pool.name: Pool(pool, config.limits, self._copiers[pool.name], self._epoch) for pool in config.pools
        }
        for pool in self._pools.values():
            pool.imports.meet(self._pools.values())
        self._registry = SessionRegistry(
            self._pools, self._epoch, config.limits, config.liveness, str(config.attach_socket)
        )
        self._gate = Gate()
        self._notify = ServiceNotify()
        self._attach = AttachServer(config.attach_socket, self._registry, self._gate, self._epoch)
        self._grpc = GrpcServer(config)
        self._calls = add_services(self._grpc.server, self._registry, self._pools, self._gate, tracer)

    async def run(self) -> None:
        """Return after SIGTERM or SIGINT, everything closed. Raises StartupError."""
        try:
            async with AsyncExitStack() as stop:
                signals = stop.enter_context(StopSignals())
                stop.callback(self._notify.close)
                if await self._startup(stop, signals):
                    await signals.stop.wait()
                    await self._drain(signals)
        except (AlreadyRunning, BindError, ClaimError, PoolMemoryError) as error:
            raise StartupError(str(error)) from error

    async def _startup(self, stop: AsyncExitStack, signals: StopSignals) -> bool:
        """Bring everything up; False where a signal came first. What must be undone is pushed on `stop`."""
        _raise_descriptor_limit()
        stop.enter_context(claimed_sockets(self._config))
        stop.enter_context(claimed_state_dir(self._config))
        stop.callback(self._close_pools)
        test = SelfTest(self._registry, self._attach)
        if any(pool.device_kind != "meta" for pool in self._pools.values()):
            await test.start()
            stop.push_async_callback(test.stop)
        await self._grpc.start()
        stop.push_async_callback(self._grpc.stop, 0)
        self._start_web(stop)
        if not await self._allocate(signals):
            return False
        for pool in self._pools.values():
            if pool.broken is None:
                pool.adopt()
        self._attach.start()
        stop.push_async_callback(self._attach.close)
        if not await signals.before_stop(self._check_attaching(test)):
            return False
        await test.stop()
        ticking = asyncio.create_task(self._tick())
        stop.callback(ticking.cancel)
        # What start-up made lives as long as the daemon: collections need not look at it again.
        gc.collect()
        gc.freeze()
        self._gate.state = State.SERVING
        await self._say_health()
        self._notify.ready(f"serving {_served(self._pools.values())} on {self._config.socket}")
        log.info("serving %s on %s, epoch %d", _served(self._pools.values()), self._config.socket, self._epoch)
        return True

    async def _check_attaching(self, test: SelfTest) -> None:
        """Stop each pool whose memory others cannot map, or see otherwise. Raises StartupError where none is left."""
        for pool in self._pools.values():
            if pool.memory is not None and pool.broken is None and (trouble := await test.trouble(pool)):
                lose_pool(pool, trouble)
        if all(pool.broken is not None for pool in self._pools.values()):
            raise StartupError("; ".join(f"pool {name}: {pool.broken}" for name, pool in self._pools.items()))

    async def _drain(self, signals: StopSignals) -> None:
        """Refuse new work, let calls under way end within the grace; a second signal ends them at once."""
        grace = self._config.drain_seconds
        log.info("draining for at most %g s; a second signal ends it", grace)
        hurry = asyncio.create_task(signals.hurry.wait())
        until = time.monotonic() + grace
        self._gate.state = State.DRAINING
        self._notify.stopping()
        await self._grpc.health.announce_end()
        await self._attach.stop_accepting()
        # An open stream would hold the graceful stop for its whole grace.
        self._registry.stop_streams(Refusal(Reason.DRAINING, "the daemon is shutting down; reconnect to its successor"))
        drained = asyncio.create_task(self._grpc.drain(grace))
        await asyncio.wait({drained, hurry}, return_when=asyncio.FIRST_COMPLETED)
        saved = asyncio.create_task(self._save_everything())
        await asyncio.wait({saved, hurry}, timeout=until - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        if not saved.done():
            log.warning("the grace is over: what the host tiers do not hold yet is lost")
            saved.cancel()
        for copier in self._copiers.values():
            copier.abandon("the daemon has shut down")
        for pool in self._pools.values():
            pool.close_journal()
        hurry.cancel()

    def _close_pools(self) -> None:
        """Let all copies end, then give up the memory: an import reads another pool's."""
        until = time.monotonic() + CLOSE_SECONDS
        stuck = {name for name, copier in self._copiers.items() if not copier.close(max(0.0, until - time.monotonic()))}
        for name, pool in self._pools.items():
            if stuck.isdisjoint({name, *pool.imports.peers}):
                pool.leave() if self._registry.is_held(pool) else pool.close()
            else:
                message = "pool %s: copies have not ended, so its memory goes with the process"
                log.error(message, name, extra={"pool": name})

    async def _save_everything(self) -> None:
        for pool in self._pools.values():
            await pool.save_everything()

    async def _allocate(self, signals: StopSignals) -> bool:
        """Get all memory; False where a signal came first. Raises PoolMemoryError where no pool can be served."""
        failed = await allocate_unless(signals.stop, tuple(self._pools.values()), self._config.memory_wait_seconds)
        if failed is None:
            return False
        for name, error in failed.items():
            lose_pool(self._pools[name], str(error))
        return True

    def _start_web(self, stop: AsyncExitStack) -> None:
        """The status page, health and metrics; before the pools are there, to say that they are not."""
        address = self._config.metrics
        if address is None:
            return
        from radixd.server.web import serve_web

        metrics = Metrics(self._pools, self._registry, self._gate, self._calls, self._config.drain_seconds)
        stop.callback(metrics.close)
        try:
            web = serve_web(address, self._pools, self._registry, self._gate, metrics.families)
        except OSError as error:
            message = f"cannot serve metrics on {address}: {error.strerror}; choose another port with --metrics, or off"
            raise StartupError(message) from error
        stop.push_async_callback(web.close)
        log.info("status page on http://%s, metrics on http://%s/metrics", web.address, web.address)

    async def _tick(self) -> None:
        """Tell the registry and the caches that time has passed."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._notify.alive()
            now = time.monotonic()
            elapsed, last = now - last, now
            with _going_on("sessions"):
                self._registry.tick(elapsed)
            for name, pool in self._pools.items():
                with _going_on(f"pool {name}"):
                    pool.tick()
            with _going_on("health"):
                await self._say_health()

    async def _say_health(self) -> None:
        serving = self._gate.state is State.SERVING
        await self._grpc.health.say(serving=serving, troubles={name: it.trouble for name, it in self._pools.items()})


@contextmanager
def _going_on(what: str) -> Iterator[None]:
    """The next tick may fare better, and without ticks no silence ever ends."""
    try:
        yield
    except Exception:
        log.exception("a tick of %s failed", what)


def _served(pools: Collection[Pool]) -> str:
    """The pools that are served, and those that are stopped, by name."""
    served = [pool.name for pool in pools if pool.broken is None]
    stopped = [pool.name for pool in pools if pool.broken is not None]
    return ", ".join(served) + (f" (stopped: {', '.join(stopped)})" if stopped else "")


def _raise_descriptor_limit() -> None:
    """Every process attached costs two descriptors, every connection one: use what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
