"""Copies between tiers: each token's latent, key and scale go together, from and to whichever pages, on all devices."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.device import page_runs
from radixd.gpu_pool.geometry import Component, Geometry, Region
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import move_tokens
from radixd.gpu_pool.pairs import MoveError
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.tier_copy import load_pages, save_pages
from tests.unit.gpu_pool.pools import KINDS as DEVICES
from tests.unit.gpu_pool.pools import MakePool
from tests.unit.gpu_pool.raw_reader import reader_for

KINDS: tuple[LayoutKind, ...] = ("page_first", "layer_first")
LAYOUTS: list[tuple[str, LayoutKind, int]] = [
    ("tiny", "page_first", 1),
    ("tiny", "page_first", 656),
    ("tiny", "layer_first", 1),
    ("glm-5.3", "page_first", 656),
    ("glm-5.3", "layer_first", 1),
]
PAGES = 9

MakeHost = Callable[..., HostPool]
Token = dict[tuple[str, int, str], bytes]


@pytest.fixture
def make_host() -> Iterator[MakeHost]:
    """Makes host tiers of PAGES pages and closes them after the test."""
    made: list[HostPool] = []

    def make(geometry: Geometry | None = None, pages: int = PAGES) -> HostPool:
        made.append(HostPool.anonymous(geometry or load_geometry("tiny"), pages))
        return made[-1]

    yield make
    for host in made:
        host.close()


def _tokens(memory: PoolMemory, rank: int, name: str, page: int) -> list[Token]:
    """Each region of each layer of each of the page's tokens, read by the byte map alone."""
    layout = memory.layout
    reader = reader_for(name, layout.kind, layout.physical_pages, layout.page_stride)
    raw = memory.views[rank].buffer.numpy()
    return [
        {key: raw[start:end].tobytes() for key, (start, end) in reader.token(page, t).items()}
        for t in range(layout.geometry.page_size)
    ]


def _raw(memory: PoolMemory) -> list[bytes]:
    return [views.buffer.numpy().tobytes() for views in memory.views]


def _random(memory: PoolMemory) -> None:
    for views in memory.views:
        views.buffer.random_()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "kind", "multiple"), LAYOUTS)
def test_pages_restored_elsewhere_hold_every_byte_of_every_token(
    make_pool: MakePool, make_host: MakeHost, name: str, kind: LayoutKind, multiple: int, device: str
) -> None:
    memory = make_pool(name, kind, PAGES, device, stride_multiple=multiple)  # type: ignore[arg-type]
    host = make_host(load_geometry(name))
    memory.pin(host)
    saved = {page: _tokens(memory, 0, name, page) for page in (7, 2, 3, 9)}
    save_pages(memory, host, list(saved), [1, 5, 6, 8]).result()
    _random(memory)
    load_pages(memory, host, [8, 1, 5, 6], [2, 4, 5, 7]).result()
    for was, now in {9: 2, 7: 4, 2: 5, 3: 7}.items():
        assert _tokens(memory, 0, name, now) == saved[was], (was, now)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_changes_no_other_page_of_either_tier(
    make_pool: MakePool, make_host: MakeHost, kind: LayoutKind, device: str
) -> None:
    memory, host = make_pool("tiny", kind, device=device), make_host()
    memory.pin(host)
    before, host_before = _raw(memory), host.pages.copy()
    save_pages(memory, host, [3, 4, 12], [2, 3, 9]).result()
    assert _raw(memory) == before
    others = [page for page in range(PAGES + 1) if page not in (2, 3, 9)]
    assert (host.pages[others] == host_before[others]).all()
    assert host.pages[[2, 3, 9]].any(axis=1).all()
    untouched = {page: _tokens(memory, 0, "tiny", page) for page in range(13) if page not in (1, 6)}
    host_before = host.pages.copy()
    load_pages(memory, host, [9, 2], [1, 6]).result()
    assert (host.pages == host_before).all()
    assert {page: _tokens(memory, 0, "tiny", page) for page in untouched} == untouched


