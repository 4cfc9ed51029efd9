"""What the cache's verbs return: frozen, and cheap to make; without reference to the cache's state."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PageIds = NDArray[np.int32]
NO_PAGES: PageIds = np.empty(0, np.int32)


class MatchResult(NamedTuple):
    """Lengths of the longest reusable prefix."""

    device_tokens: int
    host_tokens: int  # beyond them: on the host, or on their way from there
    unlocked_pages: int
    rollback_tokens: int
    peer_tokens: int  # beyond all these: on their way from another pool, or there to be imported
    peer: str  # that pool


class AcquireResult(NamedTuple):
    """A lease that has become active."""

    lease_id: int
    device_tokens: int  # read from the cache, those that are arriving too
    host_tokens: int  # of them, arriving from the host
    peer_tokens: int  # of them, arriving from another pool
    rollback_tokens: int
    pages: PageIds  # the whole page table
    loading: tuple[int, ...]  # copies whose Arrival must come before the engine reads the prefix


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


class CopyKind(StrEnum):
    """Which way a copy between the tiers goes, and for whom."""

    DEMOTE = "demote"  # device to host, for the tree
    PROMOTE = "promote"  # host to device, for the tree
    OFFLOAD = "offload"  # device to host, for a lease
    RESTORE = "restore"  # host to device, for a lease


class CopyPlan(NamedTuple):
    """Pages to copy between the tiers, pair by pair. `PrefixCache.finish_copy` must follow, whatever happens."""

    copy_id: int
    kind: CopyKind
    device_pages: PageIds
    host_pages: PageIds


class ImportPlan(NamedTuple):
    """Pages to copy from another pool's device, pair by pair.

    `PrefixCache.finish_copy` must follow in both caches, whatever happens: of `copy_id` here, of `loan_id` there.
    """

    copy_id: int
    peer: str
    loan_id: int
    source_pages: PageIds
    target_pages: PageIds


class Arrival(NamedTuple):
    """A copy that a lease waited for has ended: its bytes up to `device_tokens` can be read.

    With an error, that is less than was promised; `patches` then replace pages that would have been the tree's.
    """

    lease_id: int
    copy_id: int
    device_tokens: int
    patches: tuple[TablePatch, ...]
    error: str


class Saved(NamedTuple):
    """An Offload has ended: without an error, the lease is on the host and its device pages are given up."""

    lease_id: int
    error: str


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


class HostOccupancy(NamedTuple):
    """The host tier's ledger in pages; total = free + evictable + protected + leased."""

    total: int
    free: int
    evictable: int
    protected: int
    leased: int  # saved for offloaded leases, or under a copy
