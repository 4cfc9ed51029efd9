"""Which pages go: each policy's order against a plain sort, and exactly as many as were asked for."""

from collections.abc import Callable

import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq

# Published in this order; then hit as often as stated, in this order; then matched, in this order.
PUBLISHED = {"A": 50, "B": 90, "C": 10, "D": 50, "E": 10}
HITS = {"D": 1, "A": 3, "C": 2}
MATCHED = "B"
ORDER = {
    "priority": "ECDAB",
    "lru": "EDACB",
    "lfu": "EBDCA",
    "slru": "EDBAC",
    "fifo": "ABCDE",
    "filo": "EDCBA",
    "mru": "BCADE",
}


def filled(policy: str) -> Scheduler:
    one = Scheduler.alone(CacheConfig(16, policy=policy))
    for letter, priority in PUBLISHED.items():
        one.publish(seq(letter), priority=priority)
    for letter, times in HITS.items():
        for _ in range(times):
            one.release(one.acquire(seq(letter + "Z"), allocate_to=0).lease_id)
    one.cache.match(one.id, one.namespace, seq(MATCHED + "Z"))
    return one


def test_every_policy_has_an_order_here() -> None:
    assert set(ORDER) == set(POLICIES)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_leaves_go_in_the_order_of_the_policy(policy: str) -> None:
    one = filled(policy)
    gone = ""
    while len(gone) < len(PUBLISHED):
        before = {letter for letter in PUBLISHED if one.cached(seq(letter))}
        assert one.cache.evict(1) == 1
        (victim,) = before - {letter for letter in PUBLISHED if one.cached(seq(letter))}
        gone += victim
    assert gone == ORDER[policy]


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11, 12, 100])
def test_eviction_trims_tails_and_frees_exactly_what_was_asked(policy: str, count: int) -> None:
    one = Scheduler.alone(CacheConfig(16, policy=policy))
    for start in range(3):
        one.publish(ramp(4 * PAGE, start=start * 1_000_000))
    assert one.cache.evict(count) == min(count, 12)
    assert one.cache.occupancy().free == 4 + min(count, 12)
    left = [one.cached(ramp(4 * PAGE, start=start * 1_000_000)) // PAGE for start in range(3)]
    assert sum(left) == 12 - min(count, 12)
    assert sum(0 < pages < 4 for pages in left) <= 1, "one run is used up before the next is touched"
    check_invariants(one.cache)


def test_an_allocation_evicts_no_more_than_it_lacks() -> None:
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABCDEF"))
    one.acquire(seq("XYZ"))
    assert one.cache.occupancy().evictable == 5
    assert one.cache.counters.evicted_pages == 1


def test_a_parent_goes_after_its_children() -> None:
    one = Scheduler.alone(CacheConfig(8, policy="filo"))
    one.publish(seq("AB"))
    one.publish(seq("AC"))
    one.cache.evict(2)
    assert (one.cached(seq("A")), one.cached(seq("AB")), one.cached(seq("AC"))) == (PAGE, PAGE, PAGE)
    one.cache.evict(1)
    assert one.cached(seq("A")) == 0


def test_insert_raises_the_priority_of_its_path_and_a_split_inherits_it() -> None:
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("AB"), priority=20)
    one.publish(seq("ACD"), priority=70)
    priorities = {tuple(node.pages.tolist()): node.priority for node in one.cache.tree}
    assert sorted(priorities.values()) == [20, 70, 70]
    one.release(one.acquire(seq("ACZ"), allocate_to=0).lease_id)
    assert sorted(node.priority for node in one.cache.tree) == [20, 70, 70, 70]
    one.publish(seq("AB"), priority=10)
    assert sorted(node.priority for node in one.cache.tree) == [20, 70, 70, 70]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def retained() -> tuple[Scheduler, Clock, Callable[[], list[int]]]:
    clock = Clock()
    one = Scheduler(PrefixCache(CacheConfig(8), clock=clock))

    def priorities() -> list[int]:
        one.cache.tick()
        check_invariants(one.cache)
        return sorted(node.priority for node in one.cache.tree)

    return one, clock, priorities


def test_retention_counts_from_the_last_hit() -> None:
    one, clock, priorities = retained()
    one.publish(seq("A"), priority=80, retain_seconds=10)
    clock.now = 6.0
    one.release(one.acquire(seq("AZ"), allocate_to=0).lease_id)
    clock.now = 15.9
    assert priorities() == [80]
    clock.now = 16.0
    assert priorities() == [0]


def test_a_match_is_no_hit() -> None:
    one, clock, priorities = retained()
    one.publish(seq("A"), priority=80, retain_seconds=10)
    clock.now = 6.0
    one.cache.match(one.id, one.namespace, seq("AZ"))
    clock.now = 10.0
    assert priorities() == [0]


def test_retention_without_end_outlasts_one_with() -> None:
    one, clock, priorities = retained()
    one.publish(seq("A"), priority=80, retain_seconds=10)
    one.publish(seq("A"), priority=80)
    clock.now = 1_000.0
    assert priorities() == [80]


def test_a_higher_priority_brings_its_own_retention() -> None:
    one, clock, priorities = retained()
    one.publish(seq("A"), priority=20)
    one.publish(seq("A"), priority=80, retain_seconds=10)
    clock.now = 10.0
    assert priorities() == [0]


def test_a_shorter_retention_of_a_higher_priority_holds() -> None:
    one, clock, priorities = retained()
    one.publish(seq("A"), priority=20, retain_seconds=1_000)
    one.publish(seq("A"), priority=80, retain_seconds=10)
    clock.now = 10.0
    assert priorities() == [0]


def test_retention_keeps_nothing_that_is_gone() -> None:
    """A pool that turns over under a long retention held on to every node it ever had."""
    one, _, _ = retained()
    for letter in "ABCDEFGHIJKL":
        one.publish(seq(letter), retain_seconds=1e6)
    assert len(one.cache.tree.retention) == 8
    held = one.acquire(seq("LM"), allocate_to=PAGE).lease_id
    one.cache.flush()
    one.release(held)
    assert len(one.cache.tree.retention) == 0


def test_both_halves_of_a_split_expire() -> None:
    one, clock, priorities = retained()
    one.publish(seq("AB"), priority=80, retain_seconds=10)
    one.publish(seq("AC"), priority=30)
    assert priorities() == [30, 80, 80]
    clock.now = 10.0
    assert priorities() == [0, 0, 30]


def test_an_allocation_sees_that_retention_is_over() -> None:
    one, clock, _ = retained()
    one.publish(seq("ABC"), priority=80, retain_seconds=10)
    one.publish(seq("DEFGH"), priority=50)
    clock.now = 11.0
    one.acquire(seq("XY"))
    assert (one.cached(seq("ABC")), one.cached(seq("DEFGH"))) == (PAGE, 5 * PAGE)
