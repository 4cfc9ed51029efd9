"""Views against an independent reader of the raw bytes, for both layouts, padding included."""

import pytest
import torch

from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.views import torch_views
from tests.unit.gpu_pool.raw_reader import reader_for

POOLS: list[tuple[str, LayoutKind, int]] = [
    ("tiny", "page_first", 1),
    ("tiny", "layer_first", 1),
    ("glm-5.3", "page_first", 1),
    ("glm-5.3", "page_first", 656),
    ("glm-5.3", "layer_first", 1),
]


@pytest.mark.parametrize(("name", "kind", "multiple"), POOLS)
def test_each_region_of_a_token_is_where_the_byte_map_says(name: str, kind: LayoutKind, multiple: int) -> None:
    layout = Layout(load_geometry(name), kind, num_pages=2, stride_multiple=multiple)
    buffer = torch.randint(0, 256, (layout.nbytes,), dtype=torch.uint8)
    views = torch_views(buffer, layout)
    raw = buffer.numpy().tobytes()
    reader = reader_for(name, kind, 3, 3_452_528 if multiple == 656 else None)
    for page, token in [(0, 0), (1, 0), (1, 63), (2, 17)]:
        for key, (start, end) in reader.token(page, token).items():
            region = views.region(*key)
            assert region[page, token].view(torch.uint8).numpy().tobytes() == raw[start:end], (key, page, token)


@pytest.mark.parametrize(("name", "kind", "multiple"), POOLS)
def test_views_share_the_buffers_memory(name: str, kind: LayoutKind, multiple: int) -> None:
    layout = Layout(load_geometry(name), kind, num_pages=2, stride_multiple=multiple)
    buffer = torch.zeros(layout.nbytes, dtype=torch.uint8)
    views = torch_views(buffer, layout)
    reader = reader_for(name, kind, 3, 3_452_528 if multiple == 656 else None)
    for key, (start, end) in reader.token(2, 40).items():
        views.region(*key)[2, 40] = torch.ones(1).to(views.region(*key).dtype)
        assert buffer[start:end].any(), key
        buffer[start:end] = 0
        assert not buffer.any(), key


def test_dtypes_and_shapes_are_what_kernels_take() -> None:
    layout = Layout(load_geometry("glm-5.3"), "layer_first", num_pages=2)
    views = torch_views(torch.zeros(layout.nbytes, dtype=torch.uint8), layout)
    expected = {
        ("latent", "nope"): (torch.float8_e4m3fn, 512),
        ("latent", "scale"): (torch.float32, 4),
        ("latent", "rope"): (torch.bfloat16, 64),
        ("index", "key"): (torch.float8_e4m3fn, 128),
        ("index", "scale"): (torch.float32, 1),
    }
    for (component, region), (dtype, width) in expected.items():
        tensor = views.region(component, 6, region)
        assert (tensor.dtype, tuple(tensor.shape)) == (dtype, (3, 64, width))
    latent, index = views.buffers("latent"), views.buffers("index")
    assert len(latent) == len(index) == 78
    assert tuple(latent[77].shape) == (3, 64, 656)
    assert latent[77].is_contiguous()
    assert [tuple(index[layer].shape) for layer in (2, 3, 6)] == [(3, 8_448), (0, 8_448), (3, 8_448)]
    assert index[6].is_contiguous()
    assert tuple(views.region("index", 3, "key").shape) == (0, 64, 128)


@pytest.mark.parametrize(("name", "kind", "multiple"), POOLS)
def test_rows_cover_all_bytes_and_a_tokens_are_no_uint8(name: str, kind: LayoutKind, multiple: int) -> None:
    layout = Layout(load_geometry(name), kind, num_pages=2, stride_multiple=multiple)
    views = torch_views(torch.zeros(layout.nbytes, dtype=torch.uint8), layout)
    tokens, pages, layers = views.token_rows, views.page_rows, views.layer_rows
    assert {rows.dtype for rows in tokens} == {torch.int64, torch.int32}
    assert sum(rows[1, 2].numel() * rows.element_size() for rows in tokens) == layout.geometry.bytes_per_token
    assert [rows.shape[2] for rows in tokens] == [
        len(component.layers)
        for component in layout.geometry.components
        for _ in (component.regions if component.arrangement == "planes" else (component,))
    ], "one tensor for all layers: what a GPU pays for by the launch"
    for rows in (pages, layers):
        assert all(page[1].is_contiguous() and page.dtype == torch.uint8 for page in rows)
        assert sum(page[1].numel() for page in rows) == layout.geometry.bytes_per_page
    assert len(pages) == (1 if kind == "page_first" else len(layers))


def test_a_million_token_pool_has_shapes_without_memory() -> None:
    layout = Layout(load_geometry("glm-5.3"), "page_first", num_pages=16_384)
    views = torch_views(torch.empty(layout.nbytes, dtype=torch.uint8, device="meta"), layout)
    assert tuple(views.region("latent", 77, "rope").shape) == (16_385, 64, 64)


def test_a_buffer_that_is_not_the_layouts_is_refused() -> None:
    layout = Layout(load_geometry("tiny"), "page_first", num_pages=2)
    for buffer in (
        torch.zeros(layout.nbytes - 1, dtype=torch.uint8),
        torch.zeros(layout.nbytes, dtype=torch.int8),
        torch.zeros((3, layout.page_stride), dtype=torch.uint8),
    ):
        with pytest.raises(ValueError, match="the pool's buffer"):
            torch_views(buffer, layout)
