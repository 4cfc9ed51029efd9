"""Field reports, group A: every page has one owner, and comes back exactly once."""

import numpy as np
import pytest

from radixd.gpu_pool.layout import LayoutKind
from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.session import Dedup
from tests.property.observed import fingerprint
from tests.scheduler import Scheduler
from tests.sequences import PAGE, length, seq
from tests.two_tiers import TwoTiers

THROUGH = CacheConfig(8, host_pages=8, write_policy=WritePolicy.WRITE_THROUGH)


def occupancy(scheduler: Scheduler) -> tuple[int, int, int, int, int]:
    """free, evictable, protected, leased, retired; the ledger is checked on the way."""
    check_invariants(scheduler.cache)
    it = scheduler.cache.occupancy()
    assert it.free + it.evictable + it.protected + it.leased + it.retired == it.total
    return it.free, it.evictable, it.protected, it.leased, it.retired


def test_a_page_stands_at_one_place_of_the_tree() -> None:
    """A1: pages reachable from two nodes were counted twice.

    Here a client cannot name page ids to publish: what a second lease shares with the first stays the tree's, and its
    own copy stays its own.
    """
    one = Scheduler.alone(CacheConfig(16))
    first, second = one.acquire(seq("AB")), one.acquire(seq("AC"))
    assert one.insert(first.lease_id, 2 * PAGE).published == 2 * PAGE
    assert occupancy(one) == (12, 0, 2, 2, 0)
    assert one.insert(second.lease_id, 2 * PAGE).published == 2 * PAGE
    assert occupancy(one) == (12, 0, 3, 1, 0)  # A's second copy is still private to its lease
    assert one.release(second.lease_id).freed_pages == 1
    assert one.release(first.lease_id).freed_pages == 0
    assert occupancy(one) == (13, 3, 0, 0, 0)


def test_a_tail_is_given_up_once() -> None:
    """A2: the finish path and an ad-hoc path both freed the last decode slot."""
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("AB", tail=36))
    one.insert(lease.lease_id, 100)
    assert occupancy(one) == (6, 0, 1, 1, 0)
    assert one.cache.free(one.id, lease.lease_id, 64).freed_pages == 1
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.cache.free(one.id, lease.lease_id, 99)
    assert refusal.value.reason is Reason.DOUBLE_FREE
    assert fingerprint(one.cache) == before
    assert one.release(lease.lease_id).freed_pages == 0
    assert occupancy(one) == (7, 1, 0, 0, 0)


def test_less_than_a_page_leaves_no_trace_in_the_tree() -> None:
    """A4: a key shorter than a page became an empty key."""
    one = Scheduler.alone(CacheConfig(8))
    short = seq("A", tail=63)
    assert one.cached(short) == 0
    assert one.publish(short) == 0
    assert one.cache.tree.nodes == 0
    assert occupancy(one) == (8, 0, 0, 0, 0)
    assert one.publish(seq("A")) == PAGE
    assert one.cache.evict(1) == 1
    assert occupancy(one) == (8, 0, 0, 0, 0)


def test_a_lock_is_returned_once_whatever_split_since() -> None:
    """A5: the evictable size went negative after splits, by unlocks without locks."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("ABC"))
    lease = one.acquire(seq("ABD"), allocate_to=0)
    assert lease.device_tokens == 2 * PAGE
    one.release(lease.lease_id)
    with pytest.raises(Refusal) as refusal:
        one.release(lease.lease_id)
    assert refusal.value.reason is Reason.NO_LEASE
    assert occupancy(one) == (5, 3, 0, 0, 0)


def test_locks_that_are_never_used_return_with_their_session() -> None:
    """A7: look-ups pinned entries for ever. A lock is a lease's, and the session's end returns it."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("AB"))
    forgetful = Scheduler(one.cache, 2)
    for _ in range(1_000):
        forgetful.acquire(seq("ABC"), allocate_to=0)
    assert occupancy(one) == (6, 0, 2, 0, 0)
    assert one.cache.end_session(forgetful.id, proved_gone=False) == 0
    assert occupancy(one) == (6, 2, 0, 0, 0)


