"""Field reports, group G: sizes at the edge, bad input, handles that are not yours."""

from collections.abc import Callable

import numpy as np
import pytest

from radixd.gpu_pool.slots import DoubleFree, SlotAllocator
from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason, Refusal
from tests.property.observed import fingerprint
from tests.scheduler import Scheduler
from tests.sequences import PAGE, ramp, seq


def refused(cache: PrefixCache, call: Callable[[], object]) -> Refusal:
    """Makes a call that is refused and changes nothing."""
    before = fingerprint(cache)
    with pytest.raises(Refusal) as refusal:
        call()
    assert fingerprint(cache) == before
    return refusal.value


def test_never_and_not_now_are_told_apart() -> None:
    """G1: a request larger than the pool waited for ever; an exact fit hung on the reserved page."""
    one = Scheduler.alone(CacheConfig(7))
    exact = one.acquire(ramp(7 * PAGE))
    assert exact.pages.size == 7
    assert 0 not in exact.pages
    refusal = refused(one.cache, lambda: one.acquire(ramp(8 * PAGE)))
    assert (refusal.reason, refusal.facts["max_pages"], refusal.facts["max_tokens"]) == (Reason.NEVER_FITS, 7, 448)
    refusal = refused(one.cache, lambda: one.acquire(ramp(1)))
    assert refusal.reason is Reason.NO_PAGES
    refusal = refused(one.cache, lambda: one.acquire(ramp(1), reserve_to=8 * PAGE))
    assert refusal.reason is Reason.NEVER_FITS


def test_a_million_tokens_are_plain() -> None:
    """G2: default limits were hit by large lists; above the limit nothing was half done."""
    one = Scheduler.alone(CacheConfig(24_576))
    tokens = ramp(1_572_864)
    assert one.publish(tokens) == 1_572_864
    assert one.cached(tokens) == 1_572_864
    refusal = refused(one.cache, lambda: one.acquire(tokens + ramp(1)))
    assert (refusal.reason, refusal.field) == (Reason.LIMIT_EXCEEDED, "tokens")
    assert (refusal.facts["limit"], refusal.facts["value"]) == (1_572_864, 1_572_865)
    waiting = one.cache.wait(one.id, one.namespace, tokens)
    assert refused(one.cache, lambda: one.release(waiting, tokens=ramp(1))).reason is Reason.LIMIT_EXCEEDED


def test_nothing_waits_for_pages_that_cannot_come() -> None:
    """G5: an allocation spun for ever when nothing could be evicted."""
    one = Scheduler.alone(CacheConfig(4))
    lease = one.acquire(seq("ABCD"))
    one.insert(lease.lease_id, 4 * PAGE)
    refusal = refused(one.cache, lambda: Scheduler.acquire(one, seq("Z")))
    assert refusal.reason is Reason.NO_PAGES
    assert {name: refusal.facts[name] for name in ("needed", "free", "evictable", "retired", "reserved")} == {
        "needed": 1,
        "free": 0,
        "evictable": 0,
        "retired": 0,
        "reserved": 0,
    }


def test_a_double_free_is_seen_at_the_bottom_too() -> None:
    """G7: a debug switch found double frees for one page size only. Here there is no switch."""
    slots = SlotAllocator(4)
    pages = slots.allocate(2)
    slots.free(pages)
    with pytest.raises(DoubleFree):
        slots.free(pages)
    with pytest.raises(DoubleFree):
        slots.free(np.repeat(slots.allocate(1), 2))
    for page_size in (1, 64):
        one = Scheduler.alone(CacheConfig(4, page_size=page_size))
        lease = one.acquire(ramp(page_size))
        one.cache.free(one.id, lease.lease_id, 0)
        refusal = refused(one.cache, lambda it=one, at=lease: it.cache.free(it.id, at.lease_id, 1))
        assert refusal.reason is Reason.DOUBLE_FREE


