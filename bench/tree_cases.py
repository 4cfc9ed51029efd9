"""What is timed of radixd's cache core: the cases of sglang_reference/cases.py, by the same names, and some of its own.

A sample is one operation's nanoseconds; whatever restores the cache for the next one runs outside of it.
"""

from collections.abc import Callable
from itertools import count, islice
from time import perf_counter_ns
from typing import Protocol

from bench.workload import PAGE_TOKENS, POOL_TOKENS, PREFILLS_UNTIL_STEADY, leaf_tokens, node_ends, prefill_prompts
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.session import Dedup
from radixd.server.cache.step import StepMark

SESSION = 1
NAMESPACE = Namespace(b"bench")


class Case(Protocol):
    def sample(self) -> int:
        """One operation's nanoseconds."""


def sampler(case: Case) -> Callable[[int], list[int]]:
    """The case as a side that takes turns."""
    return lambda repeats: [case.sample() for _ in range(repeats)]


def new_cache(tokens: int) -> PrefixCache:
    """A cache of that many usable tokens under `lru`, with one session."""
    cache = PrefixCache(CacheConfig(pages=tokens // PAGE_TOKENS, page_size=PAGE_TOKENS, policy="lru"))
    cache.open_session(SESSION, NAMESPACE.model, Dedup.KEEP)
    return cache


def add(cache: PrefixCache, tokens: bytes) -> None:
    """Caches the whole pages of `tokens`, which evicts what it must."""
    lease = cache.acquire(SESSION, NAMESPACE, tokens)
    cache.release(SESSION, lease.lease_id, publish_to=len(tokens) // 4)


def cached_chain(tokens: int, nodes: int) -> tuple[PrefixCache, bytes]:
    """A cache of `tokens` tokens as `nodes` nodes in a row, and a prompt of those and one token more."""
    cache = new_cache(tokens)
    prompt = leaf_tokens(0, tokens + 1).tobytes()
    for end in node_ends(tokens, nodes):
        add(cache, prompt[: 4 * end])
    return cache, bytes(bytearray(prompt))  # memory of its own, as off the wire


class Match:
    """Matches a prompt that is cached but for its last token."""

    def __init__(self, tokens: int, nodes: int) -> None:
        self._cache, self._prompt = cached_chain(tokens, nodes)
        self._tokens = tokens

    def sample(self) -> int:
        start = perf_counter_ns()
        found = self._cache.match(SESSION, NAMESPACE, self._prompt)
        took = perf_counter_ns() - start
        if found.device_tokens != self._tokens:
            raise AssertionError(f"matched {found.device_tokens} of {self._tokens} tokens")
        return took


class FlatCompare:
    """Compares two equal runs of tokens in different memory: the floor under a match."""

    def __init__(self, tokens: int) -> None:
        self._one = leaf_tokens(0, tokens).tobytes()
        self._other = bytes(bytearray(self._one))

    def sample(self) -> int:
        start = perf_counter_ns()
        equal = self._one == self._other
        took = perf_counter_ns() - start
        if not equal:
            raise AssertionError("the runs differ")
        return took


class Insert:
    """Inserts tokens of which nothing is cached; they are evicted again before the next sample."""

    def __init__(self, tokens: int) -> None:
        self._cache = new_cache(tokens)
        self._tokens = leaf_tokens(0, tokens).tobytes()

    def sample(self) -> int:
        lease = self._cache.acquire(SESSION, NAMESPACE, self._tokens)
        start = perf_counter_ns()
        self._cache.insert(SESSION, lease.lease_id, len(self._tokens) // 4)
        took = perf_counter_ns() - start
        self._cache.release(SESSION, lease.lease_id)
        self._cache.evict(self._cache.config.pages)
        return took


class FullPool:
    """A cache whose every page is a leaf of its own."""

    def __init__(self, leaves: int) -> None:
        self.cache = new_cache(leaves * PAGE_TOKENS)
        self._numbers = count()
        for _ in range(leaves):
            self.add_leaf()

    def add_leaf(self) -> None:
        add(self.cache, leaf_tokens(next(self._numbers), PAGE_TOKENS).tobytes())


class Evict:
    """Evicts one page from a full pool; a new leaf takes its place before the next sample."""

    def __init__(self, pool: FullPool) -> None:
        self._pool = pool

    def sample(self) -> int:
        start = perf_counter_ns()
        self._pool.cache.evict(1)
        took = perf_counter_ns() - start
        self._pool.add_leaf()
        return took


class EvictAndInsert:
    """Evicts one page from a full pool and puts a new leaf into its place."""

    def __init__(self, pool: FullPool) -> None:
        self._pool = pool

    def sample(self) -> int:
        start = perf_counter_ns()
        self._pool.cache.evict(1)
        self._pool.add_leaf()
        return perf_counter_ns() - start


class Lock:
    """Locks the last of `depth` one-page nodes in a row."""

    def __init__(self, depth: int) -> None:
        cache, prompt = cached_chain(depth * PAGE_TOKENS, depth)
        self._locks = cache.residence
        walk = cache.tree.walk(NAMESPACE, prompt, depth)
        if walk is None or walk.pages != depth:
            raise AssertionError(f"no {depth} nodes are cached")
        self._node = walk.node

    def sample(self) -> int:
        start = perf_counter_ns()
        self._locks.lock(self._node)
        took = perf_counter_ns() - start
        self._locks.unlock(self._node)
        return took


class Unlock(Lock):
    """Unlocks what Lock locks."""

    def sample(self) -> int:
        self._locks.lock(self._node)
        start = perf_counter_ns()
        self._locks.unlock(self._node)
        return perf_counter_ns() - start


class Prefill:
    """Serves one whole request of `workload.prefill_prompts` on a pool that is full, as two Batches of two steps.

    One acquires: match, lock, allocate with eviction. The next, its step completed, releases: insert, unlock, and the
    partly filled last page goes free.
    """

    def __init__(self, seed: int) -> None:
        self._cache = new_cache(POOL_TOKENS)
        self._prompts = prefill_prompts(seed)
        self._seqs = count(1)
        for prompt in islice(self._prompts, PREFILLS_UNTIL_STEADY):
            self._serve(prompt.tobytes())

    def _serve(self, tokens: bytes) -> None:
        self._step()
        lease = self._cache.acquire(SESSION, NAMESPACE, tokens)
        self._step()
        self._cache.release(SESSION, lease.lease_id, publish_to=len(tokens) // 4)

    def _step(self) -> None:
        seq = next(self._seqs)
        self._cache.advance(SESSION, StepMark(seq=seq, ack=seq - 1, launched=seq, completed=seq))

    def sample(self) -> int:
        tokens = next(self._prompts).tobytes()
        start = perf_counter_ns()
        self._serve(tokens)
        return perf_counter_ns() - start
