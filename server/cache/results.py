"""What the cache's verbs return: frozen, without reference to the cache's state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

PageIds = NDArray[np.int32]
NO_PAGES: PageIds = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Lengths of the longest reusable prefix."""

    device_tokens: int
    host_tokens: int  # beyond them: on the host, or on their way from there
    unlocked_pages: int
    rollback_tokens: int


@dataclass(frozen=True, slots=True)
class AcquireResult:
    """A lease that has become active."""

    lease_id: int
    device_tokens: int  # read from the cache, those that are arriving too
    host_tokens: int  # of them, arriving from the host
    rollback_tokens: int
    pages: PageIds  # the whole page table
    loading: tuple[int, ...]  # copies whose Arrival must come before the engine reads the prefix


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


class CopyKind(StrEnum):
    """Which way a copy between the tiers goes, and for whom."""

    DEMOTE = "demote"  # device to host, for the tree
    PROMOTE = "promote"  # host to device, for the tree
    OFFLOAD = "offload"  # device to host, for a lease
    RESTORE = "restore"  # host to device, for a lease


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Pages to copy between the tiers, pair by pair. `PrefixCache.finish_copy(copy_id, …)` must follow, whatever happens."""

    copy_id: int
    kind: CopyKind
    device_pages: PageIds
    host_pages: PageIds


@dataclass(frozen=True, slots=True)
class Arrival:
    """A copy that a lease waited for has ended: its bytes up to `device_tokens` can be read.

    With an error, that is less than was promised; `patches` then replace pages that would have been the tree's.
    """

    lease_id: int
    copy_id: int
    device_tokens: int
    patches: tuple[TablePatch, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Saved:
    """An Offload has ended: without an error, the lease is on the host and its device pages are given up."""

    lease_id: int
    error: str


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
    """The device tier's ledger in pages; total = free + evictable + protected + leased + retired. See types.proto."""

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


@dataclass(frozen=True, slots=True)
class HostOccupancy:
    """The host tier's ledger in pages; total = free + evictable + protected + leased."""

    total: int
    free: int
    evictable: int
    protected: int
    leased: int  # saved for offloaded leases, or under a copy
