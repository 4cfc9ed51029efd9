"""What a worker process needs to attach in a session's name."""

import json
from dataclasses import dataclass, field
from typing import Self

from radixd.gpu_pool import fields


@dataclass(frozen=True, slots=True)
class AttachTicket:
    """Small, and safe to pickle or to send as JSON to a worker; it carries the session's secret, so to nobody else."""

    attach_socket: str
    session_id: int
    secret: bytes = field(repr=False)
    epoch: int
    geometry_fingerprint: bytes
    """Of the geometry that the session agreed to, 16 bytes."""

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it back."""
        return json.dumps(
            {
                "attach_socket": self.attach_socket,
                "session_id": self.session_id,
                "secret": self.secret.hex(),
                "epoch": self.epoch,
                "geometry_fingerprint": self.geometry_fingerprint.hex(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A ticket from `to_json`'s text. Raises ValueError naming the field at fault."""
        data = fields.mapping(json.loads(text), "ticket")
        return cls(
            attach_socket=fields.text(data, "attach_socket", "ticket."),
            session_id=fields.integer(data, "session_id", "ticket.", high=2**64 - 1),
            secret=bytes.fromhex(fields.text(data, "secret", "ticket.")),
            epoch=fields.integer(data, "epoch", "ticket.", high=2**64 - 1),
            geometry_fingerprint=bytes.fromhex(fields.text(data, "geometry_fingerprint", "ticket.")),
        )
