"""The host tier in the core: what is saved and when, what a load promises, what a journal is told."""

import tracemalloc

import numpy as np
import pytest

from radixd.server.cache.chain import ROOT, chain
from radixd.server.cache.config import WritePolicy
from radixd.server.cache.host_log import Kept, Lost
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import CopyKind, HostOccupancy
from radixd.server.cache.session import Dedup
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq

THROUGH = WritePolicy.WRITE_THROUGH


def tiers(pages: int = 8, host_pages: int = 8, policy: WritePolicy = THROUGH, **rest: int) -> Scheduler:
    return Scheduler.alone(CacheConfig(pages, host_pages=host_pages, write_policy=policy, **rest))  # type: ignore[arg-type]


def copy(one: Scheduler, error: str = "") -> list[CopyKind]:
    """Lets every copy end, and those that follow from it. Returns their kinds, in order."""
    kinds = []
    while plans := one.cache.take_plans():
        for plan in plans:
            kinds.append(plan.kind)
            one.cache.finish_copy(plan.copy_id, error)
            check_invariants(one.cache)
    return kinds


def to_host(one: Scheduler, tokens: bytes) -> None:
    """Publishes tokens, saves them, and takes them off the device."""
    one.publish(tokens)
    copy(one)
    one.cache.evict(one.cache.device.evictable)


