"""What operations are counted as."""

import pytest

from radixd.server.cache.histogram import Histogram
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.session import Dedup
from radixd.server.cache.step import StepMark
from radixd.server.sessions.work import Shortage, Work
from tests.sequences import ramp

SPACE = Namespace(b"model")
PAGE = 64


def test_bounds_are_inclusive_and_what_is_above_them_is_counted_too() -> None:
    observed = Histogram((0, 64, 256))
    for value in (0, 1, 64, 65, 256, 257, 10**9):
        observed.observe(value)
    assert observed.counts == [1, 2, 2, 2]
    assert observed.count == 7
    assert observed.sum == 0 + 1 + 64 + 65 + 256 + 257 + 10**9


@pytest.fixture
def cache() -> PrefixCache:
    """Eight pages, four of them leased."""
    cache = PrefixCache(CacheConfig(8))
    cache.open_session(1, b"model", Dedup.KEEP)
    cache.acquire(1, SPACE, ramp(4 * PAGE))
    return cache


def refused(cache: PrefixCache, pages: int, **more: int) -> Shortage:
    """Why an Acquire of as many pages is refused."""
    work = Work()
    with pytest.raises(Refusal) as refusal:
        cache.acquire(1, SPACE, ramp(pages * PAGE, start=10_000), **more)
    work.operation("acquire", refusal.value, 0.001)
    (shortage,) = work.shortages
    assert work.refused_pages.sum == (0 if shortage is Shortage.NEVER_FITS else pages)
    return shortage


def test_more_than_the_pool_has_never_fits(cache: PrefixCache) -> None:
    assert refused(cache, 9) is Shortage.NEVER_FITS


def test_what_leases_hold_is_held(cache: PrefixCache) -> None:
    assert refused(cache, 5) is Shortage.HELD


def test_what_was_promised_to_others_is_reserved(cache: PrefixCache) -> None:
    cache.acquire(1, SPACE, ramp(PAGE, start=5_000), reserve_to=3 * PAGE)
    assert refused(cache, 3) is Shortage.RESERVED


def test_what_waits_for_a_step_is_retired(cache: PrefixCache) -> None:
    cache.advance(1, StepMark(seq=1, ack=0, launched=1, completed=0))
    given_up = cache.acquire(1, SPACE, ramp(2 * PAGE, start=5_000))
    cache.release(1, given_up.lease_id)
    assert refused(cache, 4) is Shortage.RETIRED


def test_other_refusals_are_no_shortage() -> None:
    work = Work()
    work.operation("free", Refusal(Reason.DOUBLE_FREE, ""), 0.001)
    assert work.verbs["free"].refused == {Reason.DOUBLE_FREE: 1}
    assert not work.shortages
