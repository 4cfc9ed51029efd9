"""The pool's flat buffer as tensors: what kernels take, region by region and layer by layer. No copies."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from radixd.gpu_pool.geometry import Dtype
from radixd.gpu_pool.layout import Layout, View

TORCH_DTYPES: Mapping[Dtype, torch.dtype] = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "uint8": torch.uint8,
}

WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Integer types by size in bytes: moving bytes as the widest of them is several times faster than as uint8."""


class PoolViews:
    """Strided tensors over one device's buffer, all sharing its memory; page 0 is row 0 of each."""

    def __init__(self, buffer: torch.Tensor, layout: Layout) -> None:
        if buffer.dtype != torch.uint8 or buffer.dim() != 1 or not buffer.is_contiguous():
            raise ValueError(f"the pool's buffer must be flat uint8, got {buffer.dtype} of shape {tuple(buffer.shape)}")
        if buffer.numel() != layout.nbytes:
            raise ValueError(f"the pool's buffer has {buffer.numel()} bytes, its layout {layout.nbytes}")
        self.buffer = buffer
        self.layout = layout
        self._regions: dict[tuple[str, int, str], torch.Tensor] = {}
        self._pages: dict[str, tuple[torch.Tensor, ...]] = {}
        layers = range(layout.geometry.num_layers)
        for component in layout.geometry.components:
            self._pages[component.name] = tuple(_strided(buffer, layout.page_view(component.name, i)) for i in layers)
            for region in component.regions:
                for layer in layers:
                    view = layout.view(component.name, layer, region.name)
                    self._regions[component.name, layer, region.name] = _strided(buffer, view)

    def region(self, component: str, layer: int, region: str) -> torch.Tensor:
        """[physical pages, page_size, width] in the region's dtype; 0 pages on a layer without the component.

        Raises KeyError if the geometry has no such component, layer or region.
        """
        return self._regions[component, layer, region]

    def buffers(self, component: str) -> tuple[torch.Tensor, ...]:
        """The raw bytes of every layer, indexed by layer number, uint8: see `Layout.page_view` for the shapes."""
        return self._pages[component]

    @cached_property
    def token_rows(self) -> tuple[torch.Tensor, ...]:
        """All bytes of a slot as integer words: tensors [physical pages, page_size, layers, words], in any order.

        One for each component that keeps its regions in rows, one for each region of the others; the layers are
        those that have the component. So few tensors whatever the model: a GPU pays for each by the launch.
        """
        layout = self.layout
        rows: list[torch.Tensor] = []
        for component in layout.geometry.components:
            if component.arrangement == "rows":
                views = [layout.page_view(component.name, layer) for layer in component.layers]
                rows.append(_words(self.buffer, views, component.bytes_per_token))
                continue
            for region in component.regions:
                views = [layout.view(component.name, layer, region.name) for layer in component.layers]
                rows.append(_words(self.buffer, views, region.bytes_per_token))
        return tuple(rows)

    @cached_property
    def page_rows(self) -> tuple[torch.Tensor, ...]:
        """All bytes of a page, padding left out, each row of a page contiguous: uint8 [physical pages, …].

        page_first: one tensor [physical pages, bytes of a page]; layer_first: `layer_rows`.
        """
        layout = self.layout
        if layout.kind == "layer_first":
            return self.layer_rows
        whole = (layout.physical_pages, layout.geometry.bytes_per_page)
        return (self.buffer.as_strided(whole, (layout.page_stride, 1)),)

    @property
    def layer_rows(self) -> tuple[torch.Tensor, ...]:
        """`buffers` of all layers of all components, in the order in which a page_first page holds them."""
        components = self.layout.geometry.components
        return tuple(self._pages[component.name][layer] for component in components for layer in component.layers)


def same_bytes(ours: PoolViews, theirs: PoolViews) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of tensors, page by page along their first axis, that hold the same bytes of a page in both layouts.

    The geometries must be equal. One pair where both are page_first, else one for each layer of each component.
    """
    if ours.layout.kind == theirs.layout.kind == "page_first":
        return tuple(zip(ours.page_rows, theirs.page_rows, strict=True))
    return tuple(zip(ours.layer_rows, theirs.layer_rows, strict=True))


def torch_views(buffer: torch.Tensor, layout: Layout) -> PoolViews:
    """Views of `buffer` (flat uint8 of exactly `layout.nbytes`), on any device, `meta` included."""
    return PoolViews(buffer, layout)


def _strided(buffer: torch.Tensor, view: View) -> torch.Tensor:
    size = view.itemsize
    return buffer.view(TORCH_DTYPES[view.dtype]).as_strided(
        view.shape, [stride // size for stride in view.strides], view.offset // size
    )


def _words(buffer: torch.Tensor, views: Sequence[View], row_bytes: int) -> torch.Tensor:
    """Equal `views`, one a layer and evenly spaced, as one tensor of [pages, page_size, layers, words].

    Their last axis, `row_bytes` long and contiguous, becomes the widest integers that all its offsets allow.
    """
    first, pages_and_tokens = views[0], views[0].strides[:-1]
    spacing = views[1].offset - first.offset if len(views) > 1 else row_bytes
    size = math.gcd(8, first.offset, spacing, row_bytes, buffer.numel(), *pages_and_tokens)
    shape = (*first.shape[:-1], len(views), row_bytes // size)
    strides = (*(stride // size for stride in pages_and_tokens), spacing // size, 1)
    return buffer.view(WORDS[size]).as_strided(shape, strides, first.offset // size)
