"""Where each layer's bytes lie inside the pool: a table (component, layer, region) -> offset and strides."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from radixd.gpu_pool import fields
from radixd.gpu_pool.geometry import Component, Dtype, Geometry

LayoutKind = Literal["page_first", "layer_first"]
"""page_first:  a page is one contiguous run of all its components and layers; a copy of it is one memcpy.
layer_first: a layer is one contiguous buffer of all pages, for kernels that accept no page stride.
"""

MAX_SLOTS = 2**31
"""Slot and page ids are int32."""

MAX_STRIDE_MULTIPLE = 2**20


class LayoutError(ValueError):
    """A layout that cannot be; the message names the field and its limit."""


@dataclass(frozen=True)
class View:
    """One strided array inside the pool's flat buffer. `offset` and `strides` are in bytes, `shape` in elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype
    itemsize: int


@dataclass(frozen=True)
class Layout:
    """The places of `num_pages` usable pages and of page 0, which is reserved: padding tokens write there.

    Args:
        geometry: what a slot is made of.
        kind: page_first or layer_first.
        num_pages: usable pages, ids 1..num_pages.
        stride_multiple: page_first only: round the page stride up to a multiple of so many bytes
            (656 on SM100, whose sparse decode addresses rows across pages).
    """

    geometry: Geometry
    kind: LayoutKind
    num_pages: int
    stride_multiple: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(LayoutKind):
            raise LayoutError(f"layout kind {self.kind!r} is neither 'page_first' nor 'layer_first'")
        if self.num_pages < 0 or self.physical_pages * self.geometry.page_size > MAX_SLOTS:
            raise LayoutError(
                f"num_pages {self.num_pages} is outside [0, {MAX_SLOTS // self.geometry.page_size - 1}]: "
                f"slot ids of {self.geometry.page_size}-token pages are int32"
            )
        if not 1 <= self.stride_multiple <= MAX_STRIDE_MULTIPLE:
            raise LayoutError(f"stride_multiple {self.stride_multiple} is outside [1, {MAX_STRIDE_MULTIPLE}]")
        if self.kind == "layer_first" and self.stride_multiple != 1:
            raise LayoutError("stride_multiple pads the page of page_first; layer_first has none: leave it at 1")
        largest = max(region.itemsize for component in self.geometry.components for region in component.regions)
        if self.page_stride % largest:
            raise LayoutError(
                f"stride_multiple {self.stride_multiple} makes a page stride of {self.page_stride} bytes, no "
                f"multiple of {largest}, the largest element"
            )

    @property
    def physical_pages(self) -> int:
        """Usable pages and page 0."""
        return self.num_pages + 1

    @property
    def num_slots(self) -> int:
        """Physical slots, those of page 0 among them: valid slot ids are page_size..num_slots - 1."""
        return self.physical_pages * self.geometry.page_size

    @property
    def page_stride(self) -> int:
        """Bytes that one page costs, padding included."""
        return page_stride(self.geometry, self.stride_multiple)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool on one device."""
        return self.physical_pages * self.page_stride

    def view(self, component: str, layer: int, region: str) -> View:
        """One region of one layer: [physical pages, page_size, width]; 0 pages on a layer without the component."""
        owner = self.geometry.component(component)
        item = owner.region(region)
        within, token_stride = _region_place(owner, region, self.geometry.page_size)
        base, stride, pages = self._layer_place(owner, layer)
        return View(
            offset=base + within,
            shape=(pages, self.geometry.page_size, item.width),
            strides=(stride, token_stride, item.itemsize),
            dtype=item.dtype,
            itemsize=item.itemsize,
        )

    def page_view(self, component: str, layer: int) -> View:
        """The raw bytes of one layer, as engines' kernels take them; 0 pages on a layer without the component.

        rows: [physical pages, page_size, row bytes]; planes: [physical pages, page bytes]. uint8.
        """
        owner = self.geometry.component(component)
        base, stride, pages = self._layer_place(owner, layer)
        if owner.arrangement == "rows":
            row = owner.bytes_per_token
            return View(base, (pages, self.geometry.page_size, row), (stride, row, 1), "uint8", 1)
        return View(base, (pages, self.geometry.bytes_per_component_page(owner)), (stride, 1), "uint8", 1)

    def _layer_place(self, component: Component, layer: int) -> tuple[int, int, int]:
        """(offset, page stride, pages) of one layer of `component`."""
        if not 0 <= layer < self.geometry.num_layers:
            raise LayoutError(f"layer {layer} is outside [0, {self.geometry.num_layers - 1}]")
        page_bytes = self.geometry.bytes_per_component_page(component)
        within = self._within_page.get((component.name, layer))
        if within is None:
            return 0, page_bytes, 0
        if self.kind == "page_first":
            return within, self.page_stride, self.physical_pages
        return within * self.physical_pages, page_bytes, self.physical_pages

    @cached_property
    def _within_page(self) -> Mapping[tuple[str, int], int]:
        """(component, layer) -> bytes of a page that lie before it: component after component, layer after layer."""
        places: dict[tuple[str, int], int] = {}
        offset = 0
        for component in self.geometry.components:
            for layer in component.layers:
                places[component.name, layer] = offset
                offset += self.geometry.bytes_per_component_page(component)
        return places

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, with the whole table, so that a reader in any language needs no rules of ours."""
        return {
            "geometry": self.geometry.to_dict(),
            "kind": self.kind,
            "num_pages": self.num_pages,
            "stride_multiple": self.stride_multiple,
            "nbytes": self.nbytes,
            "views": self._table(),
        }

    def _table(self) -> list[list[object]]:
        """Rows of [component, layer, region, offset, page stride, token stride], all in bytes."""
        rows: list[list[object]] = []
        for component in self.geometry.components:
            for layer in component.layers:
                for region in component.regions:
                    view = self.view(component.name, layer, region.name)
                    rows.append([component.name, layer, region.name, view.offset, *view.strides[:2]])
        return rows

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Layout":
        """A layout from `to_dict`'s data; LayoutError if the sender places any byte elsewhere than this version."""
        layout = cls(
            geometry=Geometry.from_dict(fields.mapping(data.get("geometry"), "geometry")),
            kind=fields.choice(data, "kind", "", get_args(LayoutKind)),
            num_pages=fields.integer(data, "num_pages", "", high=MAX_SLOTS),
            stride_multiple=fields.integer(data, "stride_multiple", "", low=1, high=MAX_STRIDE_MULTIPLE),
        )
        if data.get("nbytes") != layout.nbytes or data.get("views") != layout._table():
            raise LayoutError("the sender lays out this geometry otherwise: use the same radixd version on both ends")
        return layout


