"""Field reports, group C: what goes first, and what never goes."""

import pytest

from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from tests.property.observed import fingerprint
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq


def test_a_sequence_goes_from_its_tail() -> None:
    """C1: pages of one sequence shared a time, so ancestors went first and left the rest unreachable."""
    one = Scheduler.alone(CacheConfig(3))
    one.publish(seq("ABC"))
    for left in (2, 1, 0):
        assert one.cache.evict(1) == 1
        assert one.cached(seq("ABC")) == left * PAGE


def test_batched_releases_keep_the_order() -> None:
    """C1: a deferred free path reversed the order."""
    one = Scheduler.alone(CacheConfig(8))
    one.batch(launch=1)
    leases = [one.acquire(seq(letters)) for letters in ("ABC", "DEF")]
    for lease in leases:
        one.release(lease.lease_id, publish_to=3 * PAGE, after_step=1)
    one.batch(complete=True)
    assert one.cache.evict(4) == 4
    assert (one.cached(seq("ABC")), one.cached(seq("DEF"))) == (0, 2 * PAGE)


def test_an_admission_counts_its_own_prefix_as_taken() -> None:
    """C2: the matched prefix counted as evictable; once locked, the allocation failed fatally."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABCDEF"))
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("ABCDEFGHIJ"))
    assert refusal.value.reason is Reason.NEVER_FITS
    assert refusal.value.facts["max_pages"] == 8
    assert fingerprint(one.cache) == before
    assert one.acquire(seq("ABCDEFGH")).pages.size == 8


def test_an_admission_that_another_lease_leaves_no_room_for_changes_nothing() -> None:
    """C2: six cached pages and two new ones fill the pool; with one page leased they do not fit, and then they do."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABCDEF"))
    other = one.acquire(seq("Z"))
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("ABCDEFGH"))
    assert refusal.value.reason is Reason.NO_PAGES
    assert {name: refusal.value.facts[name] for name in ("free", "evictable")} == {"free": 1, "evictable": 6}
    assert fingerprint(one.cache) == before
    one.release(other.lease_id)
    assert one.acquire(seq("ABCDEFGH")).pages.size == 8


def test_lower_priority_goes_first_then_the_longest_unused() -> None:
    """C3: eviction by priority, then time."""
    one = Scheduler.alone(CacheConfig(3))
    one.publish(seq("Q"), priority=5)
    one.publish(seq("R"), priority=5)
    one.publish(seq("P"), priority=0)
    for gone in "PQR":
        assert one.cached(seq(gone)) == PAGE
        one.cache.evict(1)
        assert one.cached(seq(gone)) == 0


def test_a_retained_priority_falls_after_its_last_hit() -> None:
    """C5: pins held memory that a router may never come back to; a priority that expires does not."""
    now = 0.0
    cache = PrefixCache(CacheConfig(4), clock=lambda: now)
    one = Scheduler(cache)
    one.publish(seq("A"), priority=90, retain_seconds=10)
    one.publish(seq("B"), priority=50)
    now = 9.0
    one.release(one.acquire(seq("AZ"), allocate_to=0).lease_id)
    now = 18.0
    cache.tick()
    assert {node.priority for node in cache.tree} == {50, 90}
    now = 20.0
    cache.tick()
    assert {node.priority for node in cache.tree} == {0, 50}
    cache.evict(1)
    assert (one.cached(seq("A")), one.cached(seq("B"))) == (0, PAGE)


def test_what_is_published_last_goes_last() -> None:
    """C1: a page that nobody had hit yet stood in the queue as if it had never been used."""
    one = Scheduler.alone(CacheConfig(4))
    for letters in ("A", "B", "C"):
        one.publish(seq(letters))
    assert one.cache.evict(1) == 1
    assert (one.cached(seq("A")), one.cached(seq("B")), one.cached(seq("C"))) == (0, PAGE, PAGE)
    one.publish(seq("D"))
    one.release(one.acquire(seq("BZ"), allocate_to=0).lease_id)
    assert one.cache.evict(1) == 1
    assert (one.cached(seq("B")), one.cached(seq("C")), one.cached(seq("D"))) == (PAGE, 0, PAGE)


