"""The tree's shape: splits, extensions, and runs compared to the page."""

import itertools
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import CacheConfig
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq


def shape(one: Scheduler) -> list[tuple[int, int]]:
    """Start and length of every run, in pages."""
    check_invariants(one.cache)

    def start(node: Node) -> int:
        return 0 if node.parent is None else start(node.parent) + len(node.parent.pages)

    return sorted((start(node), len(node.pages)) for node in one.cache.tree)


def test_a_run_is_one_node() -> None:
    one = Scheduler.alone(CacheConfig(32))
    one.publish(ramp(20 * PAGE))
    assert shape(one) == [(0, 20)]


def test_a_run_splits_where_sequences_part() -> None:
    one = Scheduler.alone(CacheConfig(32))
    one.publish(seq("ABCD"))
    one.publish(seq("ABXY"))
    assert shape(one) == [(0, 2), (2, 2), (2, 2)]
    one.publish(seq("AZ"))
    assert shape(one) == [(0, 1), (1, 1), (1, 1), (2, 2), (2, 2)]


@pytest.mark.parametrize("at", [0, 1, 31, 62, 63])
def test_sequences_part_at_any_token_of_a_page(at: int) -> None:
    one = Scheduler.alone(CacheConfig(32))
    tokens = np.frombuffer(seq("ABC"), "<u4").copy()
    one.publish(tokens.tobytes())
    tokens[PAGE + at] += 1
    assert one.cached(tokens.tobytes()) == PAGE
    one.publish(tokens.tobytes())
    assert one.cached(tokens.tobytes()) == 3 * PAGE
    assert one.cached(seq("ABC")) == 3 * PAGE


@pytest.mark.parametrize("pages", [1, 255, 256, 257, 2_000])
def test_long_runs_are_compared_to_the_page(pages: int) -> None:
    """Short and long runs take different ways of comparing."""
    one = Scheduler.alone(CacheConfig(4_100))
    tokens = np.arange(pages * PAGE, dtype="<u4")
    one.publish(tokens.tobytes())
    for at in {0, 1, pages * PAGE // 2, pages * PAGE - 1}:
        other = tokens.copy()
        other[at] ^= 1
        assert one.cached(other.tobytes()) == at // PAGE * PAGE
    assert one.cached(tokens.tobytes()) == pages * PAGE


def test_matching_changes_nothing_but_recency() -> None:
    one = Scheduler.alone(CacheConfig(32))
    one.publish(seq("ABCD"))
    one.cache.match(one.id, one.namespace, seq("ABX"))
    assert shape(one) == [(0, 4)]
    assert [node.hits for node in one.cache.tree] == [0]


def test_a_lock_inside_a_run_splits_it_and_locks_the_head() -> None:
    one = Scheduler.alone(CacheConfig(32))
    one.publish(seq("ABCD"))
    lease = one.acquire(seq("ABX"), allocate_to=0)
    assert {(len(node.pages), node.lock_ref) for node in one.cache.tree} == {(2, 1), (2, 0)}
    one.release(lease.lease_id)
    assert {node.lock_ref for node in one.cache.tree} == {0}


def test_max_tokens_caps_a_match() -> None:
    one = Scheduler.alone(CacheConfig(32))
    one.publish(seq("ABCD"))
    expected = {None: 3, 0: 0, 63: 0, 64: 1, 200: 3, 256: 4, 10_000: 4}
    for limit, pages in expected.items():
        match = one.cache.match(one.id, one.namespace, seq("ABCD"), max_tokens=limit)
        assert match.device_tokens == pages * PAGE


def test_memory_of_a_run_stays_within_twice_its_span() -> None:
    """After every split and trim, what a node keeps alive is at most twice what it stands for."""
    one = Scheduler.alone(CacheConfig(600))
    one.publish(ramp(512 * PAGE))
    rng = np.random.default_rng(3)
    for _ in range(120):
        cut = int(rng.integers(0, 512)) * PAGE
        one.publish(ramp(cut) + ramp(PAGE, start=10_000_000))
        one.cache.evict(2)
        for node in one.cache.tree:
            assert len(node.buffer) <= 2 * len(node.pages) * PAGE * 4
            kept = node.pages if node.pages.base is None else node.pages.base
            assert kept.size <= 2 * len(node.pages)
    check_invariants(one.cache)


def test_every_order_of_publishing_gives_the_same_prefixes() -> None:
    for order in itertools.permutations(["ABC", "AB", "ABD", "AE"]):
        one = Scheduler.alone(CacheConfig(32))
        for letters in order:
            one.publish(seq(letters))
        assert shape(one) == [(0, 1), (1, 1), (1, 1), (2, 1), (2, 1)]


def test_long_chains_need_no_recursion() -> None:
    """16,384 nodes of one page each, under a recursion limit of 200."""
    script = textwrap.dedent(
        """
        import sys
        import numpy as np
        from radixd.server.cache.invariants import check_invariants
        from radixd.server.cache.prefix_cache import CacheConfig
        from tests.scheduler import Scheduler
        pages = 16_384
        one = Scheduler.alone(CacheConfig(pages + 8, page_size=4))
        sys.setrecursionlimit(200)
        tokens = np.arange(pages * 4, dtype="<u4").tobytes()
        one.publish(tokens)
        for page in range(pages - 1, 0, -1):  # each lock splits the head of the chain once more
            one.release(one.acquire(tokens[: 16 * page], allocate_to=0, max_tokens=4 * page).lease_id)
        assert one.cache.tree.nodes == pages, one.cache.tree.nodes
        again = one.acquire(tokens)
        assert again.device_tokens == 4 * (pages - 1)
        check_invariants(one.cache)
        one.release(again.lease_id)
        assert one.cache.evict(8_000) == 8_000
        held = one.acquire(tokens, allocate_to=0)
        one.cache.flush()
        one.release(held.lease_id)
        assert one.cache.occupancy().free == pages + 8
        print("done")
        """
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr
