"""A lease as its client sees it: lengths and page table. No I/O: the two transports add the verbs."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from radixd.client.errors import NoLease, SessionOver
from radixd.client.results import TablePatch
from radixd.client.tokens import Pages

NO_PAGES_YET: Pages = np.empty(0, dtype=np.int32)
NO_PAGES_YET.flags.writeable = False


class LeaseStatus(StrEnum):
    """What a lease has, and with that, which verbs it accepts."""

    OPENING = "opening"
    """The daemon has not answered yet."""
    WAITING = "waiting"
    """Tokens, no pages."""
    ACTIVE = "active"
    """A page table. While `loading` is not empty, part of its prefix is still arriving, from host or another pool."""
    OFFLOADING = "offloading"
    """Being saved to the host; the page table is still its own. Match and Release alone."""
    OFFLOADED = "offloaded"
    """On the host, no pages. Match, Restore and Release alone."""
    RESTORING = "restoring"
    """Has a page table again, whose bytes are still arriving. Match and Release alone."""
    RELEASED = "released"
    """Void."""


class Standing:
    """What all leases of one session share: how long they are good for, and who among them has news."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.over: SessionOver | None = None
        """Set once, at the session's end: from then on every lease raises it."""
        self.leases: dict[int, LeaseState] = {}
        self.unpatched: list[LeaseState] = []
        """Leases that hold table patches for the next step boundary."""
        self.copies: dict[int, LeaseState] = {}


