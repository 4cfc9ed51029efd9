"""How speculation changes what a page is keyed by, and how much of a common prefix may be reused."""

from __future__ import annotations

from enum import StrEnum

import numpy as np


class Speculative(StrEnum):
    """A pool's mode. See SpeculativeMode in types.proto."""

    NONE = "none"
    BIGRAM = "bigram"
    DROP_LAST_PAGE = "drop_last_page"

    @property
    def element_bytes(self) -> int:
        """Bytes of one key element: a token, or the pair of a token and its successor."""
        return 8 if self is Speculative.BIGRAM else 4

    @property
    def lookahead(self) -> int:
        """Tokens after its own that an element is made of."""
        return 1 if self is Speculative.BIGRAM else 0

    def key(self, tokens: bytes) -> bytes:
        """Key elements of little-endian uint32 tokens: themselves, or len − 1 overlapping pairs.

        Keying by pairs makes "reusable only if the token after it matches too" a plain prefix match.
        """
        if self is not Speculative.BIGRAM:
            return tokens
        units = np.frombuffer(tokens, dtype="<u4")
        if len(units) < 2:
            return b""
        pairs = np.empty((len(units) - 1, 2), dtype="<u4")
        pairs[:, 0] = units[:-1]
        pairs[:, 1] = units[1:]
        return pairs.tobytes()

    def publishable(self, written: int, known: int) -> int:
        """Tokens that may be published, before flooring to pages."""
        return min(written, known - self.lookahead)

    def rollback_pages(self, matched_pages: int) -> int:
        """Matched pages that must be recomputed all the same."""
        return min(1, matched_pages) if self is Speculative.DROP_LAST_PAGE else 0
