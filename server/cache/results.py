"""What the cache's verbs return: frozen, without reference to the cache's state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PageIds = NDArray[np.int32]
NO_PAGES: PageIds = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Lengths of the longest reusable prefix."""

    device_tokens: int
    unlocked_pages: int
    rollback_tokens: int


@dataclass(frozen=True, slots=True)
class AcquireResult:
    """A lease that has become active."""

    lease_id: int
    device_tokens: int
    rollback_tokens: int
    pages: PageIds  # the whole page table


@dataclass(frozen=True, slots=True)
class AllocateResult:
    """How far the table reaches, and what was appended."""

    allocated: int
    pages: PageIds  # those appended


@dataclass(frozen=True, slots=True)
class TablePatch:
    """From table index `first_page` on, `pages` replace the lease's own."""

    first_page: int
    pages: PageIds


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What is in the tree now, and whether more will follow."""

    published: int
    pending: bool
    patches: tuple[TablePatch, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """An Insert whose `after_step` has completed."""

    lease_id: int
    published: int
    patches: tuple[TablePatch, ...]


@dataclass(frozen=True, slots=True)
class FreeResult:
    """What is left, and what was given up."""

    allocated: int
    freed_pages: int


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """What the lease leaves in the tree, and what it gave up."""

    published: int
    freed_pages: int


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Bytes to move outside the cache: `PrefixCache.finish_copy(copy_id, …)` must follow, whatever happens."""

    copy_id: int
    sources: PageIds  # slot ids
    destinations: PageIds  # slot ids


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """A copy plan that has ended."""

    copy_id: int
    error: str  # empty: the bytes are in place


@dataclass(frozen=True, slots=True)
class FlushResult:
    """A new generation, and what became of the old one's pages."""

    generation: int
    freed_pages: int
    detached_pages: int


@dataclass(frozen=True, slots=True)
class Occupancy:
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
