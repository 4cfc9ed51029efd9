"""What the cache has spared the engines: counters and lengths, never a rate."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from radixd.server.observability.families import add_histogram, counter, histogram
from radixd.server.pools.pool import Pool


def tokens(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Tokens asked for and found, and the indexer's work that a hit spares and leaves."""
    requested = counter("radixd_requested_tokens", "Tokens known to leases when they were acquired")
    hits = counter("radixd_hit_tokens", "Requested tokens that the cache had, by where they were", "tier")
    length = histogram("radixd_hit_length_tokens", "Tokens that each Acquire found, misses as 0")
    saved = counter("radixd_indexer_pairs_saved", "Token pairs inside of hits: P²/2 for each hit of P tokens")
    left = counter("radixd_indexer_pairs_left", "Token pairs across: P·S for each hit of P with S tokens behind it")
    for pool in pools:
        counters = pool.cache.counters
        requested.add_metric([pool.name], counters.requested_tokens)
        elsewhere = counters.host_hit_tokens + counters.imported_hit_tokens
        hits.add_metric([pool.name, "device"], counters.hit_tokens - elsewhere)
        hits.add_metric([pool.name, "peer"], counters.imported_hit_tokens)
        if pool.tier is not None:
            hits.add_metric([pool.name, "host"], counters.host_hit_tokens)
        add_histogram(length, [pool.name], counters.hit_length)
        saved.add_metric([pool.name], counters.pairs_saved)
        left.add_metric([pool.name], counters.pairs_left)
    yield from (requested, hits, length, saved, left)


def publications(pools: Iterable[Pool]) -> Iterator[Metric]:
    """Pages that leases gave to the tree."""
    inserted = counter("radixd_inserted_pages", "Pages adopted by the tree")
    duplicate = counter("radixd_duplicate_pages", "Pages published while the tree held their tokens already")
    for pool in pools:
        inserted.add_metric([pool.name], pool.cache.counters.inserted_pages)
        duplicate.add_metric([pool.name], pool.cache.counters.duplicate_pages)
    yield from (inserted, duplicate)
