"""Where pages ran short: what was dropped for others, and what was refused."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from radixd.server.observability.families import add_histogram, counter, histogram
from radixd.server.pools.pool import Pool
from radixd.server.sessions.work import Shortage


def evictions(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Cached pages that have left a tier."""
    evicted = counter(
        "radixd_evicted_pages",
        "Cached pages taken from a tier, for demand or at an operator's word",
        "tier", "policy", "reason",
    )  # fmt: skip
    flushed = counter("radixd_flushed_pages", "Cached device pages freed by Flush")
    for pool in pools:
        counters = pool.cache.counters
        asked = counters.operator_evicted_pages
        evicted.add_metric([pool.name, "device", pool.policy, "demand"], counters.evicted_pages - asked)
        evicted.add_metric([pool.name, "device", pool.policy, "operator"], asked)
        if pool.tier is not None:
            evicted.add_metric([pool.name, "host", pool.policy, "demand"], pool.cache.host_space.evicted_pages)
        flushed.add_metric([pool.name], counters.flushed_pages)
    yield from (evicted, flushed)


def refusals(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Operations that were given no pages; a client that retries is counted each time."""
    failures = counter("radixd_allocation_failures", "Operations refused for want of pages", "reason")
    needed = histogram("radixd_refused_pages", "Pages that each operation needed that may be tried again")
    for pool in pools:
        for shortage in Shortage:
            if shortage is not Shortage.HOST or pool.tier is not None:
                failures.add_metric([pool.name, shortage.value], pool.work.shortages[shortage])
        add_histogram(needed, [pool.name], pool.work.refused_pages)
    yield from (failures, needed)
