"""Writes and checks the bytes of slots through the pool's raw memory, page by page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from radixd.client.tokens import Pages
from radixd.server.replay.fingerprint import Seeds
from radixd.server.replay.slot_block import BlockBytes


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

    def synchronize(self) -> None:
        """Return when all that was to be written is."""


class NoBytes:
    """A pool without memory (device meta): nothing is written, nothing is verified."""

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        """Nothing."""
        return 0

    def check(self, pages: Pages, start: int, seeds: Seeds, found: list[Mismatch]) -> int:
        """Nothing."""
        return 0

    def synchronize(self) -> None:
        """Nothing."""


class PoolBytes:
    """Every byte of every slot; `blocks` are those of all devices."""

    def __init__(self, page_size: int, blocks: Sequence[BlockBytes]) -> None:
        self._page_size = page_size
        self._slot_bytes = sum(block.place.bytes_per_token for block in blocks)
        self._blocks = tuple(blocks)

    def write(self, pages: Pages, start: int, seeds: Seeds) -> int:
        """See SlotBytes."""
        for page, first, part in self._by_page(pages, start, seeds):
            for block in self._blocks:
                block.write(page, first, part)
        return seeds.size * self._slot_bytes

    def check(self, pages: Pages, start: int, seeds: Seeds, found: list[Mismatch]) -> int:
        """See SlotBytes."""
        for page, first, part in self._by_page(pages, start, seeds):
            for block in self._blocks:
                wrong = block.first_wrong(page, first, part)
                if wrong is not None:
                    layer, token = wrong
                    found.append(Mismatch(page, first + token, block.place.name, block.place.layers[layer]))
                    break
        return seeds.size * self._slot_bytes

    def synchronize(self) -> None:
        """See SlotBytes."""
        for block in self._blocks:
            block.synchronize()

    def _by_page(self, pages: Pages, start: int, seeds: Seeds) -> Iterator[tuple[int, int, Seeds]]:
        """(page id, offset of the first token in it, seeds of the tokens in it)."""
        done = 0
        while done < seeds.size:
            index, first = divmod(start + done, self._page_size)
            part = seeds[done : done + self._page_size - first]
            yield int(pages[index]), first, part
            done += part.size
