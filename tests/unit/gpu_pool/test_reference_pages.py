"""Pages written through the views, or by the quantised store, decode to the same values by GLM53.md's offsets."""

import numpy as np
import pytest
import torch

from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.quantise import read_index, read_latent, write_index, write_latent
from tests.unit.gpu_pool.pools import KINDS, MakePool
from tests.unit.gpu_pool.reference_pages import FULL_LAYERS, PAGE, index_page, latent_page

LAYOUTS: list[tuple[LayoutKind, int, int]] = [
    ("page_first", 1, PAGE),
    ("page_first", 656, 3_452_528),
    ("layer_first", 1, PAGE),
]
PAGES = 4
"""With page 0."""


def _values(width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, width, generator=generator) * torch.logspace(-3, 3, 64).unsqueeze(-1)


@pytest.mark.parametrize("device", KINDS)
@pytest.mark.parametrize(("kind", "multiple", "stride"), LAYOUTS)
def test_quantised_pages_decode_to_what_was_stored(
    make_pool: MakePool, kind: LayoutKind, multiple: int, stride: int, device: str
) -> None:
    memory = make_pool("glm-5.3", kind, PAGES - 1, device, stride_multiple=multiple)
    assert memory.layout.page_stride == stride
    views = memory.views[0]
    places = [(3, 0), (1, 77), (2, 41)]
    ropes = {}
    for page, layer in places:
        ropes[page, layer] = _values(64, layer + 100).bfloat16()
        write_latent(views, layer, range(64 * page, 64 * page + 64), _values(512, layer), ropes[page, layer])
    full = [(3, 0), (1, 74), (2, 42)]
    for page, layer in full:
        write_index(views, layer, range(64 * page, 64 * page + 64), _values(128, layer))
    raw = views.buffer.numpy().tobytes()
    for page, layer in places:
        slots = range(64 * page, 64 * page + 64)
        nope, rope = latent_page(raw, kind, PAGES, page, layer, stride)
        assert np.array_equal(nope, read_latent(views, layer, slots).nope.numpy())
        assert np.abs(nope - _values(512, layer).numpy()).max() <= np.abs(nope).max() / 8
        assert rope == ropes[page, layer].view(torch.uint8).numpy().tobytes()
    for page, layer in full:
        keys = index_page(raw, kind, PAGES, page, layer, stride)
        assert np.array_equal(keys, read_index(views, layer, range(64 * page, 64 * page + 64)).numpy())
        assert np.abs(keys - _values(128, layer).numpy()).max() <= np.abs(keys).max() / 8


@pytest.mark.parametrize(("kind", "multiple", "stride"), LAYOUTS)
def test_each_layers_views_are_the_pages_that_kernels_read(
    make_pool: MakePool, kind: LayoutKind, multiple: int, stride: int
) -> None:
    memory = make_pool("glm-5.3", kind, PAGES - 1, stride_multiple=multiple)
    views = memory.views[0]
    for layer in range(78):
        views.region("latent", layer, "nope").view(torch.uint8)[:] = 0x38  # 1.0
        views.region("latent", layer, "scale")[:] = torch.arange(PAGES)[:, None, None] * 1000.0 + layer
        views.region("latent", layer, "rope")[:] = layer
    for layer in FULL_LAYERS:
        views.region("index", layer, "key").view(torch.uint8)[:] = 0xB8  # -1.0
        views.region("index", layer, "scale")[:, :, 0] = torch.arange(PAGES)[:, None] * 1000.0 + layer
    raw = views.buffer.numpy().tobytes()
    for page in range(PAGES):
        for layer in range(78):
            nope, rope = latent_page(raw, kind, PAGES, page, layer, stride)
            assert (nope == page * 1000 + layer).all(), (page, layer)
            assert rope == torch.tensor([float(layer)]).bfloat16().view(torch.uint8).numpy().tobytes() * 4096
        for layer in FULL_LAYERS:
            assert (index_page(raw, kind, PAGES, page, layer, stride) == -(page * 1000 + layer)).all(), (page, layer)
