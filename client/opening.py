"""What a session is opened with."""

import os
from dataclasses import dataclass

from radixd.client.convert import DEDUP, SPECULATIVE, Dedup, Speculative
from radixd.v1 import session_pb2, types_pb2

NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Opening:
    """Kept by the session, so that it can open another after a restart."""

    pool: str
    """Empty: the daemon's only pool."""
    name: str
    """A label for people."""
    model: bytes
    """Digest of checkpoint, weights version and KV writer format, 1 to 64 bytes: it parts the namespaces."""
    fingerprint: bytes
    """Of the geometry that the engine writes, 16 bytes. Empty: the pool's, on trust."""
    dedup: Dedup
    speculative: Speculative | None
    """None: the pool's."""

    def request(self) -> session_pb2.OpenSessionRequest:
        """A new session's request. Send the very same one again where its outcome is unknown: its nonce acts once."""
        if self.dedup not in DEDUP:
            raise ValueError(f"dedup: {self.dedup!r} is none of {', '.join(DEDUP)}")
        if self.speculative is not None and self.speculative not in SPECULATIVE:
            raise ValueError(f"speculative: {self.speculative!r} is none of {', '.join(SPECULATIVE)}")
        return session_pb2.OpenSessionRequest(
            pool=self.pool,
            client_name=self.name,
            nonce=os.urandom(NONCE_BYTES),
            model=self.model,
            geometry_fingerprint=self.fingerprint,
            speculative=SPECULATIVE[self.speculative] if self.speculative else types_pb2.SPECULATIVE_MODE_UNSPECIFIED,
            dedup=DEDUP[self.dedup],
        )
