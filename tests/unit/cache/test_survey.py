"""Bounded looks at a cache: what they visit, what they leave out, and that they say so."""

import numpy as np

from radixd.server.cache.page_map import PageState, read_page_map
from radixd.server.cache.prefix_cache import CacheConfig
from radixd.server.cache.survey import survey_leases, survey_nodes
from tests.scheduler import Scheduler
from tests.sequences import PAGE, seq


def test_nodes_come_level_by_level_with_where_they_end() -> None:
    one = Scheduler.alone(CacheConfig(16))
    for text in ("AB", "AC", "ADE", "X"):
        one.publish(seq(text))
    rows = survey_nodes(one.cache)
    assert [(row.end_page, row.device_pages) for row in rows] == [(1, 1), (1, 1), (2, 1), (2, 1), (3, 2)]
    assert [row.end_page for row in survey_nodes(one.cache, limit=3)] == [1, 1, 2]
    assert len(survey_nodes(one.cache, limit=1)) == 1


def test_leases_are_the_oldest() -> None:
    one = Scheduler.alone(CacheConfig(16))
    first = one.cache.acquire(one.id, one.namespace, seq("ABC", tail=3))
    one.cache.wait(one.id, one.namespace, seq("C"))
    rows = survey_leases(one.cache, limit=10)
    assert [(row.state, row.known, row.allocated, row.own_pages) for row in rows] == [
        ("active", 2 * PAGE + 3, 3 * PAGE, 3),
        ("waiting", PAGE, 0, 0),
    ]
    assert [row.lease for row in survey_leases(one.cache, limit=1)] == [first.lease_id]


def test_a_map_that_leaves_held_pages_out_says_so() -> None:
    one = Scheduler.alone(CacheConfig(16))
    one.publish(seq("AB"))
    one.publish(seq("AC"))
    for text in ("AB", "AC"):
        one.cache.acquire(one.id, one.namespace, seq(f"{text}Z", tail=1))
    # Two leases, and three nodes: A, and B and C below it.
    whole, cut = read_page_map(one.cache, max_held=5), read_page_map(one.cache, max_held=4)
    assert (whole.whole, cut.whole) == (True, False)
    assert np.count_nonzero(whole.device.paint() == PageState.PROTECTED) == one.cache.device.protected == 3
    assert np.count_nonzero(read_page_map(one.cache, max_held=2).device.paint() == PageState.PROTECTED) < 3


def test_a_map_is_of_the_moment_it_was_read() -> None:
    one = Scheduler.alone(CacheConfig(16))
    one.publish(seq("AB"))
    before = read_page_map(one.cache)
    one.cache.flush()
    assert np.count_nonzero(before.device.paint() == PageState.EVICTABLE) == 2
    assert np.count_nonzero(read_page_map(one.cache).device.paint() == PageState.EVICTABLE) == 0
