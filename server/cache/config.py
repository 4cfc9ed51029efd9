"""What a cache is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from radixd.server.cache.policy import POLICIES
from radixd.server.cache.speculative import Speculative


class WritePolicy(StrEnum):
    """When a node is copied to the host tier."""

    WRITE_BACK = "write_back"  # when it is about to be evicted
    WRITE_THROUGH = "write_through"  # when it is published
    WRITE_THROUGH_SELECTIVE = "write_through_selective"  # when it is hit for the second time


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """One pool's size and rules. `pages` are usable ones, page 0 aside; ids run from 1 to `pages`."""

    pages: int
    page_size: int = 64  # tokens
    policy: str = "priority"
    speculative: Speculative = Speculative.NONE
    max_tokens: int = 1_572_864  # known to one lease
    max_leases: int = 65_536  # of one session
    max_move_pairs: int = 4_096
    host_pages: int = 0  # of the host tier; 0: none
    write_policy: WritePolicy = WritePolicy.WRITE_BACK
    promote_min_pages: int = 2  # fewer host pages than this are computed again rather than copied
    free_target_pages: int = 0  # device pages that write_back keeps free
    max_copy_pages: int = 4_096  # under copies to the host at once; beyond it, eviction drops
    import_min_pages: int = 4
    """Fewer pages more than the pool has itself are computed, not imported from a peer.

    An import's bytes are cheap, a page of GLM-5.3 is 3.3 MiB, and so microseconds of NVLink. What it costs is the wait:
    its end is told in a later reply, so computing begins a step, some tens of ms, later. A prefill rank computes
    10,000 tokens/s or so, four pages in 25 ms.
    """

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ValueError(f"pages: {self.pages} is too few; a pool has at least 1 usable page")
        if self.page_size < 1:
            raise ValueError(f"page_size: {self.page_size} must be at least 1 token")
        if self.import_min_pages < 1:
            raise ValueError(f"import_min_pages: {self.import_min_pages} must be at least 1 page")
        if self.policy not in POLICIES:
            raise ValueError(f"policy: {self.policy!r} is none of {', '.join(POLICIES)}")
