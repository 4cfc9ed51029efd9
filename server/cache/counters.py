"""What a pool has done since its epoch began. Every figure only rises."""

from __future__ import annotations

from dataclasses import dataclass, field

from radixd.server.cache.histogram import TOKENS, Histogram

LOCK_SECONDS = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0)


@dataclass(slots=True)
class Counters:
    """Plain figures, read by whoever shows them."""

    requested_tokens: int = 0  # known to leases when they were acquired
    hit_tokens: int = 0  # of those, read from the cache
    inserted_pages: int = 0  # adopted by the tree
    duplicate_pages: int = 0  # published while the tree held the same tokens already
    evicted_pages: int = 0
    flushed_pages: int = 0
    host_hit_tokens: int = 0  # of hit_tokens, those that came, or were to come, from the host
    demoted_pages: int = 0  # left the device for the host
    demote_skipped_busy: int = 0  # not copied: too many pages under copies
    demote_skipped_outrun: int = 0  # not copied: evicted for a lease before a copy could begin
    demote_skipped_full: int = 0  # not copied: no host page to be had
    demote_failed_pages: int = 0
    promoted_pages: int = 0
    promote_failed_pages: int = 0
    offloaded_pages: int = 0
    restored_pages: int = 0
    imported_hit_tokens: int = 0  # of hit_tokens, those that came, or were to come, from another pool
    imported_pages: int = 0  # from another pool
    import_failed_pages: int = 0
    lent_pages: int = 0  # read, or to be read, by another pool
    operator_evicted_pages: int = 0  # of evicted_pages, those that an operator asked for
    pairs_saved: int = 0  # P²/2 for each hit of P tokens: an indexer scores every token against those before it
    pairs_left: int = 0  # P·S for each: the S tokens that follow are still scored against the hit's
    hit_length: Histogram = field(default_factory=lambda: Histogram(TOKENS))  # of each Acquire, misses as 0
    lease_length: Histogram = field(default_factory=lambda: Histogram(TOKENS))  # tokens known to it at its end
    lock_seconds: Histogram = field(default_factory=lambda: Histogram(LOCK_SECONDS))  # held by leases that have ended

    def acquired(self, known: int, prefix: int) -> None:
        """Counts an Acquire of `known` tokens that found the first `prefix` of them."""
        self.requested_tokens += known
        self.hit_tokens += prefix
        self.hit_length.observe(prefix)
        self.pairs_saved += prefix * prefix // 2
        self.pairs_left += prefix * (known - prefix)
