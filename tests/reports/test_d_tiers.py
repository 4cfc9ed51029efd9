"""Field reports, group D: what moves between the tiers arrives whole, where it should, or not at all.

Bytes are real, copies late, and both layouts are tried: a layout decides what one copy is made of.
"""

import numpy as np
import pytest

from radixd.gpu_pool.layout import LayoutKind
from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import CopyKind
from tests.sequences import PAGE, seq
from tests.two_tiers import TwoTiers

pytestmark = pytest.mark.usefixtures("memory")

LAYOUTS: tuple[LayoutKind, ...] = ("page_first", "layer_first")
both_layouts = pytest.mark.parametrize("layout", LAYOUTS)


def config(pages: int = 16, host_pages: int = 16, **rest: int) -> CacheConfig:
    return CacheConfig(pages, host_pages=host_pages, write_policy=WritePolicy.WRITE_THROUGH, **rest)  # type: ignore[arg-type]


@both_layouts
def test_an_offload_waits_for_the_step_that_writes(layout: LayoutKind) -> None:
    """D1 (a): the copy to the host read pages before the kernel that writes them had ended."""
    with TwoTiers.opened(layout, config()) as it:
        tokens = seq("AB", tail=40)
        lease = it.scheduler.acquire(tokens)
        it.scheduler.launch()
        it.cache.offload(it.scheduler.id, lease.lease_id)
        assert it.turn() == (), "a step in flight still writes"
        it.write(tokens, lease.pages)
        it.scheduler.batch(complete=True)
        it.settle()
        it.scribble(lease.pages)
        restored = it.cache.restore(it.scheduler.id, lease.lease_id)
        it.settle()
        assert it.holds(tokens, restored.pages)


@both_layouts
def test_nothing_is_loaded_into_pages_that_a_step_still_reads(layout: LayoutKind) -> None:
    """D1 (b): a restore overwrote pages that a kernel was still reading."""
    with TwoTiers.opened(layout, config(pages=4)) as it:
        it.to_host(seq("AB"))
        reader = it.scheduler.acquire(seq("CDE"))
        it.write(seq("CDE"), reader.pages)
        step = it.scheduler.launch()
        it.scheduler.release(reader.lease_id)
        with pytest.raises(Refusal) as refusal:
            it.scheduler.acquire(seq("ABZ"))
        assert refusal.value.reason is Reason.NO_PAGES
        it.settle()
        assert it.holds(seq("CDE"), reader.pages), "the step reads what it was launched for"
        it.cache.complete(it.scheduler.id, step)
        lease = it.scheduler.acquire(seq("ABZ"))
        it.settle()
        assert (lease.host_tokens, it.holds(seq("ABZ"), lease.pages, upto=2)) == (2 * PAGE, True)


@both_layouts
def test_a_node_that_is_split_while_it_is_saved_is_saved_whole(layout: LayoutKind) -> None:
    """D3: the upper part was never written, or was freed and reused before the copy had read it."""
    with TwoTiers.opened(layout, config(pages=14)) as it:
        it.pause()
        pages = it.publish(seq("ABCDEF"))
        assert [plan.kind for plan in it.turn()] == [CopyKind.DEMOTE]
        upper = it.scheduler.acquire(seq("ABCDX"), allocate_to=0)
        it.scheduler.release(upper.lease_id)
        assert it.cache.tree.nodes == 2
        assert it.cache.evict(6) == 0
        others = it.scheduler.acquire(seq("GHIJKL"))
        assert not set(others.pages.tolist()) & set(pages.tolist())
        it.resume()
        it.settle()
        assert it.cache.host_occupancy().evictable == 6
        it.scheduler.release(others.lease_id)
        assert it.cache.evict(6) == 6
        it.scribble(pages)
        lease = it.scheduler.acquire(seq("ABCDEFZ"))
        it.settle()
        assert lease.host_tokens == it.copied(CopyKind.PROMOTE) * PAGE == 6 * PAGE
        assert it.holds(seq("ABCDEFZ"), lease.pages, upto=6)