def test_a_copy_is_no_use_of_what_it_copies() -> None:
    """C10: recency is what leases have used, not what the daemon has moved about."""
    one = Scheduler.alone(CacheConfig(4, host_pages=4, write_policy=WritePolicy.WRITE_THROUGH))
    one.publish(seq("A"))
    (plan,) = one.cache.take_plans()
    one.publish(seq("B"))
    one.cache.finish_copy(plan.copy_id)
    assert one.cache.evict(1) == 1
    assert (one.cached(seq("A")), one.cached(seq("B"))) == (0, PAGE)


def test_a_page_is_queued_once() -> None:
    """C6: pinning a page without taking it out of the queue gave a second entry."""
    one = Scheduler.alone(CacheConfig(4))
    one.publish(seq("A"))
    for _ in range(3):
        lease = one.acquire(seq("AB"), allocate_to=0)
        assert len(one.cache.device) == 0
        one.release(lease.lease_id)
        check_invariants(one.cache)
    assert len(one.cache.device) == 1
    assert one.cache.evict(2) == 1


def test_a_lock_is_released_where_it_was_taken() -> None:
    """C8: lock and unlock walked different nodes, because a split came between."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABC"))
    first = one.acquire(seq("ABCZ"), allocate_to=0)
    second = one.acquire(seq("ABD"))
    one.insert(second.lease_id, 3 * PAGE)
    one.release(first.lease_id)
    assert (one.cache.occupancy().protected, one.cache.occupancy().evictable) == (3, 1)
    assert one.cache.evict(8) == 1
    with pytest.raises(Refusal) as refusal:
        one.release(first.lease_id)
    assert refusal.value.reason is Reason.NO_LEASE
    one.release(second.lease_id)
    assert (one.cache.occupancy().protected, one.cache.occupancy().evictable) == (0, 3)
    check_invariants(one.cache)


def test_a_hit_refreshes_and_eviction_frees_what_was_asked() -> None:
    """C10: read hits did not refresh recency; cascading deletes freed more than was asked."""
    one = Scheduler.alone(CacheConfig(8))
    for letters in ("AX", "BX", "CX"):
        one.publish(seq(letters))
    one.cache.match(one.id, one.namespace, seq("AXZ"))
    assert one.cache.evict(1) == 1
    assert [one.cached(seq(letters)) for letters in ("AX", "BX", "CX")] == [128, 64, 128]
    assert one.cache.evict(2) == 2
    assert [one.cached(seq(letters)) for letters in ("AX", "BX", "CX")] == [128, 0, 64]
    assert one.cache.counters.evicted_pages == 3


def test_a_hit_in_the_middle_of_a_run_refreshes_it() -> None:
    """C10: a match that ends inside a node."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABC"))
    one.publish(seq("DEF"))
    one.cache.match(one.id, one.namespace, seq("ABZ"))
    one.cache.evict(3)
    assert (one.cached(seq("ABC")), one.cached(seq("DEF"))) == (3 * PAGE, 0)


def test_a_long_chain_never_evicts_itself() -> None:
    """C13: a commit's own allocation evicted blocks of the sequence being committed."""
    pages = 256
    one = Scheduler.alone(CacheConfig(pages))
    one.publish(ramp(pages * PAGE, start=1_000_000))
    lease = one.acquire(ramp(PAGE), reserve_to=pages * PAGE)
    for page in range(1, pages):
        one.cache.allocate(one.id, lease.lease_id, (page + 1) * PAGE, ramp(PAGE, start=page * PAGE))
        assert one.insert(lease.lease_id, (page + 1) * PAGE).published == (page + 1) * PAGE
    check_invariants(one.cache)
    one.release(lease.lease_id)
    assert one.cached(ramp(pages * PAGE)) == pages * PAGE


def test_an_unfinished_prefix_stays_while_its_lease_lives() -> None:
    """C14: a mid-prefill checkpoint was inserted unlocked, and evicted under its writer."""
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("ABCD"))
    one.insert(lease.lease_id, 2 * PAGE)
    assert one.cache.evict(8) == 0
    one.release(lease.lease_id)
    assert one.cache.evict(8) == 2
