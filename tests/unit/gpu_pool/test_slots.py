"""The free list: every page has one owner, and every refusal changes nothing."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from radixd.gpu_pool.slots import DoubleFree, ForeignPage, OutOfPages, SlotAllocator


def test_page_0_is_never_handed_out_and_all_others_are() -> None:
    slots = SlotAllocator(5)
    pages = slots.allocate(5)
    assert pages.dtype == np.int32
    assert sorted(pages.tolist()) == [1, 2, 3, 4, 5]
    assert slots.free_pages == 0
    with pytest.raises(OutOfPages) as refused:
        slots.allocate(1)
    assert (refused.value.asked, refused.value.free) == (1, 0)


def test_exhaustion_takes_nothing() -> None:
    slots = SlotAllocator(5)
    slots.allocate(3)
    with pytest.raises(OutOfPages, match="asked for 3 pages, 2 are free"):
        slots.allocate(3)
    assert slots.free_pages == 2
    assert slots.allocate(2).size == 2


def test_the_most_recently_freed_pages_are_reused_first_in_the_order_given() -> None:
    slots = SlotAllocator(10)
    slots.allocate(10)
    slots.free([7, 3])
    slots.free([9, 2])
    assert slots.allocate(2).tolist() == [9, 2]
    assert slots.allocate(2).tolist() == [7, 3]


@pytest.mark.parametrize("again", [[4], [1, 4], [4, 1]])
def test_a_double_free_is_refused_and_changes_nothing(again: list[int]) -> None:
    slots = SlotAllocator(8)
    slots.allocate(6)
    slots.free([4])
    before = slots.free_ids().tolist()
    with pytest.raises(DoubleFree, match="4") as refused:
        slots.free(again)
    assert refused.value.pages.tolist() == [4]
    assert slots.free_ids().tolist() == before
    a, b = slots.allocate(2)
    assert a != b


def test_a_page_named_twice_in_one_call_is_a_double_free() -> None:
    slots = SlotAllocator(8)
    slots.allocate(8)
    with pytest.raises(DoubleFree, match="2, 5") as refused:
        slots.free([5, 1, 2, 5, 2, 5])
    assert refused.value.pages.tolist() == [2, 5]
    assert slots.free_pages == 0
    slots.free([5, 2, 1])
    assert slots.free_ids().tolist() == [1, 2, 5]


@pytest.mark.parametrize("foreign", [0, -1, 9, 2**31, 2**32 + 1, -(2**32) + 1])
def test_a_foreign_page_is_refused_and_changes_nothing(foreign: int) -> None:
    slots = SlotAllocator(8)
    slots.allocate(8)
    with pytest.raises(ForeignPage, match=str(foreign)):
        slots.free(np.array([1, foreign], dtype=np.int64))
    assert slots.free_pages == 0
    with pytest.raises(ForeignPage):
        slots.is_free([foreign])


def test_pages_that_are_no_integers_are_refused() -> None:
    slots = SlotAllocator(8)
    slots.allocate(8)
    for bad in ([1.0], [True], [[1]], ["1"]):
        with pytest.raises(TypeError, match="flat array of integers"):
            slots.free(bad)
    assert slots.free_pages == 0


def test_returned_arrays_share_nothing_with_the_allocator() -> None:
    slots = SlotAllocator(8)
    first = slots.allocate(4)
    kept = first.copy()
    slots.free(first)
    slots.free_ids()[:] = 0
    second = slots.allocate(4)
    slots.free(second[::-1].copy())
    assert second.tolist() == first.tolist() == kept.tolist()
    first[:], second[:] = 0, 0
    assert sorted(slots.allocate(8).tolist()) == list(range(1, 9))


def test_nothing_is_a_legal_amount() -> None:
    slots = SlotAllocator(0)
    assert slots.allocate(0).tolist() == []
    slots.free([])
    assert slots.is_free([]).tolist() == []
    with pytest.raises(ValueError, match="-1"):
        SlotAllocator(-1)
    with pytest.raises(ValueError, match="-2"):
        SlotAllocator(3).allocate(-2)


class AllocatorMachine(RuleBasedStateMachine):
    """The allocator against two plain sets."""

    LAST = 12

    def __init__(self) -> None:
        super().__init__()
        self.slots = SlotAllocator(self.LAST)
        self.held: set[int] = set()

    @rule(n=st.integers(0, LAST + 2))
    def allocate(self, n: int) -> None:
        if n > self.LAST - len(self.held):
            with pytest.raises(OutOfPages):
                self.slots.allocate(n)
            return
        pages = self.slots.allocate(n).tolist()
        assert len(set(pages)) == n
        assert self.held.isdisjoint(pages)
        self.held.update(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_held(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
        self.slots.free(pages)
        self.held.difference_update(pages)

    @rule(pages=st.lists(st.integers(-1, LAST + 1), max_size=6))
    def free_anything(self, pages: list[int]) -> None:
        legal = len(set(pages)) == len(pages) and self.held.issuperset(pages)
        if legal:
            self.slots.free(pages)
            self.held.difference_update(pages)
        else:
            with pytest.raises((DoubleFree, ForeignPage)):
                self.slots.free(pages)

    @invariant()
    def free_and_held_partition_all_pages(self) -> None:
        everyone = set(range(1, self.LAST + 1))
        assert self.slots.free_ids().tolist() == sorted(everyone - self.held)
        assert self.slots.free_pages == self.LAST - len(self.held)
        flags = self.slots.is_free(sorted(everyone))
        assert [page for page, free in zip(sorted(everyone), flags, strict=True) if not free] == sorted(self.held)


TestAllocatorMachine = AllocatorMachine.TestCase
TestAllocatorMachine.settings = settings(max_examples=60, stateful_step_count=30)