@both_layouts
def test_a_lease_comes_back_whole_to_other_pages(layout: LayoutKind) -> None:
    """D4, D18: a restore brought back KV without the index keys and scales, or to the pages of before.

    The partly filled last page and a published prefix come with it, and the copies are counted.
    """
    with TwoTiers.opened(layout, config()) as it:
        it.publish(seq("AB"))
        tokens = seq("ABCDE", tail=17)
        lease = it.scheduler.acquire(tokens)
        it.write(tokens, lease.pages, first=2)
        it.scheduler.insert(lease.lease_id, 3 * PAGE)
        assert it.cache.offload(it.scheduler.id, lease.lease_id) == 5  # the prefix is on its way to the host, not there
        it.settle()
        assert [saved.error for saved in it.saved()] == [""]
        assert it.copied(CopyKind.OFFLOAD) == 5
        it.cache.evict(3)
        it.scribble(lease.pages)
        squatters = it.scheduler.acquire(seq("XYZ"))
        restored = it.cache.restore(it.scheduler.id, lease.lease_id)
        assert not set(restored.pages.tolist()) & set(squatters.pages.tolist())
        assert restored.pages.tolist() != lease.pages.tolist()
        assert len(restored.loading) == 2
        it.settle()
        assert (it.copied(CopyKind.PROMOTE), it.copied(CopyKind.RESTORE)) == (3, 2)
        assert it.arrivals()[-1].device_tokens == 4 * PAGE + 17
        assert it.holds(tokens, restored.pages)


@both_layouts
def test_two_loads_behind_one_another_use_their_own_lists(layout: LayoutKind) -> None:
    """D9: a staging buffer was rewritten while the copy before had yet to read it."""
    with TwoTiers.opened(layout, config()) as it:
        for letters in ("AB", "CDE"):
            it.to_host(seq(letters))
        it.pause()
        first, second = it.scheduler.acquire(seq("ABZ")), it.scheduler.acquire(seq("CDEZ"))
        it.turn()
        it.resume()
        it.settle()
        assert it.holds(seq("ABZ"), first.pages, upto=2)
        assert it.holds(seq("CDEZ"), second.pages, upto=3)


@both_layouts
def test_an_aborted_load_gives_every_page_back_once(layout: LayoutKind) -> None:
    """D10: an abort freed the same host pages twice, and the allocator gave out a view of its own free list."""
    with TwoTiers.opened(layout, config()) as it:
        it.to_host(seq("ABCDEFGH"))
        before = it.cache.host_occupancy()
        lease = it.scheduler.acquire(seq("ABCDEFGHZ"))
        (plan,) = it.turn()
        ids = plan.device_pages.tolist(), plan.host_pages.tolist()
        it.scheduler.release(lease.lease_id)
        it.confirm(error="three pages, then the device said no")
        other = it.scheduler.acquire(seq("STUV"))
        assert (plan.device_pages.tolist(), plan.host_pages.tolist()) == ids, "ids given out are the receiver's own"
        it.scheduler.release(other.lease_id)
        assert it.cache.host_occupancy() == before
        assert it.cache.occupancy().free == 16
        again = it.scheduler.acquire(seq("ABCDEFGHZ"))
        it.settle()
        assert (again.host_tokens, it.holds(seq("ABCDEFGHZ"), again.pages, upto=8)) == (8 * PAGE, True)


@both_layouts
@pytest.mark.parametrize("policy", list(WritePolicy))
def test_what_leaves_the_device_is_hit_on_the_host(layout: LayoutKind, policy: WritePolicy) -> None:
    """D12: eviction deleted the node instead of demoting it; the host filled, and was never hit."""
    with TwoTiers.opened(layout, CacheConfig(8, host_pages=8, write_policy=policy, free_target_pages=8)) as it:
        pages = it.publish(seq("AB"))
        for _ in range(2):
            it.scheduler.release(it.scheduler.acquire(seq("ABZ"), allocate_to=0).lease_id)
        it.settle()
        it.cache.evict(8)
        it.scribble(pages)
        match = it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("ABZ"))
        assert (match.device_tokens, match.host_tokens) == (0, 2 * PAGE)
        lease = it.scheduler.acquire(seq("ABZ"))
        it.settle()
        assert (lease.device_tokens, it.cache.counters.host_hit_tokens) == (2 * PAGE, 2 * PAGE)
        assert it.holds(seq("ABZ"), lease.pages, upto=2)
        assert it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("ABZ")).device_tokens == 2 * PAGE


