"""A lease's tokens: what came with the request, and what was appended since."""

from __future__ import annotations

from radixd.server.cache.refusal import Reason, Refusal

TOKEN_BYTES = 4


def count_tokens(tokens: bytes) -> int:
    """Number of tokens in little-endian uint32 memory."""
    count, rest = divmod(len(tokens), TOKEN_BYTES)
    if rest:
        message = f"tokens: {len(tokens)} bytes are no whole number of tokens; send 4 bytes (little-endian uint32) each"
        raise Refusal(Reason.BAD_FIELD, message, field="tokens")
    return count


class TokenBuffer:
    """Append-only flat uint32 tokens. A prompt of megabytes is kept as it came off the wire, never copied."""

    __slots__ = ("_appended", "_prompt")

    def __init__(self, prompt: bytes):
        self._prompt = prompt
        self._appended = bytearray()

    def __len__(self) -> int:
        return (len(self._prompt) + len(self._appended)) // TOKEN_BYTES

    def append(self, tokens: bytes) -> None:
        self._appended += tokens

    def truncate(self, length: int) -> None:
        kept = length * TOKEN_BYTES - len(self._prompt)
        if kept >= 0:
            del self._appended[kept:]
        else:
            self._prompt = self._prompt[: length * TOKEN_BYTES]
            self._appended.clear()

    def shrink(self, length: int) -> None:
        """Lets go of all but the first `length` tokens where those are less than half: less is not worth a copy."""
        if 2 * length < len(self):
            self.truncate(length)

    def read(self, start: int, stop: int) -> bytes:
        """Tokens [start, stop) as bytes; the whole prompt itself where just that is asked for."""
        first, last, split = start * TOKEN_BYTES, stop * TOKEN_BYTES, len(self._prompt)
        if last <= split:
            return self._prompt if first == 0 and last == split else self._prompt[first:last]
        if first >= split:
            return bytes(self._appended[first - split : last - split])
        return self._prompt[first:] + bytes(self._appended[: last - split])
