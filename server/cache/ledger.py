"""Who owns each page. Every page has exactly one owner, and a page changes hands only through here."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from radixd.gpu_pool.slots import SlotAllocator
from radixd.server.cache.refusal import BrokenInvariant
from radixd.server.cache.results import PageIds


class Owner(IntEnum):
    """Whose a page is."""

    FREE = 0
    LEASED = 1  # private to a lease
    CACHED = 2  # in the tree; a lock makes it protected, the lack of one evictable
    RETIRED = 3  # given up, but a launched step, a copy or a living process may still touch it
    SYSTEM = 4  # page 0


class Ledger:
    """One owner for each page, by id, beside the free list that hands the free ones out."""

    def __init__(self, pages: int):
        self.total = pages
        self._slots = SlotAllocator(pages)
        self._owner = np.full(pages + 1, Owner.FREE, dtype=np.uint8)
        self._owner[0] = Owner.SYSTEM
        self._counts = dict.fromkeys(Owner, 0)
        self._counts[Owner.FREE] = pages

    @property
    def free(self) -> int:
        return self._counts[Owner.FREE]

    @property
    def leased(self) -> int:
        return self._counts[Owner.LEASED]

    @property
    def cached(self) -> int:
        return self._counts[Owner.CACHED]

    @property
    def retired(self) -> int:
        return self._counts[Owner.RETIRED]

    def owned_by(self, owner: Owner) -> PageIds:
        """Ids of all pages of one owner, ascending."""
        return np.flatnonzero(self._owner == owner).astype(np.int32)

    def owners(self) -> NDArray[np.uint8]:
        """The Owner of every page by its id, page 0 too; the caller's own array."""
        return self._owner.copy()

    def free_ids(self) -> PageIds:
        """Ids on the free list, in no order."""
        return self._slots.free_ids()

    def lease(self, count: int) -> PageIds:
        """Hands out `count` free pages. The caller has made sure that there are as many."""
        pages = self._slots.allocate(count)
        self.change(pages, Owner.FREE, Owner.LEASED)
        return pages

    def release(self, pages: PageIds, owner: Owner) -> None:
        """Makes pages of one owner free."""
        if len(pages):
            self.change(pages, owner, Owner.FREE)
            self._slots.free(pages)

    def change(self, pages: PageIds, before: Owner, after: Owner) -> None:
        """Passes pages on. Raises BrokenInvariant, with nothing changed, where one is not `before`'s."""
        owners = self._owner[pages]
        strange = owners != before.value  # numpy takes 4 µs to see the number in the enum
        if np.count_nonzero(strange):
            wrong = pages[strange][:8].tolist()
            raise BrokenInvariant(f"pages {wrong} should be {before.name}, to become {after.name}")
        self._owner[pages] = after.value
        self._counts[before] -= len(pages)
        self._counts[after] += len(pages)
