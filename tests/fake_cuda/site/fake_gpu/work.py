"""What streams execute: copies and fills of raw memory, checked again when they run."""

import ctypes
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fake_gpu import mapping
from fake_gpu.address_space import AddressSpace

Range = tuple[int, int]
"""Start and end."""


class Work(Protocol):
    """One entry of a stream's queue."""

    @property
    def call(self) -> str:
        """The function that enqueued it."""

    def ranges(self) -> Sequence[Range]:
        """The memory that it will touch."""

    def run(self) -> None:
        """Do it. Raises Failed where its memory has gone."""


@dataclass(frozen=True)
class Fill:
    """`count` bytes of `value`."""

    space: AddressSpace
    call: str
    start: int
    value: int
    count: int

    def ranges(self) -> Sequence[Range]:
        """One."""
        return [(self.start, self.start + self.count)]

    def run(self) -> None:
        """Fill."""
        self.space.require(self.start, self.count, f"{self.call}, when it ran")
        ctypes.memset(self.start, self.value, self.count)


@dataclass(frozen=True)
class Piece:
    """`height` rows of `width` bytes."""

    dst: int
    src: int
    width: int
    height: int = 1
    dst_pitch: int = 0
    src_pitch: int = 0

    def extent(self, start: int, pitch: int) -> Range:
        """First byte, and one past the last."""
        return start, start + (self.height - 1) * pitch + self.width

    @property
    def source(self) -> Range:
        """Read."""
        return self.extent(self.src, self.src_pitch)

    @property
    def target(self) -> Range:
        """Written."""
        return self.extent(self.dst, self.dst_pitch)


@dataclass(frozen=True)
class Copy:
    """Pieces without an order among them: a copy that relies on one meets a shuffled one.

    `pageable` says that host memory need not be registered.
    """

    space: AddressSpace
    call: str
    pieces: Sequence[Piece]
    pageable: bool = False

    def ranges(self) -> Sequence[Range]:
        """Both ends of every piece."""
        return [end for piece in self.pieces for end in (piece.source, piece.target)]

    def run(self) -> None:
        """Read the sources now, not when it was enqueued."""
        for start, end in self.ranges():
            region = self.space.require(start, end - start, f"{self.call}, when it ran")
            if region is None and not self.pageable:
                raise self.space.wrong(f"{self.call}, when it ran: {start:#x} is no longer registered")
            if not mapping.mapped(start, end - start):
                raise self.space.wrong(f"{self.call}, when it ran: host memory at {start:#x} is no longer mapped")
        for piece in random.sample(self.pieces, len(self.pieces)):
            for row in range(piece.height):
                ctypes.memmove(piece.dst + row * piece.dst_pitch, piece.src + row * piece.src_pitch, piece.width)


@dataclass(frozen=True)
class Nothing:
    """Takes its turn: what a wait or a host function stands for."""

    call: str

    def ranges(self) -> Sequence[Range]:
        """None."""
        return ()

    def run(self) -> None:
        """Nothing to do."""
