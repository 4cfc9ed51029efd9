"""Writes and checks the bytes of slots through the pool's raw memory, page by page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from radixd.client.tokens import Pages
from radixd.gpu_pool.geometry import Component
from radixd.gpu_pool.layout import Layout, View
from radixd.server.replay.fingerprint import Seeds, word_salts

Words = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first wrong word found in one page."""

    page: int
    offset: int
    place: str
    layer: int

    def __str__(self) -> str:
        return f"page {self.page}, offset {self.offset}: {self.place} of layer {self.layer} holds other bytes"


class SlotBytes(Protocol):
    """The memory of one scheduler's pool."""

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        """Fill positions [start, start + seeds) of a table; returns the bytes written."""

    def check(self, pages: Pages, start: int, seeds: Seeds, found: list[Mismatch]) -> int:
        """Compare the same positions, append one Mismatch for each wrong page to `found`; returns the bytes read."""


class NoBytes:
    """A pool without memory (device meta): nothing is written, nothing is verified."""

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        """Nothing."""
        return 0

    def check(self, pages: Pages, start: int, seeds: Seeds, found: list[Mismatch]) -> int:
        """Nothing."""
        return 0


@dataclass(frozen=True, slots=True)
class _Block:
    """One component's rows, or one region of its planes, on all its layers."""

    name: str
    layers: tuple[int, ...]
    memory: Words
    """[layers, pages, page_size, words], a view of the pool."""
    salts: Words
    """[layers, 1, words]."""


class PoolBytes:
    """Every byte of every slot on every device; `buffers` are the devices' flat uint8 memory."""

    def __init__(self, layout: Layout, buffers: Sequence[npt.NDArray[np.uint8]]) -> None:
        self._page_size = layout.geometry.page_size
        self._slot_bytes = layout.geometry.bytes_per_token * len(buffers)
        self._blocks = tuple(block for buffer in buffers for block in _blocks(layout, buffer))

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        """See SlotBytes."""
        for page, first, part in self._by_page(pages, start, seeds):
            for block in self._blocks:
                target = block.memory[:, page, first : first + part.size]
                np.bitwise_xor(part.astype(target.dtype)[None, :, None], block.salts, out=target)
        return seeds.size * self._slot_bytes

    def check(self, pages: Pages, start: int, seeds: Seeds, found: list[Mismatch]) -> int:
        """See SlotBytes."""
        for page, first, part in self._by_page(pages, start, seeds):
            for block in self._blocks:
                held = block.memory[:, page, first : first + part.size]
                due = part.astype(held.dtype)[None, :, None] ^ block.salts
                if not np.array_equal(held, due):
                    layer, token, _ = (int(axis[0]) for axis in np.nonzero(held != due))
                    found.append(Mismatch(page, first + token, block.name, block.layers[layer]))
                    break
        return seeds.size * self._slot_bytes

    def _by_page(self, pages: Pages, start: int, seeds: Seeds) -> Iterator[tuple[int, int, Seeds]]:
        """(page id, offset of the first token in it, seeds of the tokens in it)."""
        done = 0
        while done < seeds.size:
            index, first = divmod(start + done, self._page_size)
            part = seeds[done : done + self._page_size - first]
            yield int(pages[index]), first, part
            done += part.size


def _blocks(layout: Layout, buffer: npt.NDArray[np.uint8]) -> Iterator[_Block]:
    for number, component in enumerate(layout.geometry.components):
        if component.arrangement == "rows":
            row = component.bytes_per_token
            views = [layout.page_view(component.name, layer) for layer in component.layers]
            yield _block(buffer, component, component.name, views, row, (number, 0))
            continue
        for place, region in enumerate(component.regions):
            views = [layout.view(component.name, layer, region.name) for layer in component.layers]
            name = f"{component.name}.{region.name}"
            yield _block(buffer, component, name, views, region.bytes_per_token, (number, place))


def _block(
    buffer: npt.NDArray[np.uint8],
    component: Component,
    name: str,
    views: Sequence[View],
    row_bytes: int,
    salt: tuple[int, int],
) -> _Block:
    """All layers of `views` as one array of the widest words that their offsets allow."""
    page_stride, token_stride = views[0].strides[:2]
    pages, page_size = views[0].shape[:2]
    offsets = [view.offset for view in views]
    gaps = set(np.diff(offsets).tolist()) or {0}
    if len(gaps) > 1:
        raise ValueError(f"{name}: layers lie {sorted(gaps)} bytes apart: replay writes evenly spaced layers alone")
    gap = gaps.pop()
    size = math.gcd(8, row_bytes, offsets[0], gap, page_stride, token_stride)
    words = row_bytes // size
    tail = buffer[offsets[0] :]
    memory = np.lib.stride_tricks.as_strided(
        tail[: tail.size // size * size].view(f"<u{size}"),
        (len(offsets), pages, page_size, words),
        (gap, page_stride, token_stride, size),
    )
    salts = word_salts(*salt, len(offsets), words).astype(memory.dtype)
    return _Block(name, component.layers, memory, salts)
