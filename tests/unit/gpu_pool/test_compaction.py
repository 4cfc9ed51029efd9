"""Compaction: the pages that may move end up on the lowest ids that they can have, with as few copies as that takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixd.gpu_pool.compaction import compaction_plan
from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.move import copy_pages
from radixd.gpu_pool.slots import Pages
from tests.unit.gpu_pool.pools import MakePool


def _ids(*ids: int) -> Pages:
    return np.array(ids, np.int32)


@pytest.mark.parametrize("kind", ["page_first", "layer_first"])
def test_pages_are_packed_to_the_front_with_their_bytes(make_pool: MakePool, kind: LayoutKind) -> None:
    memory = make_pool("tiny", kind, 12)
    before = [rows.clone() for rows in memory.views[0].page_rows]
    plan = compaction_plan(movable=_ids(4, 12, 1, 9), free=_ids(10, 2, 3, 11, 6))
    assert [ids.tolist() for ids in plan] == [[12, 9], [2, 3]]
    copy_pages(memory, *plan).result()
    for rows, was in zip(memory.views[0].page_rows, before, strict=True):
        assert (rows[[1, 4, 2, 3]] == was[[1, 4, 12, 9]]).all()
        assert (rows[[5, 7, 8]] == was[[5, 7, 8]]).all(), "neither free nor movable"


def test_packed_full_and_empty_pools_need_no_copies() -> None:
    for movable, free in [(_ids(1, 2), _ids(3, 4)), (_ids(1, 2, 3), _ids()), (_ids(), _ids(1, 2)), (_ids(), _ids())]:
        sources, targets = compaction_plan(movable, free)
        assert sources.size == targets.size == 0
        assert sources.dtype == targets.dtype == np.int32


@given(st.lists(st.sampled_from(["movable", "free", "held"]), max_size=60))
def test_nothing_lower_stays_free_and_nothing_moves_for_nothing(pages: list[str]) -> None:
    where = {state: {i for i, of in enumerate(pages, 1) if of == state} for state in ("movable", "free")}
    sources, targets = compaction_plan(_ids(*where["movable"]), _ids(*where["free"]))
    moved = dict(zip(sources.tolist(), targets.tolist(), strict=True))
    assert len(set(moved.values())) == len(moved) == sources.size
    assert set(moved) <= where["movable"]
    assert set(moved.values()) <= where["free"]
    packed = {moved.get(page, page) for page in where["movable"]}
    assert packed == set(sorted(where["movable"] | where["free"])[: len(packed)])
    assert len(moved) == len(packed - where["movable"])
