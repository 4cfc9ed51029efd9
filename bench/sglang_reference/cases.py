"""What is timed inside the reference process. Each case is set up once and then sampled as often as asked.

A sample is one operation's nanoseconds; whatever restores the tree for the next one runs outside of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import count, islice
from time import perf_counter_ns
from typing import Protocol

from bench.sglang_reference.request import as_request_tokens, prefill
from bench.sglang_reference.trees import PrefixTree
from bench.workload import PAGE_TOKENS, POOL_TOKENS, PREFILLS_UNTIL_STEADY, leaf_tokens, node_ends, prefill_prompts


class Case(Protocol):
    def sample(self) -> int:
        """One operation's nanoseconds."""


def _chain(name: str, tokens: int, nodes: int) -> tuple[PrefixTree, array[int]]:
    """A tree that caches `tokens` tokens as `nodes` nodes in a row, and a prompt of those and one token more."""
    tree = PrefixTree(name, pool_tokens=tokens)
    prompt = as_request_tokens(leaf_tokens(0, tokens + 1))
    slots = tree.allocate(tokens // PAGE_TOKENS)
    start = 0
    for end in node_ends(tokens, nodes):
        tree.insert(prompt[:end], slots, held=start)
        start = end
    return tree, prompt


class Match:
    """Matches a prompt that is cached but for its last token."""

    def __init__(self, tree: str, tokens: int, nodes: int) -> None:
        self._tree, self._prompt = _chain(tree, tokens, nodes)
        self._tokens = tokens

    def sample(self) -> int:
        start = perf_counter_ns()
        hit, _ = self._tree.match(self._prompt, limit=self._tokens)
        took = perf_counter_ns() - start
        if hit != self._tokens:
            raise AssertionError(f"matched {hit} of {self._tokens} tokens")
        return took


class Insert:
    """Inserts tokens of which nothing is cached; they are evicted again before the next sample."""

    def __init__(self, tree: str, tokens: int) -> None:
        self._tree = PrefixTree(tree, pool_tokens=tokens)
        self._tokens = as_request_tokens(leaf_tokens(0, tokens))

    def sample(self) -> int:
        slots = self._tree.allocate(len(self._tokens) // PAGE_TOKENS)
        start = perf_counter_ns()
        self._tree.insert(self._tokens, slots, held=0)
        took = perf_counter_ns() - start
        self._tree.evict(len(self._tokens))
        return took


class Evict:
    """Evicts one page from a full pool of one-page leaves; a new leaf takes its place before the next sample."""

    def __init__(self, tree: str, leaves: int) -> None:
        self._tree = PrefixTree(tree, pool_tokens=leaves * PAGE_TOKENS)
        self._numbers = count()
        for _ in range(leaves):
            self._add_leaf()

    def _add_leaf(self) -> None:
        leaf = as_request_tokens(leaf_tokens(next(self._numbers), PAGE_TOKENS))
        self._tree.insert(leaf, self._tree.allocate(1), held=0)

    def sample(self) -> int:
        start = perf_counter_ns()
        self._tree.evict(PAGE_TOKENS)
        took = perf_counter_ns() - start
        self._add_leaf()
        return took


class Lock:
    """Locks the last of `depth` one-page nodes in a row."""

    def __init__(self, tree: str, depth: int) -> None:
        self._tree, prompt = _chain(tree, depth * PAGE_TOKENS, depth)
        _, self._node = self._tree.match(prompt, limit=depth * PAGE_TOKENS)

    def sample(self) -> int:
        start = perf_counter_ns()
        lock = self._tree.lock(self._node)
        took = perf_counter_ns() - start
        self._tree.unlock(lock)
        return took


class Unlock(Lock):
    """Unlocks what Lock locks."""

    def sample(self) -> int:
        lock = self._tree.lock(self._node)
        start = perf_counter_ns()
        self._tree.unlock(lock)
        return perf_counter_ns() - start


class Prefill:
    """Serves one whole request of `workload.prefill_prompts` on a pool that is full."""

    def __init__(self, tree: str, seed: int) -> None:
        self._tree = PrefixTree(tree, pool_tokens=POOL_TOKENS)
        self._prompts = prefill_prompts(seed)
        for prompt in islice(self._prompts, PREFILLS_UNTIL_STEADY):
            prefill(self._tree, as_request_tokens(prompt))

    def sample(self) -> int:
        prompt = as_request_tokens(next(self._prompts))
        start = perf_counter_ns()
        prefill(self._tree, prompt)
        return perf_counter_ns() - start


CASES: dict[str, Callable[..., Case]] = {
    "match": Match,
    "insert": Insert,
    "evict": Evict,
    "lock": Lock,
    "unlock": Unlock,
    "prefill": Prefill,
}