def test_a_page_freed_twice_is_refused_and_never_given_to_two() -> None:
    """A8: a page freed twice stood in the free list twice."""
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("A"))
    one.cache.free(one.id, lease.lease_id, 0)
    with pytest.raises(Refusal) as refusal:
        one.cache.free(one.id, lease.lease_id, PAGE)
    assert refusal.value.reason is Reason.DOUBLE_FREE
    one.release(lease.lease_id)
    with pytest.raises(Refusal) as refusal:
        one.release(lease.lease_id)
    assert refusal.value.reason is Reason.NO_LEASE
    pages = [*one.acquire(seq("B")).pages.tolist(), *one.acquire(seq("CD")).pages.tolist()]
    assert len(set(pages)) == 3
    assert one.cache.occupancy().free == 1
    check_invariants(one.cache)


def test_the_loser_of_a_race_reads_canonical_pages() -> None:
    """A10: the loser's pages were freed while its own page table still pointed at them."""
    winner = Scheduler.alone(CacheConfig(8))
    loser = Scheduler(winner.cache, 2, dedup=Dedup.PATCH)
    loser.batch()
    first, second = winner.acquire(seq("A")), loser.acquire(seq("A"))
    winner.insert(first.lease_id, PAGE)
    loser.launch()
    patches = loser.insert(second.lease_id, PAGE).patches
    assert [(patch.first_page, patch.pages.tolist()) for patch in patches] == [(0, first.pages.tolist())]
    assert occupancy(winner) == (6, 0, 1, 1, 0)  # still its own: a step that reads the old table may be in flight
    loser.batch(ack=False)
    assert occupancy(winner) == (6, 0, 1, 1, 0)  # the reply that carries the patch may not have come
    loser.batch(launch=1)  # acknowledges the patch, with the step that first uses it
    assert occupancy(winner) == (6, 0, 1, 0, 1)
    loser.batch(complete=True)
    assert occupancy(winner) == (7, 0, 1, 0, 0)
    winner.release(first.lease_id)
    assert winner.cache.evict(1) == 0, "the loser holds a lock on the page it reads"
    loser.release(second.lease_id)
    assert winner.cache.evict(1) == 1


def test_a_table_that_is_kept_keeps_its_own_copies() -> None:
    """A10, for a session whose tables are append-only: its copies stay its own until it releases them."""
    winner = Scheduler.alone(CacheConfig(8))
    loser = Scheduler(winner.cache, 2, dedup=Dedup.KEEP)
    first, second = winner.acquire(seq("A")), loser.acquire(seq("A"))
    winner.insert(first.lease_id, PAGE)
    result = loser.insert(second.lease_id, PAGE)
    assert (result.published, result.patches) == (PAGE, ())
    assert occupancy(winner) == (6, 0, 1, 1, 0)
    assert loser.release(second.lease_id).freed_pages == 1
    winner.release(first.lease_id)
    assert occupancy(winner) == (7, 1, 0, 0, 0)


def test_a_lock_from_before_a_flush_returns_quietly() -> None:
    """A13: an unlock after a flush climbed to the old root and crashed."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("AB"))
    old = one.acquire(seq("ABC"), allocate_to=0)
    flushed = one.cache.flush()
    assert (flushed.generation, flushed.freed_pages, flushed.detached_pages) == (2, 0, 2)
    assert one.cached(seq("AB")) == 0
    one.publish(seq("AB"))
    new = one.acquire(seq("ABC"), allocate_to=0)
    assert new.device_tokens == 2 * PAGE
    assert one.release(old.lease_id).published == 2 * PAGE
    assert occupancy(one) == (6, 0, 2, 0, 0), "the new generation's lock stands"
    one.release(new.lease_id)
    assert occupancy(one) == (6, 2, 0, 0, 0)


def test_an_admission_that_fails_late_keeps_nothing() -> None:
    """A15: what an admission had taken was not given back when a later step of it failed."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("AB"))
    one.acquire(seq("CDEF"), reserve_to=6 * PAGE)
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("ABGH"))
    assert refusal.value.reason is Reason.NO_PAGES
    assert fingerprint(one.cache) == before


