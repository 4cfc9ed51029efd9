"""Field reports, group E: drafts, rollback, and lengths that end inside a page."""

import pytest

from radixd.server.cache.config import WritePolicy
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.speculative import Speculative
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq
from tests.two_tiers import TwoTiers


@pytest.mark.parametrize("start", [*range(0, 131, 13), 127, 128, 129])
def test_rejected_drafts_strand_no_page(start: int) -> None:
    """E1: a recorded length that was not page aligned stranded the last page."""
    one = Scheduler.alone(CacheConfig(16))
    lease = one.acquire(ramp(start), allocate_to=start + 10)
    committed = start
    while committed < start + 80:
        allocated = one.cache.allocate(one.id, lease.lease_id, committed + 10, ramp(2, start=committed)).allocated
        assert allocated % PAGE == 0
        assert allocated >= committed + 10
        committed += 2
        freed = one.cache.free(one.id, lease.lease_id, committed)
        assert freed.allocated == -(-committed // PAGE) * PAGE
    one.release(lease.lease_id)
    assert one.cache.occupancy().free == 16


def test_known_falls_with_a_free_inside_the_last_page() -> None:
    """E1: what is given up is forgotten, also where no whole page goes."""
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(ramp(100))
    assert one.cache.free(one.id, lease.lease_id, 90).freed_pages == 0
    one.insert(lease.lease_id, 128, tokens=ramp(38, start=5_000))
    one.release(lease.lease_id)
    assert one.cached(ramp(90) + ramp(38, start=5_000)) == 128
    assert one.cached(ramp(128)) == 64


def test_pairs_publish_a_page_less_at_page_multiples_and_match_as_much() -> None:
    """E2: a bigram key of n tokens has n − 1 entries; the insert stopped a page earlier than assumed."""
    one = Scheduler.alone(CacheConfig(32, speculative=Speculative.BIGRAM))
    lease = one.acquire(ramp(1_024))
    assert one.insert(lease.lease_id, 1_024).published == 960
    assert one.cached(ramp(1_024)) == 960
    assert one.cache.evict(32) == 0, "the published pages are locked"
    assert one.release(lease.lease_id).freed_pages == 1
    assert one.cache.occupancy().evictable == 15
    assert one.cached(ramp(960)) == 896


def test_a_page_is_another_page_where_the_next_token_differs() -> None:
    """E2, E7: a draft head's KV at a page's last token depends on the token after it."""
    one = Scheduler.alone(CacheConfig(8, speculative=Speculative.BIGRAM))
    one.publish(ramp(65))
    assert one.cached(ramp(66)) == 64
    assert one.cached(ramp(64) + ramp(2, start=9_000)) == 0


def test_the_token_behind_a_published_pair_stays() -> None:
    """E2, E7: another token there would make the page one of another prefix."""
    one = Scheduler.alone(CacheConfig(8, speculative=Speculative.BIGRAM))
    lease = one.acquire(ramp(70))
    one.insert(lease.lease_id, 64)
    with pytest.raises(Refusal) as refusal:
        one.cache.free(one.id, lease.lease_id, 64)
    assert refusal.value.reason is Reason.PUBLISHED
    assert one.cache.free(one.id, lease.lease_id, 65).allocated == 128


def test_an_insert_publishes_what_was_known_when_it_was_asked_for() -> None:
    """E2, E7: the last page's KV was computed under tokens that were given up while its step was in flight."""
    one = Scheduler.alone(CacheConfig(8, speculative=Speculative.BIGRAM))
    one.batch()
    lease = one.acquire(ramp(128)).lease_id
    step = one.launch()
    one.insert(lease, 128, after_step=step)
    one.cache.free(one.id, lease, 65)
    one.cache.allocate(one.id, lease, 192, ramp(100, start=5_000))
    [publication] = one.finish()
    assert publication.published == 64
    assert one.cached(ramp(65) + ramp(100, start=5_000)) == 64


def test_the_last_matched_page_is_recomputed() -> None:
    """E7: vLLM's drafts recompute the last matched page; the reply says so."""
    one = Scheduler.alone(CacheConfig(8, speculative=Speculative.DROP_LAST_PAGE))
    one.publish(ramp(192))
    match = one.cache.match(one.id, one.namespace, ramp(200))
    assert (match.device_tokens, match.rollback_tokens) == (128, 64)
    lease = one.acquire(ramp(200))
    assert (lease.device_tokens, lease.rollback_tokens) == (128, 64)
    short = one.cache.match(one.id, one.namespace, ramp(63))
    assert (short.device_tokens, short.rollback_tokens) == (0, 0)


@pytest.mark.parametrize("length", range(57, 65))
def test_every_position_ahead_has_a_page(length: int) -> None:
    """E4: the device runs a verify step ahead of the books; the write landed past the last page."""
    one = Scheduler.alone(CacheConfig(8))
    ahead = length + 2 * 7
    lease = one.acquire(ramp(length), allocate_to=ahead)
    assert lease.pages.size * PAGE >= ahead
    assert (lease.pages > 0).all()


def test_forked_drafts_share_no_page() -> None:
    """E6: tree drafts each need their own copy of the partly filled last page."""
    one = Scheduler.alone(CacheConfig(32))
    one.publish(ramp(100))
    branches = [one.acquire(ramp(100)) for _ in range(8)]
    assert {int(branch.pages[0]) for branch in branches} == {int(branches[0].pages[0])}
    assert len({int(branch.pages[1]) for branch in branches}) == 8
    free = one.cache.occupancy().free
    for branch in branches[1:]:
        one.release(branch.lease_id)
    assert one.cache.occupancy().free == free + 7
    check_invariants(one.cache)


@pytest.mark.usefixtures("memory")
def test_the_host_is_keyed_as_the_device_is() -> None:
    """E7: one layer keyed by pairs and another by tokens, so that entries were never found, or found wrongly."""
    through = CacheConfig(8, host_pages=8, write_policy=WritePolicy.WRITE_THROUGH, speculative=Speculative.BIGRAM)
    with TwoTiers.opened("page_first", through) as it:
        it.to_host(seq("ABC"))
        assert it.cache.evict(8) == 0
        match = it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("ABC"))
        assert (match.device_tokens, match.host_tokens) == (0, 2 * PAGE)
        # The pair at the end of B has C's first token in it: another one there is another page.
        other = it.cache.match(it.scheduler.id, it.scheduler.namespace, seq("ABD"), max_tokens=3 * PAGE)
        assert (other.device_tokens, other.host_tokens) == (0, PAGE)