@pytest.mark.parametrize("name", ["tiny", "glm-5.3"])
@pytest.mark.parametrize("pair", [KINDS, KINDS[::-1]], ids=lambda pair: f"{pair[0]} to {pair[1]}")
def test_what_one_layout_saved_another_loads(
    make_pool: MakePool, make_host: MakeHost, name: str, pair: tuple[LayoutKind, LayoutKind]
) -> None:
    source, target = (make_pool(name, kind, 4) for kind in pair)
    host = make_host(load_geometry(name))
    _random(target)
    save_pages(source, host, [1, 2, 4], [3, 4, 9]).result()
    load_pages(target, host, [9, 3, 4], [1, 2, 3]).result()
    assert [_tokens(target, 0, name, page) for page in (1, 2, 3)] == [
        _tokens(source, 0, name, page) for page in (4, 1, 2)
    ]


@pytest.mark.parametrize("name", ["tiny", "glm-5.3"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_page_is_a_page_first_page(
    make_pool: MakePool, make_host: MakeHost, name: str, kind: LayoutKind
) -> None:
    memory, host = make_pool(name, kind, 2), make_host(load_geometry(name))
    save_pages(memory, host, [2], [4]).result()
    reader = reader_for(name, "page_first", PAGES + 1)
    page = host.pages[4].tobytes()
    start = 4 * len(page)
    for t, token in enumerate(_tokens(memory, 0, name, 2)):
        for key, (first, end) in reader.token(4, t).items():
            assert page[first - start : end - start] == token[key], (t, key)


@pytest.mark.parametrize("kind", KINDS)
def test_two_kv_heads_of_equal_shape_are_not_mistaken_for_each_other(
    make_pool: MakePool, make_host: MakeHost, kind: LayoutKind
) -> None:
    regions = (Region("k", "bf16", 2 * 8), Region("v", "bf16", 2 * 8))
    planes, rows = (
        Geometry("two heads", 2, 2, (Component("kv", (0, 1), regions, arrangement),))
        for arrangement in ("planes", "rows")
    )
    with PoolMemory.allocate(Layout(planes, kind, 3), "cpu") as memory:
        host = make_host(planes)
        memory.views[0].buffer.random_()
        saved = {
            (layer, region): memory.views[0].region("kv", layer, region)[1].view(torch.int16).clone()
            for layer in (0, 1)
            for region in ("k", "v")
        }
        save_pages(memory, host, [1], [2]).result()
        memory.views[0].buffer.zero_()
        load_pages(memory, host, [2], [3]).result()
        for (layer, region), expected in saved.items():
            assert torch.equal(memory.views[0].region("kv", layer, region)[3].view(torch.int16), expected)
        other = make_host(rows)
        with pytest.raises(MoveError, match="geometry"):
            save_pages(memory, other, [1], [1])
        with pytest.raises(MoveError, match="geometry"):
            load_pages(memory, other, [1], [1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_device_is_saved_and_all_are_loaded(
    make_pool: MakePool, make_host: MakeHost, kind: LayoutKind, device: str
) -> None:
    memory, host = make_pool("tiny", kind, device=device, count=3), make_host()
    memory.pin(host)
    first = _tokens(memory, 0, "tiny", 5)
    assert _tokens(memory, 1, "tiny", 5) != first
    save_pages(memory, host, [5], [1]).result()
    load_pages(memory, host, [1], [8]).result()
    assert [_tokens(memory, rank, "tiny", 8) for rank in range(3)] == [first] * 3


def test_a_load_ends_with_its_last_device_and_a_save_with_the_first(make_pool: MakePool, make_host: MakeHost) -> None:
    memory, host = make_pool("tiny", device="cpu_async", count=2), make_host()
    last = memory.devices[-1]
    assert isinstance(last, CpuAsyncDevice)
    last.pause()
    save_pages(memory, host, [1], [1]).result()
    load = load_pages(memory, host, [1], [2])
    memory.devices[0].probe().result()
    assert not load.done()
    last.resume()
    load.result()


@pytest.mark.parametrize("kind", KINDS)
def test_late_copies_back_to_back_use_each_its_own_list(
    make_pool: MakePool, make_host: MakeHost, kind: LayoutKind
) -> None:
    memory, host = make_pool("tiny", kind, device="cpu_async"), make_host()
    saved = {page: _tokens(memory, 0, "tiny", page) for page in (1, 2, 3, 4)}
    (device,) = memory.devices
    assert isinstance(device, CpuAsyncDevice)
    device_pages, host_pages = np.zeros(2, np.int32), np.zeros(2, np.int32)
    device.pause()
    late = []
    for here, there in [([1, 2], [5, 6]), ([3, 4], [7, 8])]:
        device_pages[:], host_pages[:] = here, there
        late.append(save_pages(memory, host, device_pages, host_pages))
    for there, here in [([8, 5], [9, 10]), ([6, 7], [11, 12])]:
        device_pages[:], host_pages[:] = here, there
        late.append(load_pages(memory, host, host_pages, device_pages))
    device_pages[:], host_pages[:] = 0, 0
    assert not any(copy.done() for copy in late)
    device.resume()
    for copy in late:
        copy.result()
    assert {page: _tokens(memory, 0, "tiny", page) for page in (9, 10, 11, 12)} == {
        9: saved[4],
        10: saved[1],
        11: saved[2],
        12: saved[3],
    }


def test_a_late_save_reads_its_source_when_it_runs(make_pool: MakePool, make_host: MakeHost) -> None:
    """What catches a page that was given away before its copy had ended."""
    memory, host = make_pool("tiny", device="cpu_async"), make_host()
    (device,) = memory.devices
    assert isinstance(device, CpuAsyncDevice)
    device.pause()
    late = save_pages(memory, host, [1], [1])
    memory.views[0].page_rows[0][1] = 77
    device.resume()
    late.result()
    assert (host.pages[1] == 77).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_part_of_what_was_saved_together_comes_back_alone(
    make_pool: MakePool, make_host: MakeHost, kind: LayoutKind, device: str
) -> None:
    memory, host = make_pool("tiny", kind, device=device), make_host()
    memory.pin(host)
    saved = [_tokens(memory, 0, "tiny", page) for page in range(1, 9)]
    save_pages(memory, host, range(1, 9), range(2, 10)).result()
    _random(memory)
    load_pages(memory, host, [3, 4, 5], [10, 11, 12]).result()
    load_pages(memory, host, [4, 5, 6, 7, 8], [1, 2, 3, 4, 5]).result()
    assert [_tokens(memory, 0, "tiny", page) for page in (10, 11, 12)] == saved[1:4]
    assert [_tokens(memory, 0, "tiny", page) for page in range(1, 6)] == saved[2:7]


@pytest.mark.parametrize("device", ["cpu", "cpu_async", "meta"])
@pytest.mark.parametrize(
    ("device_pages", "host_pages", "names"),
    [
        ([1, 13], [1, 2], "device pages 13 are outside \\[1, 12\\]"),
        ([1, 0], [1, 2], "device pages 0 are outside"),
        ([1, 2], [1, 10], "host pages 10 are outside \\[1, 9\\]"),
        ([1, 2], [0, 1], "host pages 0 are outside"),
        ([1, 2**32 + 1], [1, 2], "outside"),
        ([1, 2], [1], "2 device pages for 1 host pages|1 host pages for 2 device pages"),
        ([1.5], [1], "flat list of integers"),
    ],
)
def test_a_half_valid_list_copies_nothing(
    make_host: MakeHost, device: str, device_pages: list[int], host_pages: list[int], names: str
) -> None:
    layout = Layout(load_geometry("tiny"), "page_first", 12)
    host = make_host()
    with PoolMemory.allocate(layout, device) as memory:  # type: ignore[arg-type]
        host.pages[:] = 3
        with pytest.raises(MoveError, match=names):
            save_pages(memory, host, device_pages, host_pages)
        with pytest.raises(MoveError, match=names):
            load_pages(memory, host, host_pages, device_pages)
        memory.probe().result()
        assert (host.pages == 3).all()
        if device != "meta":
            assert not memory.views[0].buffer.any()


def test_a_page_is_no_target_twice_but_may_be_a_source_twice(make_pool: MakePool, make_host: MakeHost) -> None:
    memory, host = make_pool("tiny"), make_host()
    with pytest.raises(MoveError, match="host pages 4 are named more than once"):
        save_pages(memory, host, [1, 2], [4, 4])
    with pytest.raises(MoveError, match="device pages 4 are named more than once"):
        load_pages(memory, host, [1, 2], [4, 4])
    save_pages(memory, host, [1, 1], [4, 5]).result()
    assert (host.pages[4] == host.pages[5]).all()
    assert host.pages[4].any()


def test_a_pool_without_memory_copies_nothing_at_once(make_host: MakeHost) -> None:
    host = make_host(pages=9)
    with PoolMemory.allocate(Layout(load_geometry("tiny"), "layer_first", 16_384), "meta") as memory:
        assert save_pages(memory, host, [16_384], [9]).done()
        assert load_pages(memory, host, [9], [16_384]).done()
    assert not host.pages.any()


@pytest.mark.parametrize("device", DEVICES)
def test_no_pages_are_no_work(make_pool: MakePool, make_host: MakeHost, device: str) -> None:
    memory, host = make_pool("tiny", device=device), make_host()
    memory.pin(host)
    before = _raw(memory)
    save_pages(memory, host, [], []).result()
    load_pages(memory, host, [], []).result()
    assert _raw(memory) == before


@pytest.mark.parametrize("device", DEVICES)
def test_a_token_that_moved_is_saved_where_it_went(make_pool: MakePool, make_host: MakeHost, device: str) -> None:
    memory, host = make_pool("glm-5.3", "layer_first", 3, device), make_host(load_geometry("glm-5.3"))
    memory.pin(host)
    token = _tokens(memory, 0, "glm-5.3", 3)[5]
    move_tokens(memory, [3 * 64 + 5], [1 * 64 + 60]).result()  # copies that go another way keep no order with it
    save_pages(memory, host, [1], [1]).result()
    load_pages(memory, host, [1], [2]).result()
    assert _tokens(memory, 0, "glm-5.3", 2)[60] == token


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=30))
def test_runs_name_the_same_pairs_in_the_same_order(pairs: list[tuple[int, int]]) -> None:
    sources = np.array([src for src, _ in pairs], np.int64)
    targets = np.array([dst for _, dst in pairs], np.int64)
    runs = page_runs(sources, targets)
    assert [(src + i, dst + i) for src, dst, count in runs for i in range(count)] == pairs
    assert all(a[0] + a[2] != b[0] or a[1] + a[2] != b[1] for a, b in pairwise(runs))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_legal_round_trip_restores_every_page(
    make_pool: MakePool, make_host: MakeHost, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    memory, host = make_pool("tiny", kind, 8), make_host(pages=8)
    pages = st.lists(st.integers(1, 8), unique=True, min_size=1, max_size=8)
    device_pages = data.draw(pages)
    host_pages = data.draw(st.permutations(range(1, 9)))[: len(device_pages)]
    back = data.draw(st.permutations(range(1, 9)))[: len(device_pages)]
    saved = [_tokens(memory, 0, "tiny", page) for page in device_pages]
    save_pages(memory, host, device_pages, host_pages).result()
    _random(memory)
    load_pages(memory, host, host_pages, back).result()
    assert [_tokens(memory, 0, "tiny", page) for page in back] == saved


def test_closing_the_host_tier_under_a_late_copy_harms_nobody(make_pool: MakePool) -> None:
    memory = make_pool("tiny", device="cpu_async")
    (device,) = memory.devices
    assert isinstance(device, CpuAsyncDevice)
    host = HostPool.anonymous(load_geometry("tiny"), 2)
    device.pause()
    late = load_pages(memory, host, [1], [4])
    host.close()
    device.resume()
    late.result()
    assert not memory.views[0].page_rows[0][4].any()
