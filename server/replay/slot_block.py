"""Where the bytes of a slot lie: a few strided blocks of integer words, and what each word adds to a seed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from radixd.gpu_pool.layout import Layout, View
from radixd.server.replay.fingerprint import Seeds, word_salts


@dataclass(frozen=True, slots=True)
class SlotBlock:
    """One component's rows, or one region of its planes, on all its layers, in the widest words its offsets allow."""

    name: str
    layers: tuple[int, ...]
    word_bytes: int
    offset: int
    """Bytes from the buffer's start."""
    shape: tuple[int, int, int, int]
    """Layers, physical pages, page_size, words."""
    strides: tuple[int, int, int, int]
    """In bytes."""
    salts: Seeds
    """uint64[layers, 1, words]: a word holds the low bits of `seed ^ salt`."""

    @property
    def bytes_per_token(self) -> int:
        """Of all layers."""
        return len(self.layers) * self.shape[3] * self.word_bytes


class BlockBytes(Protocol):
    """A block in the memory of one device."""

    place: SlotBlock

    def write(self, page: int, first: int, seeds: Seeds) -> None:
        """Fill the slots of a page from offset `first` on, one for each seed."""

    def first_wrong(self, page: int, first: int, seeds: Seeds) -> tuple[int, int] | None:
        """(index of the layer, index of the seed) of a wrong word in the same slots; None: they are right."""

    def synchronize(self) -> None:
        """Return when all that was to be written is."""


class HostBlock:
    """In memory that the CPU reaches; `buffer` is all of the device's, flat uint8."""

    def __init__(self, place: SlotBlock, buffer: npt.NDArray[np.uint8]) -> None:
        self.place = place
        tail = buffer[place.offset :]
        words = tail[: tail.size // place.word_bytes * place.word_bytes].view(f"<u{place.word_bytes}")
        self._memory = np.lib.stride_tricks.as_strided(words, place.shape, place.strides)
        self._salts = place.salts.astype(words.dtype)

    def write(self, page: int, first: int, seeds: Seeds) -> None:
        """See BlockBytes."""
        words = seeds.astype(self._salts.dtype)[None, :, None]
        np.bitwise_xor(words, self._salts, out=self._memory[:, page, first : first + seeds.size])

    def first_wrong(self, page: int, first: int, seeds: Seeds) -> tuple[int, int] | None:
        """See BlockBytes."""
        held = self._memory[:, page, first : first + seeds.size]
        due = seeds.astype(self._salts.dtype)[None, :, None] ^ self._salts
        if np.array_equal(held, due):
            return None
        layers, tokens, _ = np.nonzero(held != due)
        return int(layers[0]), int(tokens[0])

    def synchronize(self) -> None:
        """Nothing to wait for: see BlockBytes."""


def slot_blocks(layout: Layout) -> Iterator[SlotBlock]:
    """All of a slot's bytes. ValueError for a layout whose layers are not evenly spaced."""
    for number, component in enumerate(layout.geometry.components):
        layers = component.layers
        if component.arrangement == "rows":
            views = [layout.page_view(component.name, layer) for layer in layers]
            yield _block(component.name, layers, views, component.bytes_per_token, (number, 0))
            continue
        for place, region in enumerate(component.regions):
            views = [layout.view(component.name, layer, region.name) for layer in layers]
            yield _block(f"{component.name}.{region.name}", layers, views, region.bytes_per_token, (number, place))


def _block(
    name: str, layers: tuple[int, ...], views: Sequence[View], row_bytes: int, salt: tuple[int, int]
) -> SlotBlock:
    page_stride, token_stride = views[0].strides[:2]
    pages, page_size = views[0].shape[:2]
    offsets = [view.offset for view in views]
    gaps = set(np.diff(offsets).tolist()) or {0}
    if len(gaps) > 1:
        raise ValueError(f"{name}: layers lie {sorted(gaps)} bytes apart: replay writes evenly spaced layers alone")
    gap = gaps.pop()
    size = math.gcd(8, row_bytes, offsets[0], gap, page_stride, token_stride)
    words = row_bytes // size
    return SlotBlock(
        name=name,
        layers=layers,
        word_bytes=size,
        offset=offsets[0],
        shape=(len(layers), pages, page_size, words),
        strides=(gap, page_stride, token_stride, size),
        salts=word_salts(*salt, len(layers), words),
    )
