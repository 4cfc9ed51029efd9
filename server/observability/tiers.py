"""Copies, and what they move between the tiers. Pools without a host tier have no series of one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from prometheus_client.metrics_core import Metric

from radixd.server.cache.counters import Counters
from radixd.server.journal.header import Verdict
from radixd.server.observability.families import counter, gauge
from radixd.server.pools.pool import Pool
from radixd.server.pools.traffic import KINDS, Totals

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


def copies(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Copies under way and ended, moves among them."""
    in_flight = gauge("radixd_copies_in_flight", "Copies under way")
    overdue = gauge("radixd_copies_overdue", "Copies under way beyond their deadline")
    for pool in pools:
        in_flight.add_metric([pool.name], pool.traffic.in_flight)
        overdue.add_metric([pool.name], pool.traffic.overdue)
    yield from (in_flight, overdue)
    for name, (text, figure) in COPIES.items():
        family = counter(name, text, "kind")
        for pool in pools:
            for kind in KINDS:
                if pool.tier is not None or kind not in MOVED:
                    family.add_metric([pool.name, kind], figure(pool.traffic.totals[kind]))
        yield family


def tier_changes(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Pages that have changed tiers, and those that were evicted without a copy."""
    moved = counter("radixd_tier_pages", "Pages that have changed tiers", "kind")
    skipped = counter("radixd_demote_skipped_pages", "Pages that left the device without a copy", "reason")
    for pool in pools:
        if pool.tier is not None:
            for kind, figure in MOVED.items():
                moved.add_metric([pool.name, kind], figure(pool.cache.counters))
            for reason, figure in SKIPPED.items():
                skipped.add_metric([pool.name, reason], figure(pool.cache.counters))
    yield from (moved, skipped)


def imports(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Pages that pools of this daemon read from one another."""
    imported = counter("radixd_imported_pages", "Pages copied from another pool of this daemon")
    lent = counter("radixd_lent_pages", "Pages that another pool has read, or was to read")
    for pool in pools:
        imported.add_metric([pool.name], pool.cache.counters.imported_pages)
        lent.add_metric([pool.name], pool.cache.counters.lent_pages)
    yield from (imported, lent)


def journals(pools: Iterable[Pool]) -> Iterator[Metric]:
    """What the journals hold of the host tiers."""
    writing = gauge("radixd_journal_ok", "0: not kept, the next start is cold")
    live = gauge("radixd_journal_pages", "Host pages that a restart would find")
    size = gauge("radixd_journal_bytes", "Bytes of the journal's file")
    for pool in pools:
        if pool.tier is not None and (kept := pool.tier.journal) is not None:
            writing.add_metric([pool.name], pool.journal == "ok")
            live.add_metric([pool.name], kept.journal.live_pages)
            size.add_metric([pool.name], kept.journal.size)
    yield from (writing, live, size)


def starts(pools: Iterable[Pool]) -> Iterator[Metric]:
    """What this start found in the state directories."""
    verdict = gauge("radixd_start_verdict", "1 for what the state directory was found to be", "verdict")
    adopted = gauge("radixd_start_adopted_pages", "Host pages that this start took over")
    dropped = gauge("radixd_start_dropped_pages", "Pages of the journal that it did not take over", "reason")
    for pool in pools:
        if pool.tier is not None and (found := pool.tier.found) is not None:
            for it in Verdict:
                verdict.add_metric([pool.name, it.value], it is found.verdict)
            adopted.add_metric([pool.name], found.pages)
            for reason, pages in asdict(found.dropped).items():
                dropped.add_metric([pool.name, reason], pages)
    yield from (verdict, adopted, dropped)
