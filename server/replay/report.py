"""What a run has shown: tables for people, JSON for programs."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from radixd.server.cli.output import print_table
from radixd.server.replay.fleet import Results
from radixd.server.replay.page_counts import PageCounts
from radixd.server.replay.pool_admin import Ledger
from radixd.v1 import admin_pb2

HIT_EDGES = (1, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)
"""Lower edges, in tokens, of the hit-length distribution; below the first is a miss."""


@dataclass(frozen=True, slots=True)
class Report:
    """One finished run."""

    results: Results
    schedulers: int
    pool: admin_pb2.PoolOccupancy
    counts: PageCounts
    ledger: Ledger
    seconds: float

    @property
    def ok(self) -> bool:
        """Every request ended, every byte was right, and the ledger adds up."""
        results = self.results
        return not results.failures and not results.unfinished and not results.tally.mismatches and self.ledger.ok

    @property
    def prompt_tokens(self) -> int:
        """Of all requests that ended."""
        return sum(outcome.prompt_tokens for outcome in self.results.outcomes.values())

    @property
    def hit_tokens(self) -> int:
        """Of their prompts, what their first Acquire found cached."""
        return sum(outcome.hit_tokens for outcome in self.results.outcomes.values())

    @property
    def host_hit_tokens(self) -> int:
        """Of the hits, those that came from the host."""
        return sum(outcome.host_hit_tokens for outcome in self.results.outcomes.values())

    @property
    def hit_rate(self) -> float:
        """Of the prompts' tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def evicted_pages(self) -> int:
        """Cached pages that left the device: dropped on demand, or copied to the host before."""
        return self.counts.evicted_pages + self.counts.demoted_pages

    @property
    def turnovers(self) -> float:
        """Evicted pages as multiples of the pool."""
        return self.evicted_pages / self.ledger.device.total

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
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": tally.output_tokens,
            "hit_tokens": self.hit_tokens,
            "device_hit_tokens": self.hit_tokens - self.host_hit_tokens,
            "host_hit_tokens": self.host_hit_tokens,
            "hit_rate": round(self.hit_rate, 6),
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
            "evicted_pages": self.evicted_pages,
            "evicted_pools": round(self.turnovers, 2),
            "ledger_ok": ledger.ok,
            "ledger": {
                "device": asdict(ledger.device),
                "host": asdict(ledger.host),
                "leases": ledger.leases,
                "violations": ledger.violations,
            },
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
        pool = self.pool
        title = (
            f"replay of {self.results.requests:,} requests by {self.schedulers} schedulers on pool {pool.pool}: "
            f"{pool.geometry}, {pool.device_kind}, {pool.layout}, {pool.policy}, {self.ledger.device.total:,} pages"
        )
        if pool.host.total:
            title += f"; host tier of {pool.host.total:,} pages, {pool.write_policy}"
        print_table(("", title), self._summary())
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
        yield "tokens", f"{self.prompt_tokens:,} prompt, {tally.output_tokens:,} output"
        yield (
            "hits",
            f"{self.hit_tokens:,} tokens, {self.hit_rate:.2%} of the prompts: "
            f"{self.hit_tokens - self.host_hit_tokens:,} on the device, {self.host_hit_tokens:,} from the host",
        )
        yield "bytes", f"{tally.bytes_written:,} written, {tally.bytes_verified:,} verified"
        yield "mismatches", f"{tally.mismatches:,}"
        outside = f" and {results.outside_kills} from outside" if results.outside_kills else ""
        yield (
            "faults",
            f"{results.kills} kills{outside}, {results.count('aborted')} aborts, {tally.rollbacks} rollbacks, "
            f"{tally.reconnects} reconnects, {results.restarts} restarts",
        )
        yield (
            "preemptions",
            f"{tally.preemptions} preemptions: {tally.offloads} offloaded, {tally.restores} restored, "
            f"{tally.preemptions - tally.offloads} computed again",
        )
        yield "evicted", f"{self.evicted_pages:,} pages, {self.turnovers:.1f} times the pool"
        if ledger.host.total:
            yield (
                "copied pages",
                f"{counts.demoted_pages:,} demoted, {counts.promoted_pages:,} promoted, "
                f"{counts.offloaded_pages:,} offloaded, {counts.restored_pages:,} restored, "
                f"{counts.failed_copy_pages:,} failed; {counts.demote_skipped_pages:,} dropped for want of a copy",
            )
        yield "ledger", f"{'balanced' if ledger.ok else 'NOT balanced'}: {ledger.device}; {ledger.leases} leases"
        if ledger.host.total:
            yield "host ledger", str(ledger.host)
        yield "steps", f"{tally.steps:,} in {tally.batches:,} batches"

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
