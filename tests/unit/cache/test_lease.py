"""One lease's states and lengths, the step fence around it, and what stays apart."""

import pytest

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.session import Dedup
from radixd.server.cache.step import StepMark
from tests.property.observed import fingerprint
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq


def test_a_waiting_lease_matches_by_id_and_is_activated_once() -> None:
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("AB"))
    waiting = one.cache.wait(one.id, one.namespace, seq("ABC"))
    assert one.cache.match_lease(one.id, waiting).device_tokens == 2 * PAGE
    assert one.cache.occupancy().protected == 0
    active = one.cache.activate(one.id, waiting)
    assert (active.lease_id, active.device_tokens, active.pages.size) == (waiting, 2 * PAGE, 3)
    with pytest.raises(Refusal) as refusal:
        one.cache.activate(one.id, waiting)
    assert refusal.value.reason is Reason.NOT_ACTIVE


def test_a_retracted_lease_keeps_its_tokens_and_nothing_else() -> None:
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("AB"), reserve_to=6 * PAGE)
    assert one.release(lease.lease_id, publish_to=PAGE, keep=True, tokens=seq("C")).published == PAGE
    occupancy = one.cache.occupancy(one.id)
    assert (occupancy.leased, occupancy.protected, occupancy.reserved_mine) == (0, 0, 0)
    again = one.cache.activate(one.id, lease.lease_id)
    assert (again.device_tokens, again.pages.size) == (PAGE, 3)


def test_a_retracted_leases_last_publication_is_of_the_tokens_it_had() -> None:
    """What becomes of the id after its retraction says nothing of the pages that wait for a step."""
    one = Scheduler.alone(CacheConfig(16))
    lease = one.acquire(seq("AB"))
    step = one.launch()
    one.release(lease.lease_id, publish_to=2 * PAGE, after_step=step, keep=True)
    one.cache.activate(one.id, lease.lease_id)
    one.cache.free(one.id, lease.lease_id, 0)
    one.cache.allocate(one.id, lease.lease_id, 2 * PAGE, seq("XY"))
    one.batch(complete=True)
    assert (one.cached(seq("AB")), one.cached(seq("XY"))) == (2 * PAGE, 0)
    check_invariants(one.cache)


def test_pages_that_a_release_cannot_publish_retire_with_the_rest() -> None:
    """A reservation forbids to lock the copy that the tree holds; the lease's own pages are given up all the same."""
    one = Scheduler.alone(CacheConfig(8))
    one.acquire(seq("A"), max_tokens=0, reserve_to=2 * PAGE)
    one.publish(seq("A"))
    one.acquire(seq("A"), max_tokens=0, reserve_to=5 * PAGE)
    lease = one.acquire(seq("A"), max_tokens=0)
    one.launch()
    released = one.release(lease.lease_id, publish_to=PAGE)
    assert (released.published, released.freed_pages, one.cache.occupancy().retired) == (0, 1, 1)
    one.finish()
    assert one.cache.occupancy().retired == 0
    check_invariants(one.cache)


def test_an_ended_lease_keeps_the_tokens_that_it_may_publish_and_no_others() -> None:
    """Retracted again and again while a step is in flight, one long prompt was kept as often."""
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("A"))
    lease = one.cache.wait(one.id, one.namespace, seq("ABC"))
    one.launch()
    for letter in "XYZ":
        one.cache.activate(one.id, lease, allocate_to=0)
        one.release(lease, keep=True, tokens=seq(letter))
    one.cache.activate(one.id, lease, allocate_to=2 * PAGE)
    one.release(lease, publish_to=2 * PAGE, after_step=one.launched)
    closing = one.cache.session(one.id).closing
    assert sorted(len(ended.tokens) for ended in closing) == [0, 0, 0, 2 * PAGE]
    one.finish()
    assert one.cached(seq("ABCXYZ")) == 2 * PAGE
    check_invariants(one.cache)


def test_leases_that_a_step_may_still_touch_count_towards_the_limit() -> None:
    """A client that completes no step cannot pile up ended leases."""
    one = Scheduler.alone(CacheConfig(8, max_leases=3))
    lease = one.cache.wait(one.id, one.namespace, seq("A"))
    one.launch()
    for _ in range(2):
        one.cache.activate(one.id, lease, allocate_to=0)
        one.release(lease, keep=True)
    one.cache.activate(one.id, lease, allocate_to=0)
    one.release(lease, keep=True)
    with pytest.raises(Refusal) as refusal:
        one.cache.activate(one.id, lease, allocate_to=0)
    assert refusal.value.reason is Reason.LIMIT_EXCEEDED
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("B"))
    assert refusal.value.reason is Reason.LIMIT_EXCEEDED
    one.finish()
    one.cache.activate(one.id, lease)


def test_pages_are_matchable_once_their_step_has_completed() -> None:
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("ABC"))
    first, second = one.launch(), one.launch()
    assert one.insert(lease.lease_id, PAGE, after_step=first).pending
    assert one.insert(lease.lease_id, 3 * PAGE, after_step=second).pending
    assert one.cached(seq("ABC")) == 0
    one.cache.complete(one.id, first)
    assert one.cached(seq("ABC")) == PAGE
    assert [it.published for it in one.finish()] == [PAGE, 3 * PAGE]
    assert one.cached(seq("ABC")) == 3 * PAGE


