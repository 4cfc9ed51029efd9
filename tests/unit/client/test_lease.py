"""Page tables and lengths, as replies change them."""

import numpy as np
import pytest

from radixd.client.errors import NoLease, StaleEpoch
from radixd.client.lease import LeaseState, LeaseStatus, Standing
from radixd.client.results import TablePatch

P = 4


def pages(*ids):
    return np.array(ids, np.int32)


@pytest.fixture
def standing():
    return Standing(P)


@pytest.fixture
def lease(standing):
    lease = LeaseState(standing)
    lease.on_opened(7, known=10)
    lease.on_activated(pages(5, 3, 9), device_tokens=4, rollback_tokens=0)
    return lease


def test_an_active_lease_knows_its_lengths(lease):
    assert (lease.lease_id, lease.status) == (7, LeaseStatus.ACTIVE)
    assert (lease.published, lease.written, lease.known, lease.allocated) == (4, 4, 10, 12)


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (0, 0), (3, 5), (4, 8), (5, 11), (11, 12), (12, 12)])
def test_slots_are_those_of_the_naive_loop(lease, start, stop):
    table = lease.pages.tolist()
    slots = lease.slots(start, stop)
    assert slots.tolist() == [table[i // P] * P + i % P for i in range(start, stop)]
    assert slots.dtype == np.int32


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4), (0, 13)])
def test_slots_beyond_the_table_are_refused(lease, start, stop):
    with pytest.raises(ValueError, match="not within the table"):
        lease.slots(start, stop)


def test_a_table_that_was_handed_out_never_changes(lease, standing):
    before = lease.pages
    lease.on_grown(pages(2), known=3)
    lease.on_inserted(12, 0, 12, [TablePatch(1, pages(8, 6))])
    lease.apply_patches()
    assert before.tolist() == [5, 3, 9]
    assert lease.pages.tolist() == [5, 8, 6, 2]
    assert (lease.known, lease.written, lease.published) == (13, 12, 12)
    for table in (lease.pages, LeaseState(standing)._pages):
        with pytest.raises(ValueError, match="read-only"):
            table[:] = 0


def test_patches_wait_for_the_boundary(lease, standing):
    lease.on_inserted(8, 0, 8, [TablePatch(1, pages(8))])
    assert lease.pages.tolist() == [5, 3, 9]
    assert standing.unpatched == [lease]
    lease.apply_patches()
    assert lease.pages.tolist() == [5, 8, 9]


def test_free_shortens_table_and_lengths(lease):
    lease.on_inserted(10, 0, 8, [])
    lease.on_freed(9, allocated=12)
    assert (lease.known, lease.written, lease.allocated) == (9, 9, 12)
    lease.on_freed(8, allocated=8)
    assert (lease.known, lease.written, lease.pages.tolist()) == (8, 8, [5, 3])


def test_a_released_lease_gives_nothing_away(lease, standing):
    lease.on_inserted(8, 0, 8, [TablePatch(1, pages(8))])
    lease.on_released()
    lease.apply_patches()
    with pytest.raises(NoLease, match="lease 7 was released"):
        _ = lease.pages
    with pytest.raises(NoLease):
        lease.slots(0, 0)
    assert standing.leases == {}


def test_retraction_keeps_the_tokens_alone(lease, standing):
    lease.on_retracted(known=2)
    assert (lease.status, lease.known, lease.allocated, lease.published) == (LeaseStatus.WAITING, 12, 0, 0)
    assert standing.leases == {7: lease}
    lease.on_activated(pages(1, 2, 3), device_tokens=8, rollback_tokens=0)
    assert lease.pages.tolist() == [1, 2, 3]


def test_the_sessions_end_voids_every_lease(lease, standing):
    standing.over = StaleEpoch("restarted")
    for use in (lambda: lease.pages, lambda: lease.slots(0, 1), lease.check):
        with pytest.raises(StaleEpoch):
            use()


def test_a_lease_that_was_never_answered_cannot_be_used(standing):
    with pytest.raises(NoLease, match="not open"):
        LeaseState(standing).check()


def test_copies_are_seen_until_each_has_ended(lease, standing):
    lease.on_copy_started(1)
    lease.on_copy_started(2)
    lease.on_copy_ended(1)
    assert lease.copying
    lease.on_copy_ended(2)
    assert not lease.copying


@pytest.fixture
def loading(standing):
    """Two of its three pages are cached; the second is arriving under copy 11."""
    lease = LeaseState(standing)
    lease.on_opened(8, known=10)
    lease.on_activated(pages(5, 3, 9), 8, 0, host_tokens=4, loading=frozenset({11}))
    return lease


