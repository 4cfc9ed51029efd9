"""A lease's page table: which pages hold its tokens, and which of those are its own."""

from __future__ import annotations

import numpy as np

from radixd.server.cache.results import PageIds


class PageTable:
    """Page ids in token order. Own pages are private; the others are the tree's, under the lease's lock."""

    __slots__ = ("_ids", "_own", "length")

    def __init__(self, cached: PageIds):
        self._ids = cached
        self._own = np.zeros(len(cached), bool)
        self.length = len(cached)

    @property
    def pages(self) -> PageIds:
        return self._ids[: self.length]

    def own_pages(self, first: int = 0) -> PageIds:
        """The lease's own pages from table index `first` on."""
        return self._ids[first : self.length][self._own[first : self.length]]

    def own_count(self) -> int:
        return int(np.count_nonzero(self._own[: self.length]))

    def append(self, pages: PageIds) -> None:
        """Appends pages of the lease's own."""
        if not len(pages):
            return
        length = self.length + len(pages)
        if length > len(self._ids):
            capacity = max(length, 2 * len(self._ids))
            self._ids = np.resize(self._ids, capacity) if len(self._ids) else np.empty(capacity, np.int32)
            self._own = np.resize(self._own, capacity) if len(self._own) else np.empty(capacity, bool)
        self._ids[self.length : length] = pages
        self._own[self.length : length] = True
        self.length = length

    def truncate(self, length: int) -> PageIds:
        """Drops the entries from `length` on and returns the own pages among them."""
        dropped = self.own_pages(length)
        self.length = length
        return dropped

    def give_to_tree(self, first: int, last: int) -> None:
        """Own pages at [first, last) are the tree's from now on."""
        self._own[first:last] = False

    def replace(self, first: int, pages: PageIds) -> None:
        """Puts pages of the lease's own in place of the tree's from `first` on."""
        self._ids[first : first + len(pages)] = pages
        self._own[first : first + len(pages)] = True

    def patch(self, first: int, canonical: PageIds) -> PageIds:
        """Puts the tree's page ids in place of the lease's own from `first` on; returns those replaced."""
        last = first + len(canonical)
        replaced = self._ids[first:last].copy()
        self._ids[first:last] = canonical
        self._own[first:last] = False
        return replaced
