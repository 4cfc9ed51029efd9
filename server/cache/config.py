"""What a cache is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from radixd.server.cache.policy import POLICIES
from radixd.server.cache.speculative import Speculative


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

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ValueError(f"pages: {self.pages} is too few; a pool has at least 1 usable page")
        if self.page_size < 1:
            raise ValueError(f"page_size: {self.page_size} must be at least 1 token")
        if self.policy not in POLICIES:
            raise ValueError(f"policy: {self.policy!r} is none of {', '.join(POLICIES)}")