def test_a_lease_is_loading_until_its_copy_has_arrived(loading):
    assert (loading.status, loading.device_tokens, loading.host_tokens) == (LeaseStatus.ACTIVE, 8, 4)
    assert (loading.loading, loading.readable) == ({11}, 8)
    loading.on_arrived(11, 8, [])
    assert (loading.loading, loading.readable, loading.host_tokens) == (frozenset(), 8, 4)


def test_a_copy_that_failed_shortens_the_hit_and_patches_the_table_at_once(loading):
    before = loading.pages
    loading.on_arrived(11, 4, [TablePatch(1, pages(7))])
    assert loading.pages.tolist() == [5, 7, 9]
    assert before.tolist() == [5, 3, 9]
    assert (loading.readable, loading.device_tokens, loading.host_tokens) == (4, 4, 0)
    assert (loading.published, loading.written, loading.loading) == (4, 4, frozenset())


def test_an_import_that_failed_takes_the_peers_tokens_off(standing):
    lease = LeaseState(standing)
    lease.on_opened(8, known=10)
    lease.on_activated(pages(5, 3, 9), 8, 0, peer_tokens=4, loading=frozenset({11}))
    assert (lease.device_tokens, lease.host_tokens, lease.peer_tokens) == (8, 0, 4)
    lease.on_arrived(11, 4, [TablePatch(1, pages(7))])
    assert (lease.device_tokens, lease.host_tokens, lease.peer_tokens) == (4, 0, 0)
    lease.on_retracted(known=0)
    lease.on_activated(pages(5, 3, 9), 8, 0, peer_tokens=4)
    assert lease.peer_tokens == 4


def test_an_arrival_for_an_earlier_activation_changes_nothing(loading):
    loading.on_retracted(known=0)
    loading.on_arrived(11, 4, [TablePatch(1, pages(7))])
    assert (loading.status, loading.allocated, loading.loading) == (LeaseStatus.WAITING, 0, frozenset())
    loading.on_activated(pages(1, 2, 3), 8, 0, host_tokens=8, loading=frozenset({12}))
    loading.on_arrived(11, 0, [TablePatch(0, pages(7, 8))])
    assert (loading.pages.tolist(), loading.loading, loading.readable) == ([1, 2, 3], {12}, 8)


def test_offload_and_restore_bring_the_lengths_back_on_other_pages(lease):
    lease.on_inserted(10, 0, 8, [])
    lease.on_offloading()
    assert (lease.status, lease.pages.tolist()) == (LeaseStatus.OFFLOADING, [5, 3, 9])
    lease.on_saved(saved=True)
    assert (lease.status, lease.allocated, lease.known, lease.written) == (LeaseStatus.OFFLOADED, 0, 10, 10)
    lease.on_restored(pages(2, 4, 6), 10, frozenset({1, 2}))
    lease.on_arrived(1, 10, [])
    assert (lease.status, lease.loading) == (LeaseStatus.RESTORING, {2})
    lease.on_arrived(2, 10, [])
    assert (lease.status, lease.readable, lease.published, lease.written) == (LeaseStatus.ACTIVE, 10, 8, 10)
    assert lease.pages.tolist() == [2, 4, 6]


def test_a_restore_with_nothing_to_copy_is_active_at_once(lease):
    lease.on_offloading()
    lease.on_saved(saved=True)
    lease.on_restored(pages(5, 3, 9), 4, frozenset())
    assert (lease.status, lease.readable) == (LeaseStatus.ACTIVE, 4)


def test_a_restore_that_failed_goes_on_from_what_is_readable(lease):
    lease.on_inserted(10, 0, 8, [])
    lease.on_offloading()
    lease.on_saved(saved=True)
    lease.on_restored(pages(2, 4, 6), 10, frozenset({1, 2}))
    lease.on_arrived(2, 8, [])
    lease.on_arrived(1, 0, [TablePatch(0, pages(7, 8))])
    assert (lease.status, lease.readable) == (LeaseStatus.ACTIVE, 0)
    assert (lease.published, lease.written, lease.device_tokens, lease.known) == (0, 0, 0, 10)
    assert lease.pages.tolist() == [7, 8, 6]


def test_an_offload_that_failed_leaves_the_lease_as_it_was_and_with_its_patches(lease):
    lease.on_offloading()
    lease.on_published(8, [TablePatch(1, pages(8))])
    lease.apply_patches()
    lease.on_saved(saved=False)
    assert (lease.status, lease.pages.tolist()) == (LeaseStatus.ACTIVE, [5, 8, 9])


def test_the_end_of_an_offload_is_no_business_of_a_retracted_lease(lease):
    lease.on_offloading()
    lease.on_retracted(known=0)
    lease.on_saved(saved=True)
    assert lease.status is LeaseStatus.WAITING


def test_a_patch_that_comes_after_the_pages_have_gone_is_dropped(lease):
    lease.on_retracted(known=0)
    lease.on_published(8, [TablePatch(1, pages(8))])
    lease.apply_patches()
    assert lease.allocated == 0