@both_layouts
def test_with_no_host_page_to_be_had_a_victim_is_dropped(layout: LayoutKind) -> None:
    """D14: the host was full, the save wrote nothing, and the node counted as saved."""
    with TwoTiers.opened(layout, CacheConfig(4, host_pages=1, free_target_pages=4)) as it:
        holder = it.scheduler.acquire(seq("H"))
        it.cache.offload(it.scheduler.id, holder.lease_id)
        it.settle()
        it.publish(seq("A"))
        it.settle()
        assert it.cache.counters.demote_skipped_full >= 1
        assert it.cache.evict(1) == 1
        match = it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("AZ"))
        assert (match.device_tokens, match.host_tokens, it.cache.tree.nodes) == (0, 0, 0)
        assert it.copied(CopyKind.DEMOTE) == 0
        check_invariants(it.cache)


@both_layouts
@pytest.mark.parametrize(("stored", "wanted"), [(("ABCD",), 3), (("ABCD", "ABCDEFGH"), 5), (("AB", "ABCDEF"), 6)])
def test_any_part_of_what_was_saved_can_come_back(layout: LayoutKind, stored: tuple[str, ...], wanted: int) -> None:
    """D16: part of a host chunk, or parts of two, tripped an assertion. Pages come one by one here."""
    with TwoTiers.opened(layout, config()) as it:
        for letters in stored:
            it.publish(seq(letters))
            it.settle()
        it.cache.evict(16)
        tokens = seq(stored[-1])
        lease = it.scheduler.acquire(tokens, max_tokens=wanted * PAGE, allocate_to=0)
        it.settle()
        assert lease.host_tokens == it.copied(CopyKind.PROMOTE) * PAGE == wanted * PAGE
        assert it.holds(tokens, lease.pages, upto=wanted)


@both_layouts
def test_nobody_waits_for_a_load_that_another_has_begun(layout: LayoutKind) -> None:
    """D18, F: two requests for one prefix cost one copy, and both are told of its end."""
    with TwoTiers.opened(layout, config()) as it:
        it.to_host(seq("ABCD"))
        it.pause()
        first, second = it.scheduler.acquire(seq("ABCDY")), it.scheduler.acquire(seq("ABX"))
        assert (first.loading, second.host_tokens) == (second.loading, 2 * PAGE)
        it.turn()
        assert it.arrivals() == ()
        it.resume()
        it.settle()
        assert it.copied(CopyKind.PROMOTE) == 4
        told = [(arrival.lease_id, arrival.device_tokens) for arrival in it.arrivals()]
        assert told == [(first.lease_id, 4 * PAGE), (second.lease_id, 2 * PAGE)]
        assert it.holds(seq("ABCDY"), first.pages, upto=4)
        assert it.holds(seq("ABX"), second.pages, upto=2)


@both_layouts
def test_a_load_that_fails_shortens_the_hit_of_all_who_wait(layout: LayoutKind) -> None:
    """Rule 7: never an error, and never a page that two may write."""
    with TwoTiers.opened(layout, config()) as it:
        it.publish(seq("A"))
        it.to_host(seq("ABCD"))
        it.publish(seq("A"))
        first, second = it.scheduler.acquire(seq("ABCDY")), it.scheduler.acquire(seq("ABCX"))
        it.turn()
        it.confirm(error="the device said no")
        arrivals = {arrival.lease_id: arrival for arrival in it.arrivals()}
        tables = {}
        for lease in (first, second):
            table, arrival = lease.pages.copy(), arrivals[lease.lease_id]
            assert (arrival.device_tokens, arrival.error) == (PAGE, "the device said no")
            for patch in arrival.patches:
                table[patch.first_page : patch.first_page + len(patch.pages)] = patch.pages
            tables[lease.lease_id] = table
        own = np.concatenate([table[1:] for table in tables.values()])
        assert len(set(own.tolist())) == len(own) == 7
        for lease, tokens in ((first, seq("ABCDY")), (second, seq("ABCX"))):
            it.write(tokens, tables[lease.lease_id], first=1)
        assert it.holds(seq("ABCDY"), tables[first.lease_id])
        assert it.holds(seq("ABCX"), tables[second.lease_id])
        check_invariants(it.cache)
