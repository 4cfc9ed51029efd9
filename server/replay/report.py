"""What a run has shown: tables for people, JSON for programs."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add

from radixd.server.cli.output import print_table
from radixd.server.replay.counted import counted
from radixd.server.replay.fleet import Results
from radixd.server.replay.hits import Hits
from radixd.server.replay.page_counts import PageCounts
from radixd.server.replay.pool_admin import Ledger
from radixd.server.replay.pool_share import PoolShare

HIT_EDGES = (1, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)
"""Lower edges, in tokens, of the hit-length distribution; below the first is a miss."""


@dataclass(frozen=True, slots=True)
class Report:
    """One finished run."""

    results: Results
    schedulers: int
    pools: tuple[PoolShare, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Every request ended, every byte was right, and every pool's ledger adds up."""
        results = self.results
        return not results.failures and not results.unfinished and not results.tally.mismatches and self.ledgers_ok

    @property
    def ledgers_ok(self) -> bool:
        """Each pool's for itself."""
        return all(pool.ledger.ok for pool in self.pools)

    @property
    def hits(self) -> Hits:
        """Of all requests that ended."""
        return Hits.of(self.results.outcomes.values())

    @property
    def counts(self) -> PageCounts:
        """Of all pools together."""
        return reduce(add, (pool.counts for pool in self.pools))

    @property
    def ledger(self) -> Ledger:
        """Of all pools together."""
        return reduce(add, (pool.ledger for pool in self.pools))

    @property
    def turnovers(self) -> float:
        """Evicted pages as multiples of the pools."""
        return self.counts.left_device / self.ledger.device.total

    def figures(self) -> dict[str, object]:
        """Everything, as plain data. Latencies in milliseconds."""
        results, tally, ledger = self.results, self.results.tally, self.ledger
        return {
            "ok": self.ok,
            "requests": results.requests,
            "finished": results.count("finished"),
            "aborts": results.count("aborted"),
            "never_fit": results.count("never_fit"),
            "unfinished": results.unfinished,
            "schedulers": self.schedulers,
            "seconds": round(self.seconds, 3),
            "requests_per_second": round(len(results.outcomes) / self.seconds, 2),
            **self.hits.figures(),
            "output_tokens": tally.output_tokens,
            "mismatches": tally.mismatches,
            "mismatch_texts": tally.mismatch_texts,
            "bytes_written": tally.bytes_written,
            "bytes_verified": tally.bytes_verified,
            "kills": results.kills,
            "outside_kills": results.outside_kills,
            "rollbacks": tally.rollbacks,
            "preemptions": tally.preemptions,
            "offloads": tally.offloads,
            "restores": tally.restores,
            "reconnects": tally.reconnects,
            "restarts": results.restarts,
            "steps": tally.steps,
            "batches": tally.batches,
            "pool_pages": ledger.device.total,
            "host_pages": ledger.host.total,
            **asdict(self.counts),
            "evicted_pages": self.counts.left_device,
            "evicted_pools": round(self.turnovers, 2),
            "ledger_ok": self.ledgers_ok,
            "ledger": asdict(ledger),
            "pools": [pool.figures() for pool in self.pools],
            "failures": results.failures,
            "hit_lengths": dict(self._hit_lengths()),
            "latencies_ms": {
                verb: {"batches": count, "p50": round(p50, 3), "p99": round(p99, 3)}
                for verb, count, p50, p99 in self._latencies()
            },
        }

    def to_json(self) -> str:
        """`figures`, for --report."""
        return json.dumps(self.figures(), indent=2) + "\n"

    def print(self) -> None:
        """Tables on stdout."""
        pools = ", ".join(pool.name for pool in self.pools)
        kinds = " / ".join(dict.fromkeys(pool.kind for pool in self.pools))
        title = f"replay of {self.results.requests:,} requests by {self.schedulers} schedulers on {pools}: {kinds}"
        print_table(("", title), self._summary())
        print()
        if len(self.pools) > 1:
            print_table(("pool", "requests", "hits", "evicted pages", "ledger", "host ledger"), self._by_pool())
            print()
        print_table(("hit length, tokens", "requests"), self._hit_lengths())
        print()
        print_table(("verb", "batches", "p50 ms", "p99 ms"), self._rounded_latencies())
        for line in (*self.results.tally.mismatch_texts, *self.results.failures, *self.ledger.violations):
            print(f"! {line}")
        print("\nall right" if self.ok else "\nNOT all right")

    def _summary(self) -> Iterator[tuple[str, str]]:
        results, tally, ledger, counts = self.results, self.results.tally, self.ledger, self.counts
        yield "time", f"{self.seconds:.1f} s, {len(results.outcomes) / self.seconds:,.1f} requests/s"
        yield (
            "requests",
            f"{results.count('finished'):,} finished, {results.count('aborted'):,} aborted, "
            f"{results.count('never_fit'):,} never fit, {results.unfinished:,} unfinished",
        )
        yield "tokens", f"{self.hits.prompt_tokens:,} prompt, {tally.output_tokens:,} output"
        yield "hits", str(self.hits)
        yield "bytes", f"{tally.bytes_written:,} written, {tally.bytes_verified:,} verified"
        yield "mismatches", f"{tally.mismatches:,}"
        outside = f" and {results.outside_kills} from outside" if results.outside_kills else ""
        yield (
            "faults",
            f"{counted(results.kills, 'kill')}{outside}, {counted(results.count('aborted'), 'abort')}, "
            f"{counted(tally.rollbacks, 'rollback')}, {counted(tally.reconnects, 'reconnect')}, "
            f"{counted(results.restarts, 'restart')}",
        )
        yield (
            "preemptions",
            f"{counted(tally.preemptions, 'preemption')}: {tally.offloads} offloaded, {tally.restores} restored, "
            f"{tally.preemptions - tally.offloads} computed again",
        )
        yield (
            "evicted",
            f"{counts.left_device:,} pages, {self.turnovers:.1f} times the {'pools' if self.pools[1:] else 'pool'}",
        )
        if ledger.host.total:
            yield (
                "copied pages",
                f"{counts.demoted_pages:,} demoted, {counts.promoted_pages:,} promoted, "
                f"{counts.offloaded_pages:,} offloaded, {counts.restored_pages:,} restored, "
                f"{counts.failed_copy_pages:,} failed; {counts.demote_skipped_pages:,} dropped for want of a copy",
            )
        if counts.imported_pages or counts.lent_pages:
            yield "peers", f"{counts.imported_pages:,} pages imported, {counts.lent_pages:,} lent"
        yield "ledger", str(ledger)
        if ledger.host.total:
            yield "host ledger", str(ledger.host)
        yield "steps", f"{tally.steps:,} in {tally.batches:,} batches"

    def _by_pool(self) -> Iterator[tuple[object, ...]]:
        for pool in self.pools:
            host = str(pool.ledger.host) if pool.ledger.host.total else "none"
            yield pool.name, pool.hits.requests, str(pool.hits), pool.counts.left_device, str(pool.ledger), host

    def _hit_lengths(self) -> Iterator[tuple[str, int]]:
        hits = [outcome.hit_tokens for outcome in self.results.outcomes.values()]
        lows = (0, *HIT_EDGES)
        for low, high in zip(lows, (*HIT_EDGES, None), strict=True):
            count = sum(low <= hit and (high is None or hit < high) for hit in hits)
            if count:
                yield ("0" if low == 0 else f"{low:,} and more" if high is None else f"{low:,} to {high - 1:,}"), count

    def _latencies(self) -> Iterator[tuple[str, int, float, float]]:
        """(verb, Batches that carried it, p50 and p99 of their round trips in milliseconds)."""
        for verb, latencies in sorted(self.results.tally.latencies.items()):
            yield verb, latencies.samples, 1e3 * latencies.quantile(0.5), 1e3 * latencies.quantile(0.99)

    def _rounded_latencies(self) -> Iterator[tuple[str, int, str, str]]:
        for verb, count, p50, p99 in self._latencies():
            yield verb, count, f"{p50:.2f}", f"{p99:.2f}"
