"""The first bytes of a journal: which data file and which pool it speaks of."""

import struct
from dataclasses import dataclass
from enum import StrEnum

import xxhash

MAGIC = b"radixdJ\n"
GIVEN_UP = b"radixdX\n"
"""Stands in MAGIC's place, with the reason behind it, in a journal that its own daemon has made void."""
VERSION = 1
NONCE_BYTES = 16

_PREFIX = struct.Struct("<8sI")  # the same in every version
_BODY = struct.Struct("<8sI16s16sQIIIQ")
_CHECK = struct.Struct("<Q")
HEADER_BYTES = _BODY.size + _CHECK.size


class Verdict(StrEnum):
    """What a start-up found in a state directory."""

    WARM = "warm"
    NEW = "new"
    UNREADABLE = "unreadable"
    GIVEN_UP = "given_up"
    DAMAGED = "damaged"
    FORMAT = "format"
    GEOMETRY = "geometry"
    OTHER_DATA = "other_data"


class Unusable(Exception):
    """A journal of which nothing may be adopted: `verdict` for programs, the message for people."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Header:
    """What must agree before a page is adopted. Nothing of the device layout is in it: host pages do not know it."""

    nonce: bytes
    """16 bytes that the data file carries too."""
    fingerprint: bytes
    """16 bytes: Geometry.fingerprint."""
    page_bytes: int
    page_size: int
    """Tokens."""
    host_pages: int
    """Usable ones; ids run from 1 to `host_pages`."""
    element_bytes: int
    """Bytes of one key element: 4 for tokens, 8 for the pairs of bigram mode."""
    epoch: int
    """Of the daemon that began this file. May differ."""

    @property
    def key_page_bytes(self) -> int:
        """Key bytes of one page."""
        return self.page_size * self.element_bytes

    @property
    def record_seed(self) -> int:
        """Seed of the records' checksums: no other journal's record passes in this one."""
        return int.from_bytes(self.nonce[:8], "little")

    def encode(self) -> bytes:
        """HEADER_BYTES bytes."""
        body = _BODY.pack(
            MAGIC,
            VERSION,
            self.nonce,
            self.fingerprint,
            self.page_bytes,
            self.page_size,
            self.host_pages,
            self.element_bytes,
            self.epoch,
        )
        return body + _CHECK.pack(xxhash.xxh3_64_intdigest(body))

    @classmethod
    def decode(cls, data: bytes) -> "Header":
        """The header that `data` begins with. Raises Unusable."""
        if data.startswith(GIVEN_UP):
            reason = data[len(GIVEN_UP) :].decode("utf-8", "replace").strip()
            raise Unusable(Verdict.GIVEN_UP, f"the daemon before gave its journal up: {reason or 'no reason recorded'}")
        if not data:
            raise Unusable(Verdict.GIVEN_UP, "the journal is empty: the daemon before gave it up")
        if len(data) < _PREFIX.size or not data.startswith(MAGIC):
            raise Unusable(Verdict.DAMAGED, "the file does not begin like a journal of radixd")
        _, version = _PREFIX.unpack_from(data)
        if version != VERSION:
            raise Unusable(Verdict.FORMAT, f"the journal's format is {version}, and this radixd reads {VERSION} alone")
        if len(data) < HEADER_BYTES:
            raise Unusable(Verdict.DAMAGED, f"the journal ends at byte {len(data)}, within its header")
        (check,) = _CHECK.unpack_from(data, _BODY.size)
        if check != xxhash.xxh3_64_intdigest(data[: _BODY.size]):
            raise Unusable(Verdict.DAMAGED, "the journal's header does not match its checksum")
        _, _, *fields = _BODY.unpack_from(data)
        return cls(*fields)

    def check(self, wanted: "Header") -> None:
        """Raises Unusable where a pool that is `wanted` cannot adopt what this journal speaks of."""
        for name, found, expected in (
            ("geometry fingerprint", self.fingerprint.hex(), wanted.fingerprint.hex()),
            ("bytes of a page", self.page_bytes, wanted.page_bytes),
            ("page_size", self.page_size, wanted.page_size),
            ("bytes of a key element", self.element_bytes, wanted.element_bytes),
        ):
            if found != expected:
                raise Unusable(Verdict.GEOMETRY, f"{name}: the journal has {found}, the pool {expected}")
        if self.host_pages > wanted.host_pages:
            message = f"the host tier has shrunk from {self.host_pages} pages to {wanted.host_pages}"
            raise Unusable(Verdict.GEOMETRY, message)
        if self.nonce != wanted.nonce:
            message = "the data file beside the journal is not the one it was written for (their nonces differ)"
            raise Unusable(Verdict.OTHER_DATA, message)
