"""Admission: what is promised is kept, so that admitted leases always finish."""

import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq

MILLION = 1_048_576


def refusal_of(call: object) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        call()  # type: ignore[operator]
    return refusal.value


def test_two_half_prefilled_million_token_requests_never_deadlock() -> None:
    cache = PrefixCache(CacheConfig(16_384 + 64))
    first, second = Scheduler(cache, 1), Scheduler(cache, 2)
    one = first.acquire(ramp(MILLION), allocate_to=MILLION // 2, reserve_to=MILLION)
    other = second.cache.wait(2, second.namespace, ramp(MILLION, start=MILLION))
    refusal = refusal_of(lambda: cache.activate(2, other, allocate_to=MILLION // 2, reserve_to=MILLION))
    assert refusal.reason is Reason.NO_PAGES
    small = second.acquire(ramp(60 * PAGE, start=9_000_000))
    cache.allocate(1, one.lease_id, MILLION)
    second.release(small.lease_id)
    assert first.release(one.lease_id, publish_to=MILLION).published == MILLION
    assert cache.activate(2, other, allocate_to=MILLION // 2, reserve_to=MILLION).pages.size == 8_192
    cache.allocate(2, other, MILLION)
    assert cache.release(2, other, publish_to=MILLION).published == MILLION
    check_invariants(cache)


def test_a_pool_of_exactly_one_request_serves_it() -> None:
    one = Scheduler.alone(CacheConfig(16))
    for start in range(4):
        tokens = ramp(16 * PAGE, start=start * 1_000_000)
        lease = one.acquire(tokens, allocate_to=PAGE, reserve_to=16 * PAGE)
        for page in range(1, 17):
            one.cache.allocate(one.id, lease.lease_id, page * PAGE)
            one.insert(lease.lease_id, page * PAGE)
        one.release(lease.lease_id)
        assert one.cached(tokens) == 16 * PAGE


def test_a_reservation_is_kept_from_everyone_else() -> None:
    cache = PrefixCache(CacheConfig(10))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2)
    lease = one.acquire(seq("A"), reserve_to=6 * PAGE)
    assert (cache.occupancy(1).reserved_mine, cache.occupancy(2).reserved_others) == (5, 5)
    assert (cache.occupancy(1).available, cache.occupancy(2).available) == (9, 4)
    theirs = other.acquire(seq("BCD"))
    assert refusal_of(lambda: cache.allocate(2, theirs.lease_id, 5 * PAGE)).reason is Reason.NO_PAGES
    assert cache.allocate(2, theirs.lease_id, 4 * PAGE).allocated == 4 * PAGE
    cache.allocate(1, lease.lease_id, 6 * PAGE)
    assert cache.occupancy(1).reserved_mine == 0
    assert refusal_of(lambda: cache.allocate(1, lease.lease_id, 7 * PAGE)).reason is Reason.NO_PAGES


def test_an_acquire_costs_the_evictable_pages_that_it_locks() -> None:
    cache = PrefixCache(CacheConfig(8))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2)
    one.publish(seq("ABCD"))
    other.acquire(seq("X"), reserve_to=5 * PAGE)
    refusal = refusal_of(lambda: one.acquire(seq("ABCDE"), allocate_to=0))
    assert (refusal.reason, refusal.facts["needed"]) == (Reason.NO_PAGES, 4)
    assert one.acquire(seq("ABC"), allocate_to=0, max_tokens=3 * PAGE).device_tokens == 3 * PAGE


def test_an_acquire_leaves_each_growing_lease_a_page() -> None:
    one = Scheduler.alone(CacheConfig(8))
    first = one.acquire(seq("AB"))
    assert one.cache.occupancy(one.id).max_fit == 5
    assert refusal_of(lambda: one.acquire(seq("CDEFGH"))).reason is Reason.NO_PAGES
    one.acquire(seq("CDEFG"))
    assert one.cache.allocate(one.id, first.lease_id, 3 * PAGE).allocated == 3 * PAGE


def test_a_reservation_ends_with_its_lease() -> None:
    for end in ("release", "keep", "session"):
        one = Scheduler.alone(CacheConfig(8))
        lease = one.acquire(seq("A"), reserve_to=8 * PAGE)
        if end == "session":
            one.cache.end_session(one.id, proved_gone=True)
        else:
            one.release(lease.lease_id, keep=end == "keep")
        assert Scheduler(one.cache, 2).acquire(seq("BCDEFGHI")).pages.size == 8
        check_invariants(one.cache)


def test_an_insert_never_locks_pages_that_others_were_promised() -> None:
    """Publishing over evictable duplicates would take them out of what reservations count on."""
    cache = PrefixCache(CacheConfig(6))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2)
    late = one.acquire(seq("AB"))
    other.publish(seq("AB"))
    promised = other.acquire(seq("X"), allocate_to=PAGE, reserve_to=PAGE)
    cache.release(2, promised.lease_id)
    reserving = other.acquire(seq("X"), reserve_to=3 * PAGE)
    assert cache.occupancy().free + cache.occupancy().evictable == 3
    cache.allocate(2, reserving.lease_id, PAGE)
    greedy = Scheduler(cache, 3)
    greedy.acquire(seq("Y"), allocate_to=0)
    check_invariants(cache)
    assert one.insert(late.lease_id, 2 * PAGE).published in (0, 2 * PAGE)
    check_invariants(cache)
    assert cache.allocate(2, reserving.lease_id, 3 * PAGE).allocated == 3 * PAGE
