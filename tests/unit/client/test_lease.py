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