class LeaseState:
    """One request's lengths and page table, kept as the replies tell.

    Lengths in tokens: published ≤ written ≤ known, written ≤ allocated. `pages` is never changed in place: a change
    makes a new array, so one that was handed out stays as it was.
    """

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self._pages = NO_PAGES_YET
        self._patches: list[TablePatch] = []
        self._copies: set[int] = set()
        self.loading: frozenset[int] = frozenset()
        """Copies of its prefix that have not ended. Unless it is empty, nothing of the lease may be computed."""
        self.status = LeaseStatus.OPENING
        self.lease_id = 0
        self.known = 0
        self.written = 0
        self.published = 0
        self.device_tokens = 0
        """Tokens whose KV the lease reads from the cache, those that are arriving too. Computing starts here."""
        self.host_tokens = 0
        """Of them, those that the host had, or was sending."""
        self.peer_tokens = 0
        """Of them, those that another pool had, or was sending."""
        self.readable = 0
        """Tokens whose KV it had when it became active, or was restored, and can read once `loading` is empty.

        A copy that failed has made it less than was promised: computing starts here then.
        """
        self.rollback_tokens = 0
        """What the pool's speculative mode took off the common prefix."""

    @property
    def allocated(self) -> int:
        """Slots in the page table."""
        return self._pages.size * self.standing.page_size

    @property
    def copying(self) -> bool:
        """Whether a Move of this lease has not been seen to end: until then its bytes are in motion."""
        return bool(self._copies)

    @property
    def pages(self) -> Pages:
        """The page table: read-only int32[allocated / page_size]. Raises the session's end, or NoLease."""
        self.check()
        return self._pages

    def slots(self, start: int, stop: int) -> Pages:
        """Slot ids of positions [start, stop): int32[stop - start]. Raises ValueError beyond the table."""
        size = self.standing.page_size
        pages = self.pages
        if not 0 <= start <= stop <= pages.size * size:
            raise ValueError(f"slots [{start}, {stop}) are not within the table's [0, {pages.size * size}): allocate")
        first = start // size
        ids: Pages = np.add.outer(pages[first : -(-stop // size)] * np.int32(size), np.arange(size, dtype=np.int32))
        return ids.reshape(-1)[start - first * size : stop - first * size]

    def check(self) -> None:
        """Raise what ended the session, or NoLease where the lease has no id: it may not be used."""
        if self.standing.over is not None:
            raise self.standing.over
        if self.status is LeaseStatus.RELEASED:
            raise NoLease(f"lease {self.lease_id} was released")
        if self.status is LeaseStatus.OPENING:
            raise NoLease("the lease is not open: its Batch was not answered, or its Acquire was refused")

    # What replies do. Only the session calls these, in the order of the replies.

    def on_opened(self, lease_id: int, known: int) -> None:
        """The daemon has the tokens; nothing is locked."""
        self.lease_id, self.known = lease_id, known
        self.status = LeaseStatus.WAITING
        self.standing.leases[lease_id] = self

    def on_activated(
        self,
        pages: Pages,
        device_tokens: int,
        rollback_tokens: int,
        host_tokens: int = 0,
        peer_tokens: int = 0,
        loading: frozenset[int] = frozenset(),
    ) -> None:
        """The whole page table has come, the bytes in it perhaps not."""
        self._pages = pages
        self.written = self.published = self.readable = self.device_tokens = device_tokens
        self.host_tokens, self.peer_tokens, self.rollback_tokens = host_tokens, peer_tokens, rollback_tokens
        self.loading = loading
        self.status = LeaseStatus.ACTIVE

    def on_grown(self, pages: Pages, known: int) -> None:
        """Pages appended to the table, tokens to the known ones."""
        self.known += known
        if pages.size:
            self._pages = _frozen(np.concatenate((self._pages, pages)))

    def on_inserted(self, written: int, known: int, published: int, patches: Sequence[TablePatch]) -> None:
        """KV is written up to `written`; `published` is in the tree."""
        self.known += known
        self.written = max(self.written, written)
        self.on_published(published, patches)

    def on_published(self, published: int, patches: Sequence[TablePatch]) -> None:
        """More is in the tree; patches wait for the step boundary."""
        self.published = published
        if patches:
            self._patches.extend(patches)
            self.standing.unpatched.append(self)

    def apply_patches(self) -> None:
        """Put the canonical pages into the table."""
        if self._patches and self._pages.size:
            self._patch(self._patches)
        self._patches.clear()

    def _patch(self, patches: Sequence[TablePatch]) -> None:
        table = self._pages.copy()
        for patch in patches:
            table[patch.first_page : patch.first_page + patch.pages.size] = patch.pages
        self._pages = _frozen(table)

    def on_freed(self, length: int, allocated: int) -> None:
        """Pages above `allocated` are given up, tokens above `length` forgotten."""
        self.known = min(self.known, length)
        self.written = min(self.written, length)
        self._pages = self._pages[: allocated // self.standing.page_size]

    def on_released(self) -> None:
        """The id is void."""
        self._lose_pages()
        self.status = LeaseStatus.RELEASED
        self.standing.leases.pop(self.lease_id, None)

    def on_retracted(self, known: int) -> None:
        """Back to waiting, with all tokens and no pages."""
        self.known += known
        self._lose_pages()
        self.written = self.published = self.readable = self.rollback_tokens = 0
        self.device_tokens = self.host_tokens = self.peer_tokens = 0
        self.status = LeaseStatus.WAITING

    def on_offloading(self) -> None:
        """It is about to be saved. Patches that are on their way still belong into the table: a copy may fail."""
        self.status = LeaseStatus.OFFLOADING

    def on_saved(self, *, saved: bool) -> None:
        """The Offload has ended. Not so where the lease was released or retracted meanwhile."""
        if self.status is not LeaseStatus.OFFLOADING:
            return
        if saved:
            self._lose_pages()
        self.status = LeaseStatus.OFFLOADED if saved else LeaseStatus.ACTIVE

    def on_restored(self, pages: Pages, readable: int, loading: frozenset[int]) -> None:
        """The whole page table has come back, the bytes in it perhaps not."""
        self._pages, self.readable, self.loading = pages, readable, loading
        self.status = LeaseStatus.RESTORING if loading else LeaseStatus.ACTIVE

    def on_arrived(self, copy_id: int, readable: int, patches: Sequence[TablePatch]) -> None:
        """A copy has ended.

        Its patches belong to pages that nothing was computed in yet, so they need no step boundary. News of a copy
        that the lease does not wait for concerns an earlier activation of it, before it was retracted.
        """
        if copy_id not in self.loading:
            return
        if patches:
            self._patch(patches)
        if readable < self.readable:
            resident = self.device_tokens - self.host_tokens - self.peer_tokens
            self.readable = readable
            self.device_tokens = min(self.device_tokens, readable)
            arrived = max(0, self.device_tokens - resident)
            self.host_tokens, self.peer_tokens = min(self.host_tokens, arrived), min(self.peer_tokens, arrived)
            self.published, self.written = min(self.published, readable), min(self.written, readable)
        self.loading -= {copy_id}  # last: whoever sees it empty sees the rest
        if not self.loading and self.status is LeaseStatus.RESTORING:
            self.status = LeaseStatus.ACTIVE

    def _lose_pages(self) -> None:
        self._pages = NO_PAGES_YET
        self._patches.clear()
        self.loading = frozenset()

    def on_copy_started(self, copy_id: int) -> None:
        """A Move is on its way."""
        self._copies.add(copy_id)
        self.standing.copies[copy_id] = self

    def on_copy_ended(self, copy_id: int) -> None:
        """A Move has ended."""
        self._copies.discard(copy_id)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.lease_id} {self.status}: published {self.published} ≤ written "
            f"{self.written} ≤ known {self.known}, allocated {self.allocated}>"
        )


def _frozen(pages: Pages) -> Pages:
    pages.flags.writeable = False
    return pages
