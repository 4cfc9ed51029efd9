"""What one slot and one page of KV cost on one device, and what changes that."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from radixd.gpu_pool.budget import BudgetError
from radixd.gpu_pool.budget.scratch import TOPK
from radixd.gpu_pool.geometry import MAX_LAYERS, MAX_PAGE_SIZE, Component, Geometry
from radixd.gpu_pool.layout import MAX_STRIDE_MULTIPLE

INDEX = "index"
"""The component that decode context parallelism replicates and index_kpool pools."""

DSA_PAGE = 64
"""Tokens: the DSA indexer kernels accept no other physical page on CUDA."""

MAX_DCP = 64


@dataclass(frozen=True)
class Cost:
    """Bytes that KV takes on one device.

    A slot is one row of the latent; a device that holds every d-th token (decode context parallelism) has one for each
    d tokens of a context, and the index keys of all d.
    """

    layers: Mapping[str, int]
    """Component -> layers that hold it, MTP layers among them."""
    parts: Mapping[str, int]
    """Component -> bytes a slot, over all its layers."""
    page_slots: int
    page_tokens: int
    """Tokens of a context that one page covers, over all ranks that share it."""
    stride_multiple: int = 1

    @property
    def cell(self) -> int:
        """Bytes a slot: SGLang's cell_size."""
        return sum(self.parts.values())

    @property
    def page_parts(self) -> Mapping[str, int]:
        """Component -> bytes a page."""
        return {name: nbytes * self.page_slots for name, nbytes in self.parts.items()}

    @property
    def page_bytes(self) -> int:
        """Bytes a page without padding: vLLM's bytes per block."""
        return self.cell * self.page_slots

    @property
    def page_stride(self) -> int:
        """Bytes that a page takes in the pool."""
        return -(-self.page_bytes // self.stride_multiple) * self.stride_multiple

    @property
    def tail_waste(self) -> int:
        """Bytes that a request leaves unused in its last page, on average: half of it."""
        return self.page_bytes // 2


def cost_of(geometry: Geometry, mtp: int = 0, kpool: int = 1, dcp: int = 1, stride_multiple: int = 1) -> Cost:
    """The cost of a geometry on one rank.

    Args:
        geometry: what one token is made of.
        mtp: next-token layers beyond the geometry's own, each with every component.
        kpool: index_kpool: tokens that share one index entry; the logical page grows to as many physical ones.
        dcp: ranks that share a context: each holds 1/dcp of the latent, and all of the index and of MTP layers.
        stride_multiple: bytes to a multiple of which a page is padded (656 on SM100).

    BudgetError where engines could not run it.
    """
    _check(geometry, mtp, kpool, dcp)
    if not 1 <= stride_multiple <= MAX_STRIDE_MULTIPLE:
        raise BudgetError(f"stride-multiple {stride_multiple} is outside [1, {MAX_STRIDE_MULTIPLE}]")
    layers, parts = {}, {}
    for component in geometry.components:
        nbytes, replicated = component.bytes_per_token, 1
        if component.name == INDEX:
            nbytes, replicated = -(-nbytes // kpool), dcp
        layers[component.name] = len(component.layers) + mtp
        parts[component.name] = nbytes * (len(component.layers) * replicated + mtp * dcp)
    slots = geometry.page_size * kpool
    return Cost(layers, parts, slots, slots * dcp, stride_multiple)


def with_index_layers(geometry: Geometry, count: int) -> Geometry:
    """The same model with `count` layers that write an index. Which ones does not matter to bytes."""
    if not 1 <= count <= geometry.num_layers:
        raise BudgetError(f"indexer {count} is outside [1, {geometry.num_layers}], the layers of {geometry.name}")
    index = replace(_index(geometry, "indexer"), layers=tuple(range(count)))
    components = tuple(index if component.name == INDEX else component for component in geometry.components)
    source = f"{geometry.source}, with {count} index layers (a count: which ones, only a config can say)"
    return replace(geometry, components=components, source=source)


def with_page_size(geometry: Geometry, page_size: int) -> Geometry:
    """The same model in pages of another size."""
    if not 1 <= page_size <= MAX_PAGE_SIZE:
        raise BudgetError(f"page-size {page_size} is outside [1, {MAX_PAGE_SIZE}]")
    return replace(geometry, page_size=page_size)


def _check(geometry: Geometry, mtp: int, kpool: int, dcp: int) -> None:
    if not 0 <= mtp <= MAX_LAYERS:
        raise BudgetError(f"mtp {mtp} is outside [0, {MAX_LAYERS}]: it is a number of layers")
    if not 1 <= dcp <= MAX_DCP:
        raise BudgetError(f"dcp {dcp} is outside [1, {MAX_DCP}]: it is a number of ranks")
    if kpool != 1:
        _index(geometry, "kpool")
        if not 1 <= kpool <= DSA_PAGE or TOPK % kpool:
            raise BudgetError(f"kpool {kpool} is no power of two within [1, {DSA_PAGE}]: it must divide the top {TOPK}")
        if dcp > 1:
            raise BudgetError(f"kpool {kpool} with dcp {dcp}: one index entry would span tokens of several ranks")
    if geometry.page_size != DSA_PAGE and any(component.name == INDEX for component in geometry.components):
        raise BudgetError(f"page-size {geometry.page_size}: the DSA indexer's kernels accept pages of {DSA_PAGE} alone")


def _index(geometry: Geometry, asked: str) -> Component:
    for component in geometry.components:
        if component.name == INDEX:
            return component
    raise BudgetError(f"{asked}: {geometry.name} has no indexer")
