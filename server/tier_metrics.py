"""What Prometheus scrapes of copies and of host tiers. Pools without a host tier have no series of one."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from radixd.server.cache.counters import Counters
from radixd.server.pool import Pool
from radixd.server.traffic import KINDS, Totals

MOVED: dict[str, Callable[[Counters], int]] = {
    "demote": lambda counters: counters.demoted_pages,
    "promote": lambda counters: counters.promoted_pages,
    "offload": lambda counters: counters.offloaded_pages,
    "restore": lambda counters: counters.restored_pages,
}
SKIPPED: dict[str, Callable[[Counters], int]] = {
    "busy": lambda counters: counters.demote_skipped_busy,
    "outrun": lambda counters: counters.demote_skipped_outrun,
    "full": lambda counters: counters.demote_skipped_full,
}
COPIES: dict[str, tuple[str, Callable[[Totals], float]]] = {
    "radixd_copies": ("Copies that have ended", lambda totals: totals.copies),
    "radixd_copies_failed": ("Copies that have ended badly", lambda totals: totals.failed),
    "radixd_copies_late": ("Copies that have passed their deadline", lambda totals: totals.late),
    "radixd_copy_bytes": ("Bytes of copies that went well", lambda totals: totals.bytes),
    "radixd_copy_seconds": ("From the plans of ended copies to their ends", lambda totals: totals.seconds),
}


def journals(pools: Iterable[Pool]) -> Iterator[Metric]:
    """What the journals hold of the host tiers."""
    tiers = [pool for pool in pools if pool.tier is not None]
    writing = GaugeMetricFamily("radixd_journal_ok", "0: not kept, the next start is cold", labels=["pool"])
    live = GaugeMetricFamily("radixd_journal_pages", "Host pages that a restart would find", labels=["pool"])
    size = GaugeMetricFamily("radixd_journal_bytes", "Bytes of the journal's file", labels=["pool"])
    for pool in tiers:
        if pool.tier is not None and (kept := pool.tier.journal) is not None:
            writing.add_metric([pool.name], pool.journal == "ok")
            live.add_metric([pool.name], kept.journal.live_pages)
            size.add_metric([pool.name], kept.journal.size)
    yield from (writing, live, size)


def host_counters(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Pages that have changed tiers, and those that were evicted without a copy."""
    tiers = [pool for pool in pools if pool.tier is not None]
    moved = CounterMetricFamily("radixd_tier_pages", "Pages that have changed tiers", labels=["pool", "kind"])
    skipped = CounterMetricFamily(
        "radixd_demote_skipped_pages", "Pages not copied: copies busy, or the host full", labels=["pool", "reason"]
    )
    for pool in tiers:
        for kind, figure in MOVED.items():
            moved.add_metric([pool.name, kind], figure(pool.cache.counters))
        for reason, figure in SKIPPED.items():
            skipped.add_metric([pool.name, reason], figure(pool.cache.counters))
    yield from (moved, skipped)


def copies(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Copies under way and ended, moves among them."""
    pools = list(pools)
    in_flight = GaugeMetricFamily("radixd_copies_in_flight", "Copies under way", labels=["pool"])
    overdue = GaugeMetricFamily("radixd_copies_overdue", "Copies under way beyond their deadline", labels=["pool"])
    for pool in pools:
        in_flight.add_metric([pool.name], pool.traffic.in_flight)
        overdue.add_metric([pool.name], pool.traffic.overdue)
    yield from (in_flight, overdue)
    for name, (text, figure) in COPIES.items():
        family = CounterMetricFamily(name, text, labels=["pool", "kind"])
        for pool in pools:
            for kind in KINDS if pool.tier is not None else KINDS[:1]:
                family.add_metric([pool.name, kind], figure(pool.traffic.totals[kind]))
        yield family
