"""What a client opens a session with."""

from dataclasses import dataclass

from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative


@dataclass(frozen=True, slots=True)
class Opening:
    """The content of OpenSession. Equal openings under one nonce are one session."""

    pool: str  # empty: the daemon's only pool
    client_name: str
    nonce: bytes
    model: bytes
    geometry_fingerprint: bytes  # empty: the pool's
    speculative: Speculative | None  # None: the pool's
    dedup: Dedup
