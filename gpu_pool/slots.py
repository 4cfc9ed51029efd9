"""The free list: which pages of one tier are free, with every page given up exactly once."""

import numpy as np
import numpy.typing as npt

Pages = npt.NDArray[np.int32]
"""Page ids, flat int32."""

MAX_PAGES = 2**31 - 2


class SlotError(Exception):
    """A page operation was refused; nothing changed."""


class OutOfPages(SlotError):
    """Fewer pages are free than were asked for."""

    def __init__(self, asked: int, free: int) -> None:
        super().__init__(f"asked for {asked} pages, {free} are free")
        self.asked = asked
        self.free = free


class DoubleFree(SlotError):
    """Pages that are free already, or that one call names twice."""

    def __init__(self, pages: Pages) -> None:
        super().__init__(f"pages freed twice: {_listed(pages)}")
        self.pages = pages


class ForeignPage(SlotError):
    """Page ids that this allocator never hands out: page 0 (the system's), negative, or beyond the last page."""

    def __init__(self, pages: npt.NDArray[np.int64], last: int) -> None:
        super().__init__(f"pages outside [1, {last}]: {_listed(pages)}")
        self.pages = pages


class SlotAllocator:
    """Hands out whole pages 1..num_pages, most recently freed first. Page 0 is the system's and never handed out.

    Costs O(pages asked) time a call; 9 bytes a page of memory. Not thread-safe: one thread owns it.
    """

    def __init__(self, num_pages: int) -> None:
        if not 0 <= num_pages <= MAX_PAGES:
            raise ValueError(f"num_pages {num_pages} is outside [0, {MAX_PAGES}]")
        self.num_pages = num_pages
        # A stack whose first `_free` entries are the free pages, the next to hand out last.
        self._stack = np.arange(num_pages, 0, -1, dtype=np.int32)
        self._free = num_pages
        self._is_free = np.ones(num_pages + 1, dtype=np.bool_)
        self._is_free[0] = False
        # Scratch for finding duplicates in O(k): what it holds between calls means nothing.
        self._mark = np.zeros(num_pages + 1, dtype=np.int32)

    @property
    def free_pages(self) -> int:
        """Pages that `allocate` can still hand out."""
        return self._free

    def allocate(self, n: int) -> Pages:
        """Take `n` pages: int32[n], the caller's own array. Raises OutOfPages and takes none if fewer are free."""
        if n < 0:
            raise ValueError(f"asked for {n} pages")
        if n > self._free:
            raise OutOfPages(asked=n, free=self._free)
        pages = self._stack[self._free - n : self._free][::-1].copy()
        self._free -= n
        self._is_free[pages] = False
        return pages

    def free(self, pages: npt.ArrayLike) -> None:
        """Give `pages` back, so that the next `allocate` returns them in this order.

        Raises ForeignPage or DoubleFree, naming the pages; nothing has changed then.
        """
        given = self._own(pages)
        twice = self._is_free[given] | self._repeats(given)
        if twice.any():
            raise DoubleFree(np.unique(given[twice]))
        self._stack[self._free : self._free + given.size] = given[::-1]
        self._free += given.size
        self._is_free[given] = True

    def is_free(self, pages: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """bool[k]: whether each page is free. Raises ForeignPage."""
        return self._is_free[self._own(pages)]

    def free_ids(self) -> Pages:
        """All free pages, ascending: for checks; O(free pages)."""
        return np.sort(self._stack[: self._free])

    def _own(self, pages: npt.ArrayLike) -> Pages:
        """`pages` as int32 within [1, num_pages]."""
        given = np.asarray(pages)
        if given.size == 0:
            return np.empty(0, dtype=np.int32)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise TypeError(f"pages must be a flat array of integers, got {given.dtype} of shape {given.shape}")
        foreign = (given < 1) | (given > self.num_pages)
        if foreign.any():
            raise ForeignPage(np.unique(given[foreign].astype(np.int64)), last=self.num_pages)
        return given.astype(np.int32)

    def _repeats(self, pages: Pages) -> npt.NDArray[np.bool_]:
        """bool[k]: whether another entry of `pages` names the same page. Of equal entries one wins its mark."""
        order = np.arange(pages.size, dtype=np.int32)
        self._mark[pages] = order
        repeats: npt.NDArray[np.bool_] = self._mark[pages] != order
        return repeats


def _listed(pages: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> str:
    """The first few page ids for a message."""
    shown = ", ".join(str(page) for page in pages[:16])
    return shown if pages.size <= 16 else f"{shown} and {pages.size - 16} more"
