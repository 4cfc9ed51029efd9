"""Copies between pools: every token's bytes arrive on every device, whatever the two layouts; others stay."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product

import pytest

from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.geometry import Component, Geometry, Region
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.pairs import MoveError
from radixd.gpu_pool.peer_copy import import_pages
from tests.unit.gpu_pool.pools import KINDS, MakePool
from tests.unit.gpu_pool.raw_reader import reader_for

LAYOUTS: list[tuple[LayoutKind, int]] = [("page_first", 1), ("page_first", 656), ("layer_first", 1)]


def _page(memory: PoolMemory, rank: int, page: int) -> list[bytes]:
    """The page's tokens, region by region, read by the byte map alone."""
    layout = memory.layout
    reader = reader_for("tiny", layout.kind, layout.physical_pages, layout.page_stride)
    raw = memory.views[rank].buffer.numpy()
    return [
        raw[start:end].tobytes()
        for t in range(layout.geometry.page_size)
        for _, (start, end) in sorted(reader.token(page, t).items())
    ]


@pytest.mark.parametrize("device", KINDS)
@pytest.mark.parametrize(("ours", "theirs"), list(product(LAYOUTS, LAYOUTS)))
def test_imported_pages_hold_every_byte_and_no_other_page_changes(
    make_pool: MakePool, device: str, ours: tuple[LayoutKind, int], theirs: tuple[LayoutKind, int]
) -> None:
    source = make_pool(kind=theirs[0], stride_multiple=theirs[1], device=device, pages=6)
    target = make_pool(kind=ours[0], stride_multiple=ours[1], device=device, pages=9)
    pairs = {2: 7, 3: 8, 6: 1, 5: 4}
    wanted = {there: _page(source, 0, here) for here, there in pairs.items()}
    others = {page: _page(target, 0, page) for page in range(10) if page not in wanted}
    import_pages(source, list(pairs), target, list(pairs.values())).result()
    assert {page: _page(target, 0, page) for page in range(10)} == wanted | others


@pytest.mark.parametrize("device", KINDS)
def test_each_target_reads_one_source_and_all_are_written(make_pool: MakePool, device: str) -> None:
    source = make_pool(device=device, count=2, kind="layer_first")
    target = make_pool(device=device, count=3)
    assert _page(source, 0, 4) != _page(source, 1, 4)
    import_pages(source, [4], target, [5]).result()
    assert [_page(target, rank, 5) for rank in range(3)] == [_page(source, rank % 2, 4) for rank in range(3)]


def test_a_late_import_reads_its_source_when_it_runs_and_uses_its_own_lists(make_pool: MakePool) -> None:
    source, target = make_pool(device="cpu"), make_pool(device="cpu_async")
    (device,) = target.devices
    assert isinstance(device, CpuAsyncDevice)
    device.pause()
    pages = [1]
    late = import_pages(source, pages, target, [2])
    pages[0] = 3
    source.views[0].page_rows[0][1] = 77
    assert not late.done()
    device.resume()
    late.result()
    assert (target.views[0].page_rows[0][2] == 77).all()


@pytest.fixture
def other_geometry() -> Iterator[PoolMemory]:
    regions = (Region("k", "bf16", 16), Region("v", "bf16", 16))
    layout = Layout(Geometry("other", 64, 2, (Component("kv", (0, 1), regions, "rows"),)), "page_first", 5)
    with ExitStack() as open_until_the_end:
        yield open_until_the_end.enter_context(PoolMemory.allocate(layout, "cpu"))


def test_a_list_that_cannot_be_imports_nothing(make_pool: MakePool, other_geometry: PoolMemory) -> None:
    source, target = make_pool(pages=6), make_pool(pages=9)
    before = target.views[0].buffer.clone()
    for pages, targets, names in [
        ([7], [1], "source pages 7 are outside"),
        ([1], [10], "target pages 10 are outside"),
        ([0], [1], "source pages 0 are outside"),
        ([1, 2], [3, 3], "target pages 3 are named more than once"),
        ([1, 2], [3], "must pair up"),
    ]:
        with pytest.raises(MoveError, match=names):
            import_pages(source, pages, target, targets)
    with pytest.raises(MoveError, match="geometry other, the target of tiny"):
        import_pages(other_geometry, [1], target, [1])
    with pytest.raises(MoveError, match="pools in cuda and host memory share no pages"):
        import_pages(make_pool(device="cuda"), [1], target, [1])
    with pytest.raises(MoveError, match="imports nothing from itself"):
        import_pages(target, [1], target, [2])
    assert (target.views[0].buffer == before).all()


def test_pools_without_memory_import_at_once(make_pool: MakePool) -> None:
    layout = Layout(make_pool(pages=1).layout.geometry, "page_first", 16_384)
    with PoolMemory.allocate(layout, "meta") as source, PoolMemory.allocate(layout, "meta", 2) as target:
        assert import_pages(source, [16_384], target, [1]).done()
