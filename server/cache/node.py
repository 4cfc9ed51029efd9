"""A node of the radix tree: a run of whole pages under one parent."""

from __future__ import annotations

import numpy as np

from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds

# Below this many bytes, slicing both runs and comparing them as bytes beats a vectorised compare's fixed cost.
_COMPARE_AS_BYTES = 16_384
# A vectorised compare goes in pieces (elements of four bytes), so that an early difference costs little of a long run.
_COMPARE_PIECE = 262_144


class Node:
    """A run of whole pages: its key elements, its page ids, and what eviction and locks need to know.

    The run's elements are `buffer[start:stop]`. Splits share the buffer; every node spans at least half of its own, so
    a tree holds at most twice the bytes of its keys.
    """

    __slots__ = (
        "born", "buffer", "children", "expires", "hits", "last_use", "lock_ref", "pages", "parent", "priority", "rank",
        "retain_seconds", "root", "serial", "start", "stop",
    )  # fmt: skip

    def __init__(self, serial: int, parent: Node | None, buffer: bytes, pages: PageIds):
        self.serial = serial
        self.parent = parent
        self.root: Root = parent.root if parent else self  # type: ignore[assignment]  # a node without parent is a Root
        self.buffer = buffer
        self.start = 0
        self.stop = len(buffer)
        self.pages = pages
        self.children: dict[bytes, Node] = {}
        self.lock_ref = 0
        self.priority = 0
        self.retain_seconds: float | None = None
        self.expires: float | None = None  # clock time at which the priority falls to 0
        self.hits = 0
        self.born = serial
        self.last_use = 0
        self.rank: tuple[float, ...] | None = None  # place in the eviction queue, while it has one

    def key(self, page_bytes: int) -> bytes:
        """The run's first page: what its parent knows it by."""
        return self.buffer[self.start : self.start + page_bytes]

    def common_bytes(self, key: bytes, at: int) -> int:
        """How many bytes of the run equal key[at:], to the element of four bytes."""
        length = min(self.stop - self.start, len(key) - at)
        if length <= _COMPARE_AS_BYTES and self.buffer[self.start : self.start + length] == key[at : at + length]:
            return length
        mine = np.frombuffer(self.buffer, np.uint32, length // 4, self.start)
        theirs = np.frombuffer(key, np.uint32, length // 4, at)
        for piece in range(0, len(mine), _COMPARE_PIECE):
            differs = mine[piece : piece + _COMPARE_PIECE] != theirs[piece : piece + _COMPARE_PIECE]
            first = int(differs.argmax())
            if differs[first]:
                return 4 * (piece + first)
        return length

    def cut_head(self, page_count: int, page_bytes: int, head: Node) -> None:
        """Gives the first pages of the run to `head`, a node with an empty one. Copies the shorter half at most."""
        cut = self.start + page_count * page_bytes
        head.buffer, head.start, head.stop = self.buffer, self.start, cut
        head.pages, self.pages = self.pages[:page_count], self.pages[page_count:]
        self.start = cut
        head.compact()
        self.compact()

    def cut_tail(self, page_count: int, page_bytes: int) -> PageIds:
        """Takes the last pages off the run and returns their ids."""
        kept = len(self.pages) - page_count
        pages, self.pages = self.pages[kept:], self.pages[:kept]
        self.stop = self.start + kept * page_bytes
        self.compact()
        return pages

    def compact(self) -> None:
        """Lets go of a buffer that the run spans less than half of."""
        if 2 * (self.stop - self.start) < len(self.buffer):
            self.buffer = self.buffer[self.start : self.stop]
            self.start, self.stop = 0, len(self.buffer)
            self.pages = self.pages.copy()


class Root(Node):
    """A namespace's root: no tokens, no pages. Detached once a Flush has made its tree unmatchable."""

    __slots__ = ("detached", "namespace")

    def __init__(self, serial: int, namespace: Namespace):
        super().__init__(serial, None, b"", np.empty(0, np.int32))
        self.namespace = namespace
        self.detached = False
