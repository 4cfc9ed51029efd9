"""Layout: where GLM53.md says that each byte lies, and budgets that pay for page 0."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixd.gpu_pool.geometry import GeometryError
from radixd.gpu_pool.layout import Layout, LayoutError, LayoutKind, View, page_stride, pages_for_bytes
from radixd.gpu_pool.presets import load_geometry

GLM = load_geometry("glm-5.3")
TINY = load_geometry("tiny")
KINDS: tuple[LayoutKind, ...] = ("page_first", "layer_first")


def test_page_strides_of_glm53() -> None:
    assert page_stride(GLM) == 3_452_160
    assert page_stride(GLM) % 256 == 0
    assert page_stride(GLM, 656) == 3_452_528
    assert page_stride(GLM, 656) % 656 == 0
    assert page_stride(load_geometry("glm-5.3-mtp")) == 3_502_592
    assert page_stride(TINY) == 5_376


def test_page_first_latent_row_t_lies_at_656_t_scales_512_on_and_rope_528_on() -> None:
    layout = Layout(GLM, "page_first", num_pages=3)
    for layer in (0, 1, 77):
        nope, scale, rope = (layout.view("latent", layer, name) for name in ("nope", "scale", "rope"))
        assert nope.offset == 41_984 * layer
        assert scale.offset == nope.offset + 512
        assert rope.offset == nope.offset + 528
        assert {view.strides[:2] for view in (nope, scale, rope)} == {(3_452_160, 656)}
    assert (rope.shape, rope.dtype, rope.strides[2]) == ((4, 64, 64), "bf16", 2)


def test_page_first_index_key_o_lies_at_128_o_and_its_scale_at_8192_plus_4_o() -> None:
    layout = Layout(GLM, "page_first", num_pages=3)
    for nth, layer in enumerate((0, 1, 2, 6, 10)):
        key, scale = layout.view("index", layer, "key"), layout.view("index", layer, "scale")
        assert key.offset == 78 * 41_984 + 8_448 * nth
        assert scale.offset == key.offset + 8_192
        assert (key.strides, scale.strides) == ((3_452_160, 128, 1), (3_452_160, 4, 4))


def test_layer_first_is_one_contiguous_buffer_a_layer() -> None:
    layout = Layout(GLM, "layer_first", num_pages=9)
    latent, index = layout.page_view("latent", 5), layout.page_view("index", 6)
    assert latent == View(5 * 10 * 41_984, (10, 64, 656), (41_984, 656, 1), "uint8", 1)
    assert index == View(78 * 10 * 41_984 + 3 * 10 * 8_448, (10, 8_448), (8_448, 1), "uint8", 1)
    assert layout.view("index", 6, "scale").offset == index.offset + 8_192
    assert layout.nbytes == 10 * 3_452_160


@pytest.mark.parametrize("kind", KINDS)
def test_layers_without_the_component_are_placeholders_of_no_rows(kind: LayoutKind) -> None:
    layout = Layout(GLM, kind, num_pages=2)
    full = GLM.component("index").layers
    for layer in range(78):
        pages = 3 if layer in full else 0
        assert layout.page_view("index", layer).shape == (pages, 8_448)
        assert layout.view("index", layer, "key").shape == (pages, 64, 128)


def test_padding_widens_the_page_and_nothing_else() -> None:
    plain, padded = Layout(GLM, "page_first", 2), Layout(GLM, "page_first", 2, stride_multiple=656)
    assert padded.nbytes == 3 * 3_452_528
    ours, theirs = plain.view("index", 74, "scale"), padded.view("index", 74, "scale")
    assert ours.offset == theirs.offset
    assert theirs.strides == (3_452_528, *ours.strides[1:])


@pytest.mark.parametrize("name", ["glm-5.3", "deepseek-v3.2", "llama-8b", "tiny"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_covers_every_byte_of_the_pool_once(name: str, kind: LayoutKind) -> None:
    geometry = load_geometry(name)
    layout = Layout(geometry, kind, num_pages=1)
    runs: list[tuple[int, int]] = []
    for component in geometry.components:
        for layer, region in itertools.product(component.layers, component.regions):
            view = layout.view(component.name, layer, region.name)
            for page, token in itertools.product(range(2), range(geometry.page_size)):
                start = view.offset + page * view.strides[0] + token * view.strides[1]
                runs.append((start, start + region.bytes_per_token))
    runs.sort()
    assert runs[0][0] == 0
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(runs))
    assert runs[-1][1] == layout.nbytes


@given(st.integers(1, 3_000_000), st.sampled_from([1, 656, 4096]))
def test_a_pool_of_so_many_bytes_fits_them_and_one_page_more_would_not(pages: int, multiple: int) -> None:
    nbytes = (pages + 1) * page_stride(GLM, multiple)
    for spare in (0, page_stride(GLM, multiple) - 1):
        assert pages_for_bytes(GLM, nbytes + spare, multiple) == pages
    assert Layout(GLM, "page_first", pages, multiple).nbytes == nbytes


def test_a_budget_without_room_for_page_0_and_one_more_is_refused() -> None:
    assert pages_for_bytes(GLM, 2 * 3_452_160) == 1
    with pytest.raises(LayoutError, match="6904320 are needed"):
        pages_for_bytes(GLM, 2 * 3_452_160 - 1)


@settings(max_examples=30)
@given(
    name=st.sampled_from(["glm-5.3", "llama-8b", "tiny"]),
    kind=st.sampled_from(KINDS),
    pages=st.integers(0, 10**6),
)
def test_plain_data_round_trips_through_json(name: str, kind: LayoutKind, pages: int) -> None:
    layout = Layout(load_geometry(name), kind, pages)
    assert Layout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout


def test_a_sender_that_places_one_byte_elsewhere_is_refused() -> None:
    data = json.loads(json.dumps(Layout(TINY, "page_first", 3).to_dict()))
    data["views"][2][3] += 4
    with pytest.raises(LayoutError, match="same radixd version"):
        Layout.from_dict(data)


def test_impossible_layouts_are_refused_by_field_and_limit() -> None:
    with pytest.raises(LayoutError, match="num_pages -1"):
        Layout(GLM, "page_first", -1)
    with pytest.raises(LayoutError, match="33554431"):
        Layout(GLM, "page_first", 2**31 // 64)
    assert Layout(GLM, "page_first", 2**31 // 64 - 1).num_slots == 2**31
    with pytest.raises(LayoutError, match="stride_multiple"):
        Layout(GLM, "layer_first", 1, stride_multiple=656)
    with pytest.raises(LayoutError, match="stride_multiple 7"):
        Layout(GLM, "page_first", 1, stride_multiple=7)
    with pytest.raises(LayoutError, match="page_last"):
        Layout(GLM, "page_last", 1)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="layer 78"):
        Layout(GLM, "page_first", 1).page_view("latent", 78)
    with pytest.raises(GeometryError, match="no region"):
        Layout(GLM, "page_first", 1).view("latent", 0, "key")
