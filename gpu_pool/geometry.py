"""What one slot (the place of one token's KV) is made of: components, their layers, regions and bytes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from radixd.gpu_pool import fields

Dtype = Literal["fp8_e4m3", "fp32", "fp16", "bf16", "uint8"]
"""Element types that a region may hold."""

Arrangement = Literal["rows", "planes"]
"""How one page of one layer of a component lies in memory.

rows:   token after token, each token's regions side by side (latent: one row of fp8 | fp32 scales | bf16 rope).
planes: region after region, each region's tokens side by side (index K: all keys of the page, then all scales).
"""

ITEMSIZE: Mapping[Dtype, int] = {"fp8_e4m3": 1, "fp32": 4, "fp16": 2, "bf16": 2, "uint8": 1}

MAX_PAGE_SIZE = 4096
MAX_LAYERS = 4096


class GeometryError(ValueError):
    """A geometry that cannot be laid out; the message names the field and its limit."""


@dataclass(frozen=True)
class Region:
    """One array of a component: `bytes_per_token` bytes of `dtype` for each token of each layer."""

    name: str
    dtype: Dtype
    bytes_per_token: int

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            raise GeometryError(f"region {self.name}: dtype {self.dtype!r} is none of {', '.join(ITEMSIZE)}")
        if self.bytes_per_token <= 0 or self.bytes_per_token % self.itemsize:
            raise GeometryError(
                f"region {self.name}: bytes_per_token {self.bytes_per_token} must be a positive multiple of "
                f"{self.itemsize}, the size of one {self.dtype}"
            )

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZE[self.dtype]

    @property
    def width(self) -> int:
        """Elements for each token."""
        return self.bytes_per_token // self.itemsize


@dataclass(frozen=True)
class Component:
    """One cache (MLA latent, index K): the same regions on each of `layers`, strictly ascending layer numbers."""

    name: str
    layers: tuple[int, ...]
    regions: tuple[Region, ...]
    arrangement: Arrangement

    def __post_init__(self) -> None:
        where = f"component {self.name}"
        if self.arrangement not in get_args(Arrangement):
            raise GeometryError(f"{where}: arrangement {self.arrangement!r} is neither 'rows' nor 'planes'")
        if not self.layers or any(a >= b for a, b in zip(self.layers, self.layers[1:], strict=False)):
            raise GeometryError(f"{where}: layers must be a non-empty, strictly ascending list")
        if not self.regions or len({region.name for region in self.regions}) != len(self.regions):
            raise GeometryError(f"{where}: regions must be a non-empty list of distinct names")

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token on one layer."""
        return sum(region.bytes_per_token for region in self.regions)

    def region(self, name: str) -> Region:
        """The region called `name`; GeometryError if there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise GeometryError(f"component {self.name} has no region {name!r}: it has {[r.name for r in self.regions]}")


@dataclass(frozen=True)
class Geometry:
    """A model's KV as data. `name` and `source` are labels; equality and the fingerprint ignore them."""

    name: str = field(compare=False)
    page_size: int
    num_layers: int
    components: tuple[Component, ...]
    source: str = field(default="", compare=False)
    """Where it came from and how it was read, for people."""

    def __post_init__(self) -> None:
        if not 1 <= self.page_size <= MAX_PAGE_SIZE:
            raise GeometryError(f"page_size {self.page_size} is outside [1, {MAX_PAGE_SIZE}]")
        if not 1 <= self.num_layers <= MAX_LAYERS:
            raise GeometryError(f"num_layers {self.num_layers} is outside [1, {MAX_LAYERS}]")
        if not self.components or len({component.name for component in self.components}) != len(self.components):
            raise GeometryError("components must be a non-empty list of distinct names")
        for component in self.components:
            self._check_component(component)

    def _check_component(self, component: Component) -> None:
        where = f"component {component.name}"
        if component.layers[0] < 0 or component.layers[-1] >= self.num_layers:
            raise GeometryError(
                f"{where}: layers reach from {component.layers[0]} to {component.layers[-1]}, "
                f"outside [0, {self.num_layers - 1}] of num_layers {self.num_layers}"
            )
        # Elements must lie at multiples of their size, else no typed view of them exists.
        tokens = self.page_size if component.arrangement == "planes" else 1
        offset = 0
        for region in component.regions:
            if offset % region.itemsize:
                raise GeometryError(
                    f"{where}: region {region.name} would start at byte {offset}, which is no multiple of "
                    f"{region.itemsize}: put regions of larger elements first or widen the one before"
                )
            offset += region.bytes_per_token * tokens
        itemsize = max(region.itemsize for region in component.regions)
        if component.arrangement == "rows" and component.bytes_per_token % itemsize:
            raise GeometryError(f"{where}: a row of {component.bytes_per_token} bytes is no multiple of {itemsize}")
        largest = max(region.itemsize for other in self.components for region in other.regions)
        if self.bytes_per_component_page(component) % largest:
            raise GeometryError(
                f"{where}: {self.bytes_per_component_page(component)} bytes a page and layer are no multiple of "
                f"{largest}, the largest element: change page_size or widen a region"
            )

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one slot: all components on all their layers (an engine's cell)."""
        return sum(len(component.layers) * component.bytes_per_token for component in self.components)

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page without padding."""
        return self.page_size * self.bytes_per_token

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that two geometries share if and only if the bytes of a page mean the same in both."""
        described = {key: value for key, value in self.to_dict().items() if key not in ("name", "source")}
        canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).digest()[:16]

    def bytes_per_component_page(self, component: Component) -> int:
        """Bytes of one page of `component` on one layer."""
        return self.page_size * component.bytes_per_token

    def component(self, name: str) -> Component:
        """The component called `name`; GeometryError if there is none."""
        for component in self.components:
            if component.name == name:
                return component
        raise GeometryError(
            f"geometry {self.name} has no component {name!r}: it has {[c.name for c in self.components]}"
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; `from_dict` reads it back."""
        return {
            "name": self.name,
            "source": self.source,
            "page_size": self.page_size,
            "num_layers": self.num_layers,
            "components": [
                {
                    "name": component.name,
                    "arrangement": component.arrangement,
                    "layers": list(component.layers),
                    "regions": [
                        {"name": region.name, "dtype": region.dtype, "bytes_per_token": region.bytes_per_token}
                        for region in component.regions
                    ],
                }
                for component in self.components
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Geometry":
        """A geometry from plain data (JSON, TOML). Raises FieldError or GeometryError, both ValueErrors."""
        source = data.get("source", "")
        return cls(
            name=fields.text(data, "name", ""),
            page_size=fields.integer(data, "page_size", ""),
            num_layers=fields.integer(data, "num_layers", ""),
            components=tuple(
                _component(fields.mapping(item, f"components[{i}]"), f"components[{i}].")
                for i, item in enumerate(fields.sequence(data, "components", "", limit=64))
            ),
            source=source if isinstance(source, str) else "",
        )


def _component(data: Mapping[str, object], where: str) -> Component:
    return Component(
        name=fields.text(data, "name", where),
        layers=fields.integers(data, "layers", where),
        regions=tuple(
            _region(fields.mapping(item, f"{where}regions[{i}]"), f"{where}regions[{i}].")
            for i, item in enumerate(fields.sequence(data, "regions", where, limit=64))
        ),
        arrangement=fields.choice(data, "arrangement", where, get_args(Arrangement)),
    )


def _region(data: Mapping[str, object], where: str) -> Region:
    return Region(
        name=fields.text(data, "name", where),
        dtype=fields.choice(data, "dtype", where, get_args(Dtype)),
        bytes_per_token=fields.integer(data, "bytes_per_token", where, low=1, high=2**24),
    )