@pytest.mark.parametrize("handle", ["foreign", "random", "released"])
def test_handles_of_others_do_nothing(handle: str) -> None:
    """G9: another client's receipt, a random id, a lease that is over."""
    cache = PrefixCache(CacheConfig(8))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2)
    theirs, mine = other.acquire(seq("A")), one.acquire(seq("B"))
    one.release(mine.lease_id)
    lease_id = {"foreign": theirs.lease_id, "random": 2**63 + 12345, "released": mine.lease_id}[handle]
    slot = np.array([int(theirs.pages[0]) * PAGE], np.int32)
    calls: list[Callable[[], object]] = [
        lambda: cache.match_lease(1, lease_id),
        lambda: cache.activate(1, lease_id),
        lambda: cache.allocate(1, lease_id, PAGE),
        lambda: cache.insert(1, lease_id, 0),
        lambda: cache.free(1, lease_id, 0),
        lambda: cache.release(1, lease_id),
        lambda: cache.move(1, lease_id, slot, slot),
    ]
    for call in calls:
        reason = Reason.NOT_YOURS if handle == "foreign" else Reason.NO_LEASE
        assert refused(cache, call).reason is reason


def test_slots_outside_the_table_move_nothing() -> None:
    """G9, D5: out of range, negative, duplicated, foreign and published slots."""
    cache = PrefixCache(CacheConfig(8))
    one, other = Scheduler(cache, 1), Scheduler(cache, 2)
    theirs, mine = other.acquire(seq("A")), one.acquire(seq("BC"))
    one.insert(mine.lease_id, PAGE)
    published, private = (int(page) * PAGE for page in mine.pages)
    foreign = int(theirs.pages[0]) * PAGE

    def move(sources: list[int], destinations: list[int]) -> Reason:
        arrays = np.array(sources, np.int32), np.array(destinations, np.int32)
        return refused(cache, lambda: cache.move(1, mine.lease_id, *arrays)).reason

    for bad in (-1, 0, 8 * PAGE + PAGE, 2**31 - 1, foreign):
        assert move([bad], [private]) is Reason.BAD_FIELD
        assert move([private], [bad]) is Reason.BAD_FIELD
        assert move([private, private], [private + 1, bad]) is Reason.BAD_FIELD
    assert move([private, private], [private + 1, private + 1]) is Reason.BAD_FIELD
    assert move([private], []) is Reason.BAD_FIELD
    assert move([private], [published]) is Reason.PUBLISHED


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("tokens", lambda one, lease: one.acquire(b"\0\0\0\0\0")),
        ("tokens", lambda one, lease: one.cache.match(1, one.namespace, b"abc")),
        ("tokens", lambda one, lease: one.insert(lease, 0, tokens=b"abc")),
        ("allocate_to", lambda one, lease: one.acquire(seq("B"), allocate_to=-1)),
        ("allocate_to", lambda one, lease: one.cache.allocate(1, lease, -1)),
        ("written", lambda one, lease: one.insert(lease, PAGE + 1)),
        ("written", lambda one, lease: one.insert(lease, -1)),
        ("written", lambda one, lease: one.insert(lease, PAGE + 1, tokens=seq("B"))),
        ("after_step", lambda one, lease: one.insert(lease, 1, after_step=1)),
        ("publish_to", lambda one, lease: one.release(lease, publish_to=PAGE + 1)),
        ("after_step", lambda one, lease: one.release(lease, after_step=1)),
        ("from_length", lambda one, lease: one.cache.free(1, lease, -1)),
    ],
)
def test_a_bad_field_is_named(field: str, call: Callable[[Scheduler, int], object]) -> None:
    """G9: out of range, negative, malformed: the answer names the field and changes nothing."""
    one = Scheduler.alone(CacheConfig(8))
    lease = one.acquire(seq("A")).lease_id
    refusal = refused(one.cache, lambda: call(one, lease))
    assert (refusal.reason, refusal.field) == (Reason.BAD_FIELD, field)
    assert field in refusal.message


def test_a_lease_in_the_wrong_state_is_refused() -> None:
    """G9: verbs that need pages, on a lease that waits for them; and the other way round."""
    one = Scheduler.alone(CacheConfig(8))
    waiting, active = one.cache.wait(1, one.namespace, seq("A")), one.acquire(seq("B")).lease_id
    slot = np.array([PAGE], np.int32)
    for call in (
        lambda: one.cache.allocate(1, waiting, PAGE),
        lambda: one.insert(waiting, 0),
        lambda: one.cache.free(1, waiting, 0),
        lambda: one.cache.move(1, waiting, slot, slot),
        lambda: one.cache.activate(1, active),
    ):
        refusal = refused(one.cache, call)
        assert refusal.reason is Reason.NOT_ACTIVE
        assert refusal.facts["state"] in {"waiting", "active"}
    check_invariants(one.cache)
