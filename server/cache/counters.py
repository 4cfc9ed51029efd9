"""What a pool has done since its epoch began. Every figure only rises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Plain figures, read by whoever shows them."""

    requested_tokens: int = 0  # known to leases when they were acquired
    hit_tokens: int = 0  # of those, read from the cache
    inserted_pages: int = 0  # adopted by the tree
    duplicate_pages: int = 0  # published while the tree held the same tokens already
    evicted_pages: int = 0
    flushed_pages: int = 0
    expired_priorities: int = 0
    host_hit_tokens: int = 0  # of hit_tokens, those that came, or were to come, from the host
    demoted_pages: int = 0  # left the device for the host
    demote_skipped_busy: int = 0  # not copied: too many pages under copies
    demote_skipped_outrun: int = 0  # not copied: evicted for a lease before a copy could begin
    demote_skipped_full: int = 0  # not copied: no host page to be had
    demote_failed_pages: int = 0
    promoted_pages: int = 0
    promote_failed_pages: int = 0
    offloaded_pages: int = 0
    restored_pages: int = 0
