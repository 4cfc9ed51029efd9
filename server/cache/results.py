"""What the cache's verbs return: frozen, and cheap to make; without reference to the cache's state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PageIds = NDArray[np.int32]
NO_PAGES: PageIds = np.empty(0, np.int32)


class MatchResult(NamedTuple):
    """Lengths of the longest reusable prefix."""

    device_tokens: int
    unlocked_pages: int
    rollback_tokens: int


class AcquireResult(NamedTuple):
    """A lease that has become active."""

    lease_id: int
    device_tokens: int
    rollback_tokens: int
    pages: PageIds  # the whole page table


class AllocateResult(NamedTuple):
    """How far the table reaches, and what was appended."""

    allocated: int
    pages: PageIds  # those appended


class TablePatch(NamedTuple):
    """From table index `first_page` on, `pages` replace the lease's own."""

    first_page: int
    pages: PageIds


class InsertResult(NamedTuple):
    """What is in the tree now, and whether more will follow."""

    published: int
    pending: bool
    patches: tuple[TablePatch, ...]


class Publication(NamedTuple):
    """An Insert whose `after_step` has completed."""

    lease_id: int
    published: int
    patches: tuple[TablePatch, ...]


class FreeResult(NamedTuple):
    """What is left, and what was given up."""

    allocated: int
    freed_pages: int


class ReleaseResult(NamedTuple):
    """What the lease leaves in the tree, and what it gave up."""

    published: int
    freed_pages: int


class MovePlan(NamedTuple):
    """Bytes to move outside the cache: `PrefixCache.finish_copy(copy_id, …)` must follow, whatever happens."""

    copy_id: int
    sources: PageIds  # slot ids
    destinations: PageIds  # slot ids


class FinishedCopy(NamedTuple):
    """A copy plan that has ended."""

    copy_id: int
    error: str  # empty: the bytes are in place


class FlushResult(NamedTuple):
    """A new generation, and what became of the old one's pages."""

    generation: int
    freed_pages: int
    detached_pages: int


class Occupancy(NamedTuple):
    """One tier's ledger in pages; total = free + evictable + protected + leased + retired. See types.proto."""

    total: int
    free: int
    evictable: int
    protected: int
    leased: int
    retired: int
    retired_mine: int
    in_copy: int
    reserved_mine: int
    reserved_others: int
    available: int
    max_fit: int
