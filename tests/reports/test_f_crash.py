"""Field reports, group F: what comes back, and when, from those who abort, die or fall silent."""

import threading

import numpy as np
import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.session import Dedup
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq


def slots(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def test_pages_under_a_copy_are_not_handed_out() -> None:
    """F1: an abort freed pages while a copy still wrote to them."""
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("AB"))
    first, second = (int(page) * PAGE for page in lease.pages)
    plan = one.cache.move(one.id, lease.lease_id, slots(first), slots(second))
    one.release(lease.lease_id)
    others = one.acquire(seq("CD"))
    assert not set(others.pages.tolist()) & set(lease.pages.tolist())
    with pytest.raises(Refusal):
        one.acquire(seq("E"))
    one.release(others.lease_id)
    assert one.cache.occupancy().free == 2
    one.cache.finish_copy(plan.copy_id)
    assert one.cache.occupancy().free == 4
    check_invariants(one.cache)


def test_a_step_in_flight_keeps_what_was_given_up() -> None:
    """F1: pages went back while a launched step could still write to them."""
    one = Scheduler.alone(CacheConfig(2))
    lease = one.acquire(seq("AB"))
    step = one.launch()
    one.release(lease.lease_id)
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("C"))
    assert (refusal.value.reason, refusal.value.facts["retired"]) == (Reason.NO_PAGES, 2)
    one.cache.complete(one.id, step)
    assert one.acquire(seq("CD")).pages.size == 2


@pytest.mark.parametrize("proved_gone", [True, False])
def test_a_dead_session_leaves_its_published_pages_and_nothing_else(proved_gone: bool) -> None:
    """F2: an engine that was killed left mappings and pins behind."""
    cache = PrefixCache(CacheConfig(16))
    witness, victim = Scheduler(cache, 1), Scheduler(cache, 2)
    victim.batch()
    done = victim.publish(seq("AB"))
    locked = victim.acquire(seq("ABZ"), allocate_to=0)
    growing = victim.acquire(seq("CDE"), reserve_to=6 * PAGE)
    victim.insert(growing.lease_id, PAGE)
    step = victim.launch()
    victim.insert(growing.lease_id, 3 * PAGE, after_step=step)
    aborted = victim.acquire(seq("F"))
    victim.release(aborted.lease_id)
    assert (done, locked.device_tokens) == (2 * PAGE, 2 * PAGE)

    left = cache.end_session(victim.id, proved_gone=proved_gone)
    occupancy = cache.occupancy()
    assert left == occupancy.retired == (0 if proved_gone else 3)
    assert (occupancy.protected, occupancy.leased, occupancy.evictable) == (0, 0, 3)
    assert occupancy.available == occupancy.free + 3, "its reservation is gone"
    assert witness.cached(seq("AB")) == 2 * PAGE
    assert witness.cached(seq("CDE")) == PAGE, "what was not written is not matchable"
    assert cache.prove_gone(victim.id) == left
    assert cache.occupancy().free == 13
    check_invariants(cache)


def test_fifty_crashes_leave_nothing() -> None:
    """F2: crash loops ratcheted memory up."""
    cache = PrefixCache(CacheConfig(16))
    for session_id in range(1, 51):
        one = Scheduler(cache, session_id, dedup=Dedup.PATCH if session_id % 2 else Dedup.KEEP)
        one.batch(launch=2)
        lease = one.acquire(seq("ABC"))
        one.insert(lease.lease_id, 3 * PAGE, after_step=session_id % 3)
        one.acquire(seq("ABCD"))
        cache.end_session(session_id, proved_gone=bool(session_id % 5))
        cache.prove_gone(session_id)
    check_invariants(cache)
    occupancy = cache.occupancy()
    assert occupancy.free + occupancy.evictable == 16
    assert not cache.sessions
    assert not cache.endings.remains


def test_silence_revokes_ids_and_only_proof_frees() -> None:
    """F2, F4: a process that is silent but alive may go on, and write."""
    cache = PrefixCache(CacheConfig(4))
    zombie, other = Scheduler(cache, 1), Scheduler(cache, 2)
    lease = zombie.acquire(seq("AB"))
    assert cache.end_session(zombie.id, proved_gone=False) == 2
    with pytest.raises(Refusal) as refusal:
        cache.insert(zombie.id, lease.lease_id, PAGE)
    assert refusal.value.reason is Reason.NO_SESSION
    assert not set(other.acquire(seq("C")).pages.tolist()) & set(lease.pages.tolist())
    with pytest.raises(Refusal):
        other.acquire(seq("DE"))
    assert cache.prove_gone(zombie.id) == 2
    assert cache.prove_gone(zombie.id) == 0
    check_invariants(cache)


