"""Moves and page copies: a token's bytes arrive whole in every component, layer, region and device; others stay."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import copy_pages, move_tokens
from radixd.gpu_pool.pairs import MoveError
from radixd.gpu_pool.presets import load_geometry
from tests.unit.gpu_pool.pools import KINDS as DEVICES
from tests.unit.gpu_pool.pools import MakePool
from tests.unit.gpu_pool.raw_reader import RawReader, reader_for

KINDS: tuple[LayoutKind, ...] = ("page_first", "layer_first")


def _moved(raw: bytes, reader: RawReader, pairs: list[tuple[int, int]]) -> bytes:
    """What the pool must hold after the moves: token by token on plain bytes, all read before any is written."""
    after = bytearray(raw)
    for src, dst in pairs:
        sources, targets = reader.token(*divmod(src, 64)), reader.token(*divmod(dst, 64))
        for key, (start, end) in targets.items():
            after[start:end] = raw[sources[key][0] : sources[key][1]]
    return bytes(after)


def _raw(buffer: torch.Tensor) -> bytes:
    return buffer.numpy().tobytes()


def _slot(page: int, offset: int) -> int:
    return page * 64 + offset


SCATTERED = [(_slot(1 + i % 5, (7 * i) % 64), _slot(9, 2 * i)) for i in range(32)]
SWAP = [(_slot(3, 5), _slot(9, 60)), (_slot(9, 60), _slot(3, 5))]
SHIFT = [(_slot(2, i), _slot(2, i + 1)) for i in range(63)]
FAN_OUT = [(_slot(4, 4), _slot(5, i)) for i in range(10)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tiny", "glm-5.3"])
@pytest.mark.parametrize(
    "pairs",
    [[(_slot(3, 5), _slot(9, 60))], SCATTERED, SWAP, SHIFT, SHIFT[::-1], FAN_OUT, []],
    ids=["one", "scattered into one page", "swap", "shift up", "shift up, backwards", "fan out", "none"],
)
def test_keys_scales_and_latents_follow_the_token_and_neighbours_stay(
    make_pool: MakePool, name: str, kind: LayoutKind, pairs: list[tuple[int, int]], device: str
) -> None:
    memory = make_pool(name, kind, pages=9, device=device)
    before = _raw(memory.views[0].buffer)
    move_tokens(memory, [src for src, _ in pairs], [dst for _, dst in pairs]).result()
    assert _raw(memory.views[0].buffer) == _moved(before, reader_for(name, kind, 10), pairs)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_legal_move_equals_the_byte_by_byte_one(make_pool: MakePool, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    slots = st.integers(64, 64 * 4 - 1)
    targets = data.draw(st.lists(slots, unique=True, max_size=80))
    sources = data.draw(st.lists(slots, min_size=len(targets), max_size=len(targets)))
    memory = make_pool("tiny", kind, pages=3)
    before = _raw(memory.views[0].buffer)
    move_tokens(memory, np.array(sources, np.int32), np.array(targets, np.int32)).result()
    pairs = list(zip(sources, targets, strict=True))
    assert _raw(memory.views[0].buffer) == _moved(before, reader_for("tiny", kind, 4), pairs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("src", "dst", "names"),
    [
        ([64, 65], [70, 64 * 13], "target slots 832 are outside"),
        ([64, 65], [70, 63], "target slots 63 are outside"),
        ([64, -1], [70, 71], "source slots -1 are outside"),
        ([64, 64 + 2**32], [70, 71], "outside"),
        ([64, 65, 66], [70, 71, 70], "target slots 70 are named more than once"),
        ([64], [70, 71], "must pair up"),
        ([64.0], [70], "flat list of integers"),
    ],
)
def test_a_half_valid_list_moves_nothing(
    make_pool: MakePool, kind: LayoutKind, src: list[int], dst: list[int], names: str
) -> None:
    memory = make_pool("tiny", kind, pages=12)
    before = _raw(memory.views[0].buffer)
    with pytest.raises(MoveError, match=names):
        move_tokens(memory, src, dst)
    assert _raw(memory.views[0].buffer) == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_devices_move_in_lockstep_each_with_its_own_bytes(
    make_pool: MakePool, kind: LayoutKind, device: str
) -> None:
    memory = make_pool("tiny", kind, device=device, count=3)
    before = [_raw(views.buffer) for views in memory.views]
    assert len(set(before)) == 3
    move_tokens(memory, [_slot(1, 1), _slot(2, 2)], [_slot(2, 2), _slot(1, 1)]).result()
    reader = reader_for("tiny", kind, 13)
    pairs = [(_slot(1, 1), _slot(2, 2)), (_slot(2, 2), _slot(1, 1))]
    assert [_raw(views.buffer) for views in memory.views] == [_moved(raw, reader, pairs) for raw in before]


@pytest.mark.parametrize("device", DEVICES)
def test_a_late_move_uses_its_own_list(make_pool: MakePool, device: str) -> None:
    memory = make_pool("tiny", device=device)
    before = _raw(memory.views[0].buffer)
    src, dst = np.array([64, 65], np.int64), np.array([128, 129], np.int64)
    first = move_tokens(memory, src, dst)
    src[:], dst[:] = [66, 67], [130, 131]
    second = move_tokens(memory, src, dst)
    src[:], dst[:] = 0, 0
    first.result()
    second.result()
    expected = _moved(before, reader_for("tiny", "page_first", 13), [(64, 128), (65, 129), (66, 130), (67, 131)])
    assert _raw(memory.views[0].buffer) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_late_page_copy_uses_its_own_list(make_pool: MakePool, device: str) -> None:
    memory = make_pool("tiny", device=device)
    before = memory.views[0].page_rows[0].clone()
    src, dst = np.array([1], np.int64), np.array([2], np.int64)
    copy = copy_pages(memory, src, dst)
    src[:], dst[:] = 3, 4
    copy.result()
    after = memory.views[0].page_rows[0]
    assert torch.equal(after[2], before[1])
    assert torch.equal(after[4], before[4])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "multiple"), [("page_first", 1), ("page_first", 656), ("layer_first", 1)])
def test_copied_pages_carry_every_token_and_no_other_page_changes(
    make_pool: MakePool, kind: LayoutKind, multiple: int, device: str
) -> None:
    memory = make_pool("tiny", kind, count=2, stride_multiple=multiple, device=device)
    before = [_raw(views.buffer) for views in memory.views]
    copy_pages(memory, [1, 2, 1], [12, 3, 5]).result()
    reader = reader_for("tiny", kind, 13, memory.layout.page_stride)
    for views, raw in zip(memory.views, before, strict=True):
        after = _raw(views.buffer)
        source_of = {12: 1, 3: 2, 5: 1}
        for page in range(13):
            for t in range(64):
                sources = reader.token(source_of.get(page, page), t)
                for key, (start, end) in reader.token(page, t).items():
                    assert after[start:end] == raw[sources[key][0] : sources[key][1]], (page, t, key)


def test_page_copies_that_could_read_a_changed_page_are_refused(make_pool: MakePool) -> None:
    memory = make_pool("tiny")
    before = _raw(memory.views[0].buffer)
    for src, dst, names in [
        ([1, 2], [2, 3], "pages 2 are both source and target"),
        ([1, 2], [3, 3], "target pages 3"),
        ([1], [0], "target pages 0"),
        ([13], [1], "source pages 13"),
    ]:
        with pytest.raises(MoveError, match=names):
            copy_pages(memory, src, dst)
    assert _raw(memory.views[0].buffer) == before


def test_a_pool_without_memory_accepts_the_same_moves_and_refuses_the_same_lists() -> None:
    with PoolMemory.allocate(Layout(load_geometry("glm-5.3"), "page_first", 16_384), "meta") as memory:
        move_tokens(memory, [64], [64 * 16_384]).result()
        copy_pages(memory, [1], [16_384]).result()
        with pytest.raises(MoveError, match="outside"):
            move_tokens(memory, [64], [64 * 16_385])
