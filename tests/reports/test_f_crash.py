"""Field reports, group F: what comes back, and when, from those who abort, die or fall silent."""

import threading

import numpy as np
import pytest

from radixd.gpu_pool.layout import LayoutKind
from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import Saved
from radixd.server.cache.session import Dedup
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq
from tests.two_tiers import TwoTiers

THROUGH = CacheConfig(8, host_pages=8, write_policy=WritePolicy.WRITE_THROUGH)
both_layouts = pytest.mark.parametrize("layout", ["page_first", "layer_first"])


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


@pytest.mark.usefixtures("memory")
@both_layouts
def test_pages_that_a_load_still_fills_are_not_handed_out(layout: LayoutKind) -> None:
    """F1: a restore that was cancelled wrote into pages of the next request."""
    with TwoTiers.opened(layout, THROUGH) as it:
        it.to_host(seq("AB"))
        it.pause()
        lease = it.scheduler.acquire(seq("AB"), max_tokens=2 * PAGE)
        it.turn()
        it.scheduler.release(lease.lease_id)
        others = it.scheduler.acquire(seq("STUVWX"))
        assert not set(others.pages.tolist()) & set(lease.pages.tolist())
        with pytest.raises(Refusal):
            it.scheduler.acquire(seq("Y"))
        it.write(seq("STUVWX"), others.pages)
        it.resume()
        it.settle()
        assert it.holds(seq("STUVWX"), others.pages)
        assert it.scheduler.acquire(seq("Y")).pages.size == 1


@pytest.mark.usefixtures("memory")
@both_layouts
@pytest.mark.parametrize("end", ["release", "kill", "silence"])
def test_pages_that_an_offload_still_reads_are_not_handed_out(layout: LayoutKind, end: str) -> None:
    """F1, F2: an abort in the middle of an offload; what it was to be saved to comes back once, too."""
    with TwoTiers.opened(layout, THROUGH) as it:
        witness = Scheduler(it.cache, 2)
        lease = it.scheduler.acquire(seq("ABC"))
        it.write(seq("ABC"), lease.pages)
        it.cache.offload(it.scheduler.id, lease.lease_id)
        it.pause()
        it.turn()
        if end == "release":
            it.scheduler.release(lease.lease_id)
        else:
            it.cache.end_session(it.scheduler.id, proved_gone=end == "kill")
        assert not set(witness.acquire(seq("STUVW")).pages.tolist()) & set(lease.pages.tolist())
        assert (it.cache.occupancy().free, it.cache.host_occupancy().free) == (0, 5)
        it.resume()
        it.settle()
        assert it.cache.host_occupancy().free == 8
        assert it.cache.occupancy().free == (0 if end == "silence" else 3)
        it.cache.prove_gone(it.scheduler.id)
        assert it.cache.occupancy().free == 3
        check_invariants(it.cache)


@pytest.mark.parametrize("end", ["release", "kill"])
def test_an_offload_that_has_not_begun_when_its_lease_ends_never_does(end: str) -> None:
    """F1: it waited for a step, the session's end forgot it, and its pages of both tiers with it."""
    one = Scheduler.alone(THROUGH)
    lease = one.acquire(seq("ABC"))
    step = one.launch()
    one.cache.offload(one.id, lease.lease_id)
    if end == "release":
        one.release(lease.lease_id)
        assert one.cache.host_occupancy().free == 8
        assert one.cache.occupancy().free == 5, "the step may still touch the device's"
        one.cache.complete(one.id, step)
        assert one.cache.take_plans() == ()
    else:
        one.release(lease.lease_id)
        one.cache.end_session(one.id, proved_gone=True)
    assert (one.cache.occupancy().free, one.cache.host_occupancy().free) == (8, 8)
    assert not one.cache.endings.remains
    check_invariants(one.cache)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("errors", [("", ""), ("the device said no", ""), ("", "the device said no")])
def test_a_lease_that_ends_under_two_copies_is_over_with_the_last(errors: tuple[str, str]) -> None:
    """F7: an aborted request got two completions, of its load and of its store."""
    with TwoTiers.opened("page_first", THROUGH) as it:
        it.publish(seq("AB"))
        lease = it.scheduler.acquire(seq("ABCD"))
        it.cache.offload(it.scheduler.id, lease.lease_id)
        it.settle()
        it.cache.evict(2)
        restored = it.cache.restore(it.scheduler.id, lease.lease_id)
        assert len(restored.loading) == 2
        it.turn()
        it.scheduler.release(lease.lease_id)
        for error in errors:
            assert it.cache.occupancy().free < 8
            it.confirm(error)
        it.settle()
        assert it.arrivals() == (), "nobody is told of the end of a lease that is over"
        occupancy = it.cache.occupancy()
        assert occupancy.free + occupancy.evictable == 8
        assert (it.cache.host_occupancy().free, it.cache.host_occupancy().evictable) == (6, 2)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("verb", ["demote", "promote", "offload"])
def test_a_copy_that_ends_after_a_flush_brings_nothing_back(verb: str) -> None:
    """F15: a reset ran while a transfer was in flight; stale entries came back, and pages were freed twice."""
    with TwoTiers.opened("page_first", THROUGH) as it:
        if verb == "demote":
            it.publish(seq("AB"))
        else:
            it.to_host(seq("AB"))
            lease = it.scheduler.acquire(seq("ABC"))
            if verb == "offload":
                it.settle()
                it.cache.offload(it.scheduler.id, lease.lease_id)
        assert [plan.kind for plan in it.turn()] == [verb]
        it.cache.flush()
        it.settle()
        match = it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("ABC"))
        assert (match.device_tokens, match.host_tokens) == (0, 0)
        if verb != "demote":
            it.scheduler.release(lease.lease_id)
        assert (it.cache.occupancy().free, it.cache.host_occupancy().free) == (8, 8)
        check_invariants(it.cache)


@pytest.mark.usefixtures("memory")
def test_an_offload_that_fails_leaves_the_lease_as_it_was() -> None:
    """F16: an offload that never reported its end kept its device blocks for ever."""
    with TwoTiers.opened("page_first", THROUGH) as it:
        tokens = seq("ABC")
        lease = it.scheduler.acquire(tokens)
        it.write(tokens, lease.pages)
        it.cache.offload(it.scheduler.id, lease.lease_id)
        with pytest.raises(Refusal) as refusal:
            it.scheduler.insert(lease.lease_id, PAGE)
        assert refusal.value.reason is Reason.NOT_ACTIVE
        it.turn()
        it.confirm(error="the copier died")
        assert it.saved() == (Saved(lease.lease_id, "the copier died"),)
        assert it.cache.host_occupancy().free == 8
        assert it.scheduler.insert(lease.lease_id, 3 * PAGE).published == 3 * PAGE
        assert it.holds(tokens, lease.pages)
        it.settle()
        it.scheduler.release(lease.lease_id)
        assert it.cache.occupancy().free == 5


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("ends", ["release", "keep"])
def test_replies_tell_nothing_of_leases_that_are_over(ends: str) -> None:
    """F7: a lease that is kept waits under the same id, and its last life's copies are none of its business."""
    with TwoTiers.opened("page_first", THROUGH) as it:
        lease = it.scheduler.acquire(seq("AB"))
        it.cache.offload(it.scheduler.id, lease.lease_id)
        it.settle()
        it.scheduler.release(lease.lease_id, keep=ends == "keep")
        assert it.saved() == ()