def test_a_prefix_whose_writer_died_can_be_written_again() -> None:
    """F6: a key was stuck between the start and the end of a put."""
    cache = PrefixCache(CacheConfig(8))
    dead, other = Scheduler(cache, 1), Scheduler(cache, 2)
    lease = dead.acquire(seq("AB"))
    step = dead.launch()
    assert dead.insert(lease.lease_id, 2 * PAGE, after_step=step).pending
    cache.end_session(dead.id, proved_gone=False)
    assert other.cached(seq("AB")) == 0
    assert other.publish(seq("AB")) == 2 * PAGE
    assert cache.prove_gone(dead.id) == 2
    check_invariants(cache)


def test_a_dead_writer_publishes_nothing_more() -> None:
    """F6: a worker of a session died, the session lives: what it had not published may be half written."""
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("ABC"))
    one.insert(lease.lease_id, PAGE)
    step = one.launch()
    one.insert(lease.lease_id, 2 * PAGE, after_step=step)
    one.cache.bar_writers(one.id)
    one.batch(complete=True)
    assert one.insert(lease.lease_id, 3 * PAGE).published == PAGE
    assert one.release(lease.lease_id, publish_to=3 * PAGE).published == PAGE
    assert one.cached(seq("ABC")) == PAGE
    assert one.publish(seq("ABC")) == 3 * PAGE, "pages given out since are publishable"
    check_invariants(one.cache)


def test_copies_and_steps_end_a_lease_in_any_order() -> None:
    """F7: an aborted request got two completions, and the second hit an assertion."""
    for copy_first in (True, False):
        one = Scheduler.alone(CacheConfig(4))
        lease = one.acquire(seq("AB"))
        first, second = (int(page) * PAGE for page in lease.pages)
        plan = one.cache.move(one.id, lease.lease_id, slots(first), slots(second))
        step = one.launch()
        one.release(lease.lease_id)
        endings = [
            lambda it=one, at=plan: it.cache.finish_copy(at.copy_id),
            lambda it=one, at=step: it.cache.complete(1, at),
        ]
        endings[not copy_first]()
        assert one.cache.occupancy().free == 2
        endings[copy_first]()
        assert one.cache.occupancy().free == 4
        check_invariants(one.cache)


def test_a_failed_copy_publishes_nothing() -> None:
    """F1, F16: a lease released over a copy must not publish bytes that never arrived."""
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("AB"))
    first, second = (int(page) * PAGE for page in lease.pages)
    plan = one.cache.move(one.id, lease.lease_id, slots(first), slots(second))
    assert one.release(lease.lease_id, publish_to=2 * PAGE).published == 0
    assert one.cached(seq("AB")) == 0, "the copy may still be writing"
    one.cache.finish_copy(plan.copy_id, "the device said no")
    assert one.cached(seq("AB")) == 0
    assert one.cache.occupancy().free == 4


def test_patched_out_pages_come_back_with_their_lease() -> None:
    """F2: an idle client that acknowledges nothing more must not hold pages of leases that are over."""
    cache = PrefixCache(CacheConfig(4))
    winner, loser = Scheduler(cache, 1), Scheduler(cache, 2, dedup=Dedup.PATCH)
    first, second = winner.acquire(seq("A")), loser.acquire(seq("A"))
    winner.insert(first.lease_id, PAGE)
    assert loser.insert(second.lease_id, PAGE).patches
    assert loser.release(second.lease_id).freed_pages == 1
    assert cache.occupancy().free == 3
    check_invariants(cache)


def test_many_callers_of_one_owner_corrupt_nothing() -> None:
    """F14: several connectors touched one free list. The cache has one owner; callers take turns."""
    cache = PrefixCache(CacheConfig(64))
    turn = threading.Lock()
    schedulers = [Scheduler(cache, number) for number in range(1, 17)]

    def run(one: Scheduler) -> None:
        for step in range(30):
            with turn:
                cache.evict(1)
                if cache.occupancy(one.id).max_fit >= 2:
                    one.publish(seq("AB" if step % 2 else "AC"))

    threads = [threading.Thread(target=run, args=(one,)) for one in schedulers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_invariants(cache)
    cache.flush()
    assert cache.occupancy().free == 64


def test_a_flush_under_a_pending_insert_publishes_nothing() -> None:
    """F15: a reset ran while a transfer was in flight; stale entries came back afterwards."""
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("AB"))
    step = one.launch()
    one.insert(lease.lease_id, 2 * PAGE, after_step=step)
    one.cache.flush()
    one.batch(complete=True)
    assert one.cached(seq("AB")) == 0
    assert one.insert(lease.lease_id, 2 * PAGE).published == 0
    assert one.release(lease.lease_id, publish_to=2 * PAGE).freed_pages == 2
    assert one.cache.occupancy().free == 4