def test_the_whole_pool_comes_back() -> None:
    """A2, A4, A5 together: after any mix of lengths and endings nothing is left behind."""
    one = Scheduler(PrefixCache(CacheConfig(64)))
    rng = np.random.default_rng(0)
    for size in rng.integers(1, 500, 60):
        tokens = rng.integers(0, 3, size, "<u4").tobytes()
        lease = one.acquire(tokens)
        one.insert(lease.lease_id, int(size) // 2)
        one.release(lease.lease_id, publish_to=int(rng.integers(0, length(tokens) + 1)))
    one.cache.flush()
    assert occupancy(one) == (64, 0, 0, 0, 0)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_pages_inserted_over_a_host_only_node_are_adopted(layout: LayoutKind) -> None:
    """A9: an insert over a node on the host alone adopted the request's slots, and then freed them as duplicates."""
    with TwoTiers.opened(layout, THROUGH) as it:
        it.to_host(seq("AB"))
        one = it.scheduler
        lease = one.acquire(seq("ABZ"), max_tokens=0)
        it.write(seq("ABZ"), lease.pages)
        duplicates = it.cache.counters.duplicate_pages
        assert one.insert(lease.lease_id, 2 * PAGE).published == 2 * PAGE
        assert it.cache.counters.duplicate_pages == duplicates
        assert occupancy(one) == (5, 0, 2, 1, 0)
        one.release(lease.lease_id)
        again = one.acquire(seq("ABZ"), allocate_to=0)
        assert (again.pages.tolist(), again.loading) == (lease.pages.tolist()[:2], ())
        assert it.holds(seq("AB"), again.pages)
        assert it.cache.host_occupancy().protected == 2, "the host's copies stand, under the same lock"


@pytest.mark.usefixtures("memory")
def test_a_flush_empties_the_host_too() -> None:
    """A12: a flush cleared the tree but not the host's slots, and every later save silently did nothing."""
    with TwoTiers.opened("page_first", CacheConfig(8, host_pages=4, write_policy=WritePolicy.WRITE_THROUGH)) as it:
        it.publish(seq("ABCD"))
        it.settle()
        assert it.cache.host_occupancy().free == 0
        it.cache.flush()
        assert it.cache.host_occupancy().free == 4
        it.publish(seq("EFGH"))
        it.settle()
        assert (it.cache.host_occupancy().free, it.cache.host_occupancy().evictable) == (0, 4)


def test_an_offload_that_the_host_has_no_room_for_keeps_nothing() -> None:
    """A15: what one pool had given was not given back when the other was full."""
    one = Scheduler.alone(CacheConfig(8, host_pages=3))
    one.cache.offload(one.id, one.acquire(seq("AB")).lease_id)
    lease = one.acquire(seq("CD"))
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.cache.offload(one.id, lease.lease_id)
    assert (refusal.value.reason, refusal.value.facts["max_fit"]) == (Reason.NO_PAGES, 1)
    assert fingerprint(one.cache) == before


@pytest.mark.usefixtures("memory")
def test_a_restore_that_the_device_has_no_room_for_keeps_nothing() -> None:
    """A15, the other way."""
    with TwoTiers.opened("page_first", THROUGH) as it:
        it.publish(seq("AB"))
        lease = it.scheduler.acquire(seq("ABCD"))
        it.cache.offload(it.scheduler.id, lease.lease_id)
        it.settle()
        squatter = it.scheduler.acquire(seq("STUVW"))
        before = fingerprint(it.cache)
        with pytest.raises(Refusal) as refusal:
            it.cache.restore(it.scheduler.id, lease.lease_id)
        assert refusal.value.reason is Reason.NO_PAGES
        assert fingerprint(it.cache) == before
        it.scheduler.release(squatter.lease_id)
        assert it.cache.restore(it.scheduler.id, lease.lease_id).pages.size == 4
