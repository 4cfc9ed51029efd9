"""The replies that a session may ask for again."""

from typing import NamedTuple

from radixd.server.cache.refusal import Reason, Refusal

Reply = bytes | Refusal
"""A recorded answer: the message as it goes over the wire, or why the one operation of a unary call was refused."""

REFUSAL_BYTES = 1_024
"""What a recorded refusal counts for."""


class Kept(NamedTuple):
    """A reply and the digest of the request that it answers."""

    digest: bytes
    reply: Reply


class ReplyWindow:
    """Replies by seq, until they are acknowledged or pushed out by `batches` or `byte_limit` newer ones."""

    def __init__(self, batches: int, byte_limit: int):
        self.next_seq = 1
        self._batches = batches
        self._byte_limit = byte_limit
        self._kept: dict[int, Kept] = {}
        self._bytes = 0

    def find(self, seq: int, digest: bytes) -> Reply | None:
        """The reply already given to `seq`; None where `seq` is the next. Refuses every other seq."""
        if seq == self.next_seq:
            return None
        if seq > self.next_seq or seq < 1:
            message = f"call.seq: {seq} is out of line, the session's next Batch is {self.next_seq}"
            raise Refusal(Reason.BAD_FIELD, message, field="call.seq", facts={"next_seq": self.next_seq})
        kept = self._kept.get(seq)
        if kept is None:
            message = f"call.seq: the reply to {seq} is no longer kept; the session's next Batch is {self.next_seq}"
            raise Refusal(Reason.SEQ_EXPIRED, message, field="call.seq", facts={"next_seq": self.next_seq})
        if kept.digest != digest:
            message = f"call.seq: {seq} was used for other bytes; the session's next Batch is {self.next_seq}"
            raise Refusal(Reason.SEQ_REUSED, message, field="call.seq", facts={"next_seq": self.next_seq})
        return kept.reply

    def record(self, digest: bytes, reply: Reply) -> None:
        """Keeps the reply to the next seq, and drops the oldest beyond the window."""
        self._kept[self.next_seq] = Kept(digest, reply)
        self._bytes += _size(reply)
        self.next_seq += 1
        while len(self._kept) > self._batches or (self._bytes > self._byte_limit and len(self._kept) > 1):
            self._drop_oldest()

    def acknowledge(self, ack: int) -> None:
        """Drops the replies up to `ack`: the client has them."""
        while self._kept and next(iter(self._kept)) <= ack:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._kept.pop(next(iter(self._kept)))
        self._bytes -= _size(oldest.reply)


def _size(reply: Reply) -> int:
    return len(reply) if isinstance(reply, bytes) else REFUSAL_BYTES
