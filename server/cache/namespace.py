"""What separates prefixes of equal tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tree of its own. The parts are compared one by one, never joined: no crafted salt reaches another's pages."""

    model: bytes
    extra_key: bytes = b""
    cache_salt: bytes = b""

    def digest(self) -> str:
        """16 hex digits for listings, in which a salt must not be readable."""
        parts = (self.model, self.extra_key, self.cache_salt)
        framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return hashlib.sha256(framed).hexdigest()[:16]