def page_stride(geometry: Geometry, stride_multiple: int = 1) -> int:
    """Bytes from one page to the next: a page rounded up to `stride_multiple`."""
    return -(-geometry.bytes_per_page // stride_multiple) * stride_multiple


def pages_for_bytes(geometry: Geometry, nbytes: int, stride_multiple: int = 1) -> int:
    """Usable pages of a pool of at most `nbytes`: one more is paid for page 0. LayoutError if none fits."""
    return usable_pages(nbytes, page_stride(geometry, stride_multiple))


def usable_pages(nbytes: int, stride: int) -> int:
    """Pages of `stride` bytes in `nbytes`, less page 0. LayoutError if none is left."""
    pages = nbytes // stride - 1
    if pages < 1:
        raise LayoutError(f"{nbytes} bytes hold no usable page: {2 * stride} are needed, page 0 and one more")
    return pages


def pages_for_tokens(geometry: Geometry, tokens: int) -> int:
    """Usable pages of a pool of at most `tokens` usable tokens. LayoutError if they are less than a page."""
    return whole_pages(tokens, geometry.page_size)


def whole_pages(tokens: int, page_tokens: int) -> int:
    """Pages that `tokens` fill. LayoutError if they are less than one."""
    if tokens < page_tokens:
        raise LayoutError(f"{tokens} tokens are less than one page of {page_tokens}")
    return tokens // page_tokens


def _region_place(component: Component, name: str, page_size: int) -> tuple[int, int]:
    """(offset within one layer's page, bytes from one token to the next) of a region."""
    names = [region.name for region in component.regions]
    before = sum(region.bytes_per_token for region in component.regions[: names.index(name)])
    if component.arrangement == "rows":
        return before, component.bytes_per_token
    return before * page_size, component.region(name).bytes_per_token
