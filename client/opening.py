"""What a session is opened with."""

import os
from dataclasses import dataclass

from radixd.client.arguments import choice, octets, text
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
        """A new session's request. Send the very same one again where its outcome is unknown: its nonce acts once.

        Raises BadField.
        """
        speculative = types_pb2.SPECULATIVE_MODE_UNSPECIFIED
        if self.speculative is not None:
            speculative = SPECULATIVE[choice("speculative", self.speculative, SPECULATIVE)]
        return session_pb2.OpenSessionRequest(
            pool=text("pool", self.pool),
            client_name=text("name", self.name),
            nonce=os.urandom(NONCE_BYTES),
            model=octets("model", self.model),
            geometry_fingerprint=octets("fingerprint", self.fingerprint),
            speculative=speculative,
            dedup=DEDUP[choice("dedup", self.dedup, DEDUP)],
        )