def match(one: Scheduler, tokens: bytes) -> tuple[int, int]:
    it = one.cache.match(one.id, one.namespace, tokens, max_tokens=len(tokens) // 4, peek=True)
    return it.device_tokens, it.host_tokens


# --- saving


def test_write_back_keeps_pages_free_ahead_of_need() -> None:
    one = tiers(policy=WritePolicy.WRITE_BACK, free_target_pages=3)
    one.publish(seq("ABCDEFG"))
    (plan,) = one.cache.take_plans()
    assert (plan.kind, plan.device_pages.size) == (CopyKind.DEMOTE, 2), "one page was free already"
    assert one.cache.take_plans() == (), "what is on its way counts"
    one.cache.finish_copy(plan.copy_id)
    assert one.cache.occupancy().free == 3
    assert one.cache.counters.demoted_pages == 2
    assert match(one, seq("ABCDEFG")) == (5 * PAGE, 2 * PAGE)


def test_write_through_saves_what_is_published_and_keeps_it_on_the_device() -> None:
    one = tiers()
    one.publish(seq("AB"))
    assert copy(one) == [CopyKind.DEMOTE]
    assert match(one, seq("AB")) == (2 * PAGE, 0)
    one.publish(seq("ABC"))
    (plan,) = one.cache.take_plans()
    assert plan.device_pages.size == 1, "only what the host has not"


def test_write_through_selective_saves_on_the_second_hit() -> None:
    one = tiers(policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    one.publish(seq("AB"))
    one.release(one.acquire(seq("ABC"), allocate_to=0).lease_id)
    assert copy(one) == []
    one.release(one.acquire(seq("ABC"), allocate_to=0).lease_id)
    assert copy(one) == [CopyKind.DEMOTE]


def test_a_save_that_fails_leaves_the_node_on_the_device_alone() -> None:
    one = tiers()
    one.publish(seq("AB"))
    copy(one, error="the device said no")
    assert one.cache.counters.demote_failed_pages == 2
    assert one.cache.host_occupancy().free == 8
    one.cache.evict(2)
    assert match(one, seq("AB")) == (0, 0)


def test_a_node_that_is_saved_cannot_be_evicted_meanwhile() -> None:
    one = tiers()
    one.publish(seq("AB"))
    (plan,) = one.cache.take_plans()
    assert one.cache.evict(2) == 0
    one.cache.finish_copy(plan.copy_id)
    assert one.cache.evict(2) == 2


def test_pages_under_copies_are_bounded_and_beyond_the_bound_are_dropped() -> None:
    one = tiers(max_copy_pages=2)
    one.publish(seq("AB"))
    one.publish(seq("C"))
    (plan,) = one.cache.take_plans()
    assert plan.device_pages.size == 2
    assert one.cache.counters.demote_skipped_busy == 1
    one.cache.finish_copy(plan.copy_id)
    one.cache.evict(8)
    assert (match(one, seq("AB")), match(one, seq("C"))) == ((0, 2 * PAGE), (0, 0))


def test_the_host_forgets_its_coldest_page_first_and_a_prefix_last() -> None:
    one = tiers(host_pages=3)
    to_host(one, seq("AB"))
    to_host(one, seq("C"))
    to_host(one, seq("D"))
    assert (match(one, seq("AB")), match(one, seq("C")), match(one, seq("D"))) == ((0, PAGE), (0, PAGE), (0, PAGE))


def test_a_prefix_that_leaves_both_tiers_takes_along_what_hangs_below_it() -> None:
    one = tiers(max_copy_pages=1)
    one.publish(seq("AB"))  # two pages: too many to save at once
    one.publish(seq("ABC"))
    assert copy(one) == [CopyKind.DEMOTE]
    assert one.cache.evict(1) == 1
    assert match(one, seq("ABC")) == (2 * PAGE, PAGE)
    assert one.cache.evict(2) == 2
    assert (one.cache.tree.nodes, one.cache.host_occupancy().free) == (0, 8)
    check_invariants(one.cache)


# --- loading


def test_what_is_not_worth_a_copy_is_computed() -> None:
    one = tiers(promote_min_pages=3)
    to_host(one, seq("AB"))
    lease = one.acquire(seq("ABC"))
    assert (lease.device_tokens, lease.host_tokens, lease.loading) == (0, 0, ())
    assert one.cache.match(one.id, one.namespace, seq("ABC")).host_tokens == 2 * PAGE


def test_an_acquire_never_evicts_its_own_source_or_prefix() -> None:
    one = tiers(pages=4, host_pages=4)
    one.publish(seq("ABCD"))
    copy(one)
    one.cache.evict(2)
    lease = one.acquire(seq("ABCD"), max_tokens=4 * PAGE)
    assert (lease.device_tokens, lease.host_tokens, len(set(lease.pages.tolist()))) == (4 * PAGE, 2 * PAGE, 4)
    copy(one)
    assert one.cache.counters.promoted_pages == 2
    assert one.cache.host_occupancy() == HostOccupancy(4, 0, 0, 4, 0)


def test_a_prefix_that_is_arriving_is_neither_published_over_nor_moved_nor_offloaded() -> None:
    one = tiers()
    to_host(one, seq("AB"))
    lease = one.acquire(seq("ABC"))
    verbs = (
        lambda: one.insert(lease.lease_id, 3 * PAGE),
        lambda: one.cache.move(one.id, lease.lease_id, np.array([PAGE], np.int32), np.array([PAGE], np.int32)),
        lambda: one.cache.offload(one.id, lease.lease_id),
        lambda: one.release(lease.lease_id, publish_to=3 * PAGE),
    )
    for verb in verbs:
        with pytest.raises(Refusal) as refusal:
            verb()
        assert refusal.value.reason is Reason.IN_FLIGHT
    copy(one)
    assert one.insert(lease.lease_id, 3 * PAGE).published == 3 * PAGE


@pytest.mark.parametrize("dedup", list(Dedup))
def test_a_publication_stops_before_bytes_that_are_arriving(dedup: Dedup) -> None:
    cache = PrefixCache(CacheConfig(16, host_pages=8, write_policy=THROUGH))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2, dedup=dedup)
    to_host(one, seq("AB"))
    computed = other.acquire(seq("ABD"), max_tokens=0)
    one.acquire(seq("ABC"))
    result = other.insert(computed.lease_id, 3 * PAGE)
    assert (result.published, result.patches) == (0, ()), "the bytes there may never come"
    copy(one)
    assert other.insert(computed.lease_id, 3 * PAGE).published == 3 * PAGE
    check_invariants(cache)


def test_joining_a_load_reserves_what_its_failure_would_cost() -> None:
    one = tiers(pages=6)
    to_host(one, seq("AB"))
    first = one.acquire(seq("AB"), max_tokens=2 * PAGE)
    second = one.acquire(seq("AB"), max_tokens=2 * PAGE)
    assert one.cache.occupancy(one.id).reserved_mine == 2
    with pytest.raises(Refusal):
        one.acquire(seq("XYZ"))
    copy(one, error="the device said no")
    arrivals = one.cache.take_arrivals(one.id)
    pages = np.concatenate([it.patches[0].pages for it in arrivals])
    assert [it.lease_id for it in arrivals] == [first.lease_id, second.lease_id]
    assert len(set(pages.tolist())) == 4
    assert one.cache.occupancy(one.id).reserved_mine == 0


def test_a_load_is_joined_only_where_its_failure_could_be_met() -> None:
    one = tiers(pages=3)
    to_host(one, seq("AB"))
    one.acquire(seq("AB"), max_tokens=2 * PAGE)
    with pytest.raises(Refusal) as refusal:
        one.acquire(seq("AB"), max_tokens=2 * PAGE)
    assert refusal.value.reason is Reason.NO_PAGES
    copy(one)
    one.acquire(seq("AB"), max_tokens=2 * PAGE)


def test_a_load_outlives_the_lease_it_was_begun_for() -> None:
    one = tiers()
    to_host(one, seq("AB"))
    one.release(one.acquire(seq("ABC")).lease_id)
    assert match(one, seq("AB")) == (0, 2 * PAGE), "still on its way"
    copy(one)
    assert match(one, seq("AB")) == (2 * PAGE, 0)
    assert one.cache.occupancy().evictable == 2


# --- offloading


def test_an_offloaded_lease_takes_match_restore_and_release_alone() -> None:
    one = tiers()
    lease = one.acquire(seq("AB"), reserve_to=4 * PAGE)
    one.cache.offload(one.id, lease.lease_id)
    copy(one)
    assert one.cache.occupancy(one.id).free == 8
    assert one.cache.occupancy(one.id).reserved_mine == 0
    for verb in (
        lambda: one.insert(lease.lease_id, 0),
        lambda: one.cache.allocate(one.id, lease.lease_id, PAGE),
        lambda: one.cache.free(one.id, lease.lease_id, 0),
        lambda: one.cache.offload(one.id, lease.lease_id),
        lambda: one.cache.activate(one.id, lease.lease_id),
    ):
        with pytest.raises(Refusal) as refusal:
            verb()
        assert refusal.value.reason is Reason.NOT_ACTIVE
    assert one.cache.match_lease(one.id, lease.lease_id).device_tokens == 0
    one.release(lease.lease_id)
    assert one.cache.host_occupancy().free == 8


def test_the_host_keeps_an_offloaded_prefix_whoever_wants_room() -> None:
    one = tiers(host_pages=4)
    one.publish(seq("AB"))
    copy(one)
    lease = one.acquire(seq("ABC"))
    one.cache.offload(one.id, lease.lease_id)
    copy(one)
    one.cache.evict(8)
    for letters in ("DE", "F", "G"):
        to_host(one, seq(letters))
    restored = one.cache.restore(one.id, lease.lease_id)
    copy(one)
    assert (restored.pages.size, one.cache.take_arrivals(one.id)[-1].device_tokens) == (3, 3 * PAGE)
    one.release(lease.lease_id)
    host = one.cache.host_occupancy()
    assert (host.protected, host.leased) == (0, 0), "nothing is kept any longer"


def test_a_split_is_kept_as_the_node_was() -> None:
    one = tiers()
    one.publish(seq("ABC"))
    copy(one)
    lease = one.acquire(seq("ABCD"))
    one.cache.offload(one.id, lease.lease_id)
    copy(one)
    one.cache.evict(8)
    other = one.acquire(seq("ABX"), allocate_to=0)
    assert (other.host_tokens, one.cache.tree.nodes) == (2 * PAGE, 2)
    copy(one)
    one.release(other.lease_id)
    assert one.cache.host_occupancy().protected == 3
    check_invariants(one.cache)


def test_what_waits_for_a_step_is_published_before_the_lease_is_saved() -> None:
    one = tiers()
    lease = one.acquire(seq("ABC"))
    step = one.launch()
    one.insert(lease.lease_id, 2 * PAGE, after_step=step)
    assert one.cache.offload(one.id, lease.lease_id) == 3
    one.batch(complete=True)
    assert CopyKind.OFFLOAD in copy(one)
    assert match(one, seq("AB")) == (2 * PAGE, 0)
    assert one.cache.host_occupancy().leased == 1, "its last page alone is its own"


def test_a_flushed_lease_survives_its_offload() -> None:
    one = tiers()
    one.publish(seq("AB"))
    copy(one)
    lease = one.acquire(seq("ABC"))
    one.cache.offload(one.id, lease.lease_id)
    copy(one)
    one.cache.flush()
    assert (one.cache.occupancy().free, one.cache.host_occupancy().protected) == (8, 2)
    assert one.cache.restore(one.id, lease.lease_id).pages.size == 3
    assert copy(one) == [CopyKind.PROMOTE, CopyKind.RESTORE]
    assert one.cache.take_arrivals(one.id)[-1].device_tokens == 3 * PAGE
    one.release(lease.lease_id)
    assert (one.cache.occupancy().free, one.cache.host_occupancy().free, one.cache.tree.nodes) == (8, 8, 0)


# --- the journal


def test_a_journal_learns_of_each_page_once_it_is_there_and_before_it_is_gone() -> None:
    one = tiers(host_pages=2)
    one.cache.keep_journal()
    one.publish(seq("AB"))
    (plan,) = one.cache.take_plans()
    assert one.cache.take_journal() == ()
    one.cache.finish_copy(plan.copy_id)
    (kept,) = one.cache.take_journal()
    assert isinstance(kept, Kept)
    assert (kept.parent, kept.key, kept.host_pages.tolist()) == (ROOT, seq("AB"), plan.host_pages.tolist())
    one.publish(seq("C"))
    (next_plan,) = one.cache.take_plans()
    (lost,) = one.cache.take_journal()
    assert isinstance(lost, Lost)
    assert lost.host_pages.tolist() == next_plan.host_pages.tolist() == kept.host_pages.tolist()[1:]
    one.cache.flush()
    assert [it.host_pages.tolist() for it in one.cache.take_journal()] == [kept.host_pages.tolist()[:1]]


def test_the_names_of_pages_follow_from_their_prefix_however_it_was_split() -> None:
    one = tiers()
    one.cache.keep_journal()
    one.publish(seq("AB"))
    one.publish(seq("ABCD"))
    one.publish(seq("ABE"))
    copy(one)
    parents = {it.key: it.parent for it in one.cache.take_journal() if isinstance(it, Kept)}
    behind = chain(chain(ROOT, seq("A")), seq("B"))
    assert parents == {seq("AB"): ROOT, seq("CD"): behind, seq("E"): behind}


def test_adopted_paths_share_their_prefix_and_give_back_what_is_left_over() -> None:
    one = tiers()
    paths = [(seq("ABC"), [5, 3, 1]), (seq("ABD"), [5, 3, 2]), (seq("ABE"), [7, 8, 4])]
    adopted = one.cache.adopt((one.namespace, key, np.array(pages, np.int32)) for key, pages in paths)
    assert adopted == 5
    assert one.cache.host_occupancy() == HostOccupancy(8, 3, 5, 0, 0)
    assert match(one, seq("ABD")) == (0, 3 * PAGE)
    check_invariants(one.cache)
    one.acquire(seq("ABEZ"))
    (plan,) = one.cache.take_plans()
    assert plan.host_pages.tolist() == [5, 3, 4]


# --- for ever


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_BACK, WritePolicy.WRITE_THROUGH])
def test_ten_thousand_cycles_between_the_tiers_leave_both_ledgers_as_they_were(policy: WritePolicy) -> None:
    """D6, I8: a tier's counters were read after the swap in place of before, and drifted; memory grew."""
    one = tiers(pages=4, host_pages=6, policy=policy, free_target_pages=2)
    sequences = [seq(letters + "Z") for letters in ("AB", "CD", "EF")]
    for cycle in range(10_000):
        tokens = sequences[cycle % 3]
        lease = one.acquire(tokens, allocate_to=2 * PAGE)
        for plan in one.cache.take_plans():
            one.cache.finish_copy(plan.copy_id)
        one.release(lease.lease_id, publish_to=2 * PAGE)
        for plan in one.cache.take_plans():
            one.cache.finish_copy(plan.copy_id)
        device, host = one.cache.occupancy(), one.cache.host_occupancy()
        assert device.free + device.evictable == 4
        assert host.free + host.evictable == 6
        one.cache.take_arrivals(one.id)
        if cycle % 1_000 == 0:
            check_invariants(one.cache)
        if cycle == 9_000:
            tracemalloc.start()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert one.cache.counters.promoted_pages > 19_000
    assert grown < 32 * 1_024, "a thousand cycles leave nothing but what the last ones replaced"
