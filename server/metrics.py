"""What Prometheus scrapes: each pool's ledger and token counters, read in one instant.

No label takes a value from a client: `pool` is the operator's, the others are the code's. The number of series is
therefore fixed, whatever clients send.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from radixd.server.pool import Pool
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.tier_metrics import copies, host_counters, journals

SCRAPE_SECONDS = 5.0
"""How long a scrape waits for its turn on the event loop before it fails."""

OWNERS = ("free", "evictable", "protected", "leased", "retired")
"""A page has exactly one; the gauges of one scrape sum to radixd_pool_pages."""

HOST_OWNERS = ("free", "evictable", "protected", "leased")
"""The same for host pages, whose sum is radixd_host_pool_pages."""

COUNTERS = {
    "radixd_requested_tokens": ("requested_tokens", "Tokens known to leases when they were acquired"),
    "radixd_inserted_pages": ("inserted_pages", "Pages adopted by the tree"),
    "radixd_duplicate_pages": ("duplicate_pages", "Pages published while the tree held their tokens already"),
    "radixd_evicted_pages": ("evicted_pages", "Cached pages dropped to make room"),
    "radixd_flushed_pages": ("flushed_pages", "Cached pages dropped by Flush"),
}


class PoolCollector(Collector):
    """Reads the pools on the loop that owns them, whatever thread is asked."""

    def __init__(
        self, pools: Mapping[str, Pool], registry: SessionRegistry[Pool], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._pools = pools
        self._registry = registry
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        """All families of one instant. Raises TimeoutError where the loop stands still."""
        return asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(SCRAPE_SECONDS)

    async def _read(self) -> list[Metric]:
        pools = self._pools.values()
        tiers = (*journals(pools), *host_counters(pools), *copies(pools))
        return [*self._ledger(), *self._counters(), *tiers, *self._clients()]

    def _ledger(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("radixd_pool_pages", "Usable pages on the device", labels=["pool"])
        host = GaugeMetricFamily("radixd_host_pool_pages", "Pages of the host tier", labels=["pool"])
        pages = GaugeMetricFamily("radixd_pages", "Pages by their one owner", labels=["pool", "tier", "owner"])
        reserved = GaugeMetricFamily("radixd_reserved_pages", "Pages that leases may still claim", labels=["pool"])
        in_copy = GaugeMetricFamily("radixd_in_copy_pages", "Pages pinned by copies", labels=["pool"])
        generation = GaugeMetricFamily("radixd_generation", "The tree's life: Flush adds one", labels=["pool"])
        broken = GaugeMetricFamily("radixd_pool_broken", "1: stopped, its ledger does not add up", labels=["pool"])
        for name, pool in self._pools.items():
            occupancy = pool.cache.occupancy()
            total.add_metric([name], occupancy.total)
            for owner in OWNERS:
                pages.add_metric([name, "device", owner], getattr(occupancy, owner))
            if pool.tier is not None:
                ledger = pool.cache.host_occupancy()
                host.add_metric([name], ledger.total)
                for owner in HOST_OWNERS:
                    pages.add_metric([name, "host", owner], getattr(ledger, owner))
            reserved.add_metric([name], occupancy.reserved_mine + occupancy.reserved_others)
            in_copy.add_metric([name], occupancy.in_copy)
            generation.add_metric([name], pool.cache.generation)
            broken.add_metric([name], pool.broken is not None)
        yield from (total, host, pages, reserved, in_copy, generation, broken)

    def _counters(self) -> Iterator[Metric]:
        for name, (field, text) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=["pool"])
            for pool in self._pools.values():
                family.add_metric([pool.name], getattr(pool.cache.counters, field))
            yield family
        hits = CounterMetricFamily("radixd_hit_tokens", "Requested tokens read from the cache", labels=["pool", "tier"])
        for pool in self._pools.values():
            counters = pool.cache.counters
            hits.add_metric([pool.name, "device"], counters.hit_tokens - counters.host_hit_tokens)
            if pool.tier is not None:
                hits.add_metric([pool.name, "host"], counters.host_hit_tokens)
        yield hits

    def _clients(self) -> Iterator[Metric]:
        sessions = GaugeMetricFamily("radixd_sessions", "ended: pages stay retired", labels=["pool", "state"])
        leases = GaugeMetricFamily("radixd_leases", "Leases of live sessions", labels=["pool", "state"])
        holders = GaugeMetricFamily("radixd_holders", "Processes attached", labels=["pool"])
        for name, pool in self._pools.items():
            known = [session for session in self._registry if session.pool is pool]
            live = [pool.cache.session(session.id) for session in known if not session.ended]
            active = sum(session.active_leases for session in live)
            sessions.add_metric([name, "live"], len(live))
            sessions.add_metric([name, "ended"], len(known) - len(live))
            leases.add_metric([name, "active"], active)
            leases.add_metric([name, "waiting"], sum(len(session.leases) for session in live) - active)
            holders.add_metric([name], sum(len(session.holders) for session in known))
        yield from (sessions, leases, holders)


class Metrics:
    """All families of the daemon: those read at a scrape, and those observed as things happen."""

    def __init__(self, pools: Mapping[str, Pool], registry: SessionRegistry[Pool]) -> None:
        self.families = CollectorRegistry()
        ProcessCollector(registry=self.families)
        self.families.register(PoolCollector(pools, registry, asyncio.get_running_loop()))
        self.loop_lag = Histogram(
            "radixd_event_loop_lag_seconds",
            "How late the loop's once-a-second tick came",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
            registry=self.families,
        )