def test_a_release_publishes_once_its_step_has_completed() -> None:
    """At the step that it names, not at the last one launched: the lock waits for that."""
    one = Scheduler.alone(CacheConfig(8))
    now, later = one.acquire(seq("A")), one.acquire(seq("B"))
    first = one.launch()
    one.launch()
    assert one.release(now.lease_id, publish_to=PAGE).published == PAGE
    assert one.release(later.lease_id, publish_to=PAGE, after_step=first).published == 0
    assert (one.cached(seq("A")), one.cached(seq("B"))) == (PAGE, 0)
    one.cache.complete(one.id, first)
    assert one.cached(seq("B")) == PAGE
    assert one.cache.evict(8) == 0, "a step in flight may still read both"
    one.batch(complete=True)
    assert one.cache.evict(8) == 2


def test_a_prefix_is_locked_until_the_step_that_may_read_it_has_completed() -> None:
    one = Scheduler.alone(CacheConfig(4))
    one.publish(seq("AB"))
    lease = one.acquire(seq("ABC"), allocate_to=0)
    one.launch()
    one.release(lease.lease_id)
    assert one.cache.evict(2) == 0
    one.batch(complete=True)
    assert one.cache.evict(2) == 2


def test_given_up_pages_wait_for_the_steps_launched_by_then_and_no_later_ones() -> None:
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("ABC"))
    first = one.launch()
    one.cache.free(one.id, lease.lease_id, 2 * PAGE)
    one.launch()
    one.cache.free(one.id, lease.lease_id, PAGE)
    assert one.cache.occupancy(one.id).retired_mine == 2
    one.cache.complete(one.id, first)
    assert (one.cache.occupancy().free, one.cache.occupancy().retired) == (2, 1)
    one.batch(complete=True)
    assert one.cache.occupancy().free == 3


def test_a_patch_is_acknowledged_by_the_reply_that_carried_it() -> None:
    cache = PrefixCache(CacheConfig(8))
    winner, loser = Scheduler(cache, 1), Scheduler(cache, 2, dedup=Dedup.PATCH)
    lease = loser.acquire(seq("A"))
    winner.publish(seq("A"))
    step = loser.launch()
    loser.insert(lease.lease_id, PAGE, after_step=step)
    loser.batch(complete=True, ack=True)
    assert cache.occupancy().leased == 1, "published, but no reply has said so yet"
    (publication,) = loser.batch(ack=False)
    assert publication.patches[0].pages.tolist() != lease.pages.tolist()
    assert cache.occupancy().leased == 1
    loser.batch(ack=True)
    assert (cache.occupancy().leased, cache.occupancy().free) == (0, 7)


def test_no_patch_of_an_earlier_table_reaches_a_retracted_lease() -> None:
    cache = PrefixCache(CacheConfig(8))
    winner, loser = Scheduler(cache, 1), Scheduler(cache, 2, dedup=Dedup.PATCH)
    lease = loser.acquire(seq("AB"))
    winner.publish(seq("AB"))
    step = loser.launch()
    loser.insert(lease.lease_id, 2 * PAGE, after_step=step)
    loser.batch(complete=True)  # has the patch to say, in a reply that also says
    loser.release(lease.lease_id, keep=True)  # that the table is gone
    cache.activate(loser.id, lease.lease_id, max_tokens=0)  # and what the next one is
    assert loser.batch() == ()


@pytest.mark.parametrize(
    ("field", "mark"),
    [
        ("launched", StepMark(3, 1, 4, 2)),
        ("completed", StepMark(3, 1, 5, 1)),
        ("completed", StepMark(3, 1, 5, 6)),
        ("ack", StepMark(3, 3, 5, 2)),
    ],
)
def test_counts_that_cannot_be_are_refused(field: str, mark: StepMark) -> None:
    one = Scheduler.alone(CacheConfig(4))
    one.cache.advance(one.id, StepMark(2, 1, 5, 2))
    before = fingerprint(one.cache)
    with pytest.raises(Refusal) as refusal:
        one.cache.advance(one.id, mark)
    assert (refusal.value.reason, refusal.value.field) == (Reason.BAD_FIELD, field)
    assert fingerprint(one.cache) == before


def test_a_flushed_lease_reads_on_and_publishes_nothing() -> None:
    one = Scheduler.alone(CacheConfig(8))
    one.publish(seq("A"))
    lease = one.acquire(seq("AB"))
    one.cache.flush()
    assert one.insert(lease.lease_id, 2 * PAGE).published == PAGE
    assert one.cache.allocate(one.id, lease.lease_id, 4 * PAGE).allocated == 4 * PAGE
    assert one.cached(seq("AB")) == 0
    assert one.publish(seq("AB")) == 2 * PAGE
    assert not set(lease.pages.tolist()) & {page for node in one.cache.tree for page in node.pages.tolist()} - {
        int(lease.pages[0])
    }
    one.release(lease.lease_id)
    assert one.cache.occupancy().free == 6


def test_counters_count_each_token_and_page_once() -> None:
    one = Scheduler.alone(CacheConfig(4))
    one.publish(ramp(150))
    one.cache.match(one.id, one.namespace, ramp(150))
    lease = one.acquire(ramp(200))
    one.insert(lease.lease_id, 200)
    one.release(lease.lease_id, publish_to=200)
    one.cache.evict(1)
    counters = one.cache.counters
    assert (counters.requested_tokens, counters.hit_tokens) == (350, 128)
    assert (counters.inserted_pages, counters.evicted_pages) == (3, 1)
