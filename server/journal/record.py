"""A journal's records: what each says, and how it stands in the file.

A record is `check u64 | length u32 | kind u8 | body`, all little-endian; `check` is the xxh3-64 of what follows it,
seeded by the journal's nonce.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import xxhash
from numpy.typing import NDArray

from radixd.server.cache.chain import CHAIN_BYTES, chain_names
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds
from radixd.server.journal.header import HEADER_BYTES, Header

_CHECK = struct.Struct("<Q")
_FRAME = struct.Struct("<IB")
_NAMESPACE = struct.Struct("<IIII")
_LIVE = struct.Struct(f"<II{CHAIN_BYTES}s")


class Kind(IntEnum):
    """What a record is."""

    NAMESPACE = 1
    LIVE = 2
    DEAD = 3
    CLEAN = 4


class BadRecord(Exception):
    """Bytes that are no record, or one that cannot be; the message says where and why."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset}: {reason}")


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """From here on `number` stands for `namespace`."""

    number: int
    namespace: Namespace

    def encode(self) -> bytes:
        parts = (self.namespace.model, self.namespace.extra_key, self.namespace.cache_salt)
        return _NAMESPACE.pack(self.number, *map(len, parts)) + b"".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class LiveRecord:
    """A run of pages, one behind the other, from the page called `parent` on."""

    namespace: int
    parent: bytes
    checksums: NDArray[np.uint64]
    host_pages: PageIds
    key: bytes

    def encode(self) -> bytes:
        front = _LIVE.pack(self.namespace, len(self.host_pages), self.parent)
        return front + self.checksums.astype("<u8").tobytes() + self.host_pages.astype("<i4").tobytes() + self.key

    @property
    def names(self) -> list[bytes]:
        """The pages' chain hashes."""
        return chain_names(self.parent, self.key, len(self.host_pages))

    def where(self, mask: NDArray[np.bool_]) -> Iterator["LiveRecord"]:
        """The runs of those pages for which `mask` is true."""
        if mask.all():
            yield self
            return
        parents, step = [self.parent, *self.names], len(self.key) // len(self.host_pages)
        edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)
        for start, stop in edges.tolist():
            yield LiveRecord(
                self.namespace,
                parents[start],
                self.checksums[start:stop],
                self.host_pages[start:stop],
                self.key[start * step : stop * step],
            )


@dataclass(frozen=True, slots=True, eq=False)
class DeadRecord:
    """These pages hold nothing any more."""

    host_pages: PageIds

    def encode(self) -> bytes:
        return self.host_pages.astype("<i4").tobytes()


@dataclass(frozen=True, slots=True)
class CleanRecord:
    """The daemon ended in order. Last of its file."""

    def encode(self) -> bytes:
        return b""


Record = NamespaceRecord | LiveRecord | DeadRecord | CleanRecord
_KINDS: dict[type[Record], Kind] = {
    NamespaceRecord: Kind.NAMESPACE,
    LiveRecord: Kind.LIVE,
    DeadRecord: Kind.DEAD,
    CleanRecord: Kind.CLEAN,
}


def frame(record: Record, seed: int) -> bytes:
    """The record as it stands in a file whose header has `record_seed` seed."""
    body = record.encode()
    checked = _FRAME.pack(len(body), _KINDS[type(record)]) + body
    return _CHECK.pack(xxhash.xxh3_64_intdigest(checked, seed=seed)) + checked


def read_records(data: bytes, header: Header) -> Iterator[tuple[int, int, Record]]:
    """The records of a journal's bytes, with the offsets of their first byte and of the next record's.

    Raises BadRecord at the first that is none, which is where a journal ends that was torn.
    """
    offset, view = HEADER_BYTES, memoryview(data)
    while offset < len(data):
        checked = offset + _CHECK.size
        body = checked + _FRAME.size
        if body > len(data):
            raise BadRecord(offset, f"a record is cut off after {len(data) - offset} bytes")
        length, kind = _FRAME.unpack_from(data, checked)
        if length > len(data) - body:
            raise BadRecord(offset, f"a record of {length} bytes reaches beyond the end of the file")
        (check,) = _CHECK.unpack_from(data, offset)
        if check != xxhash.xxh3_64_intdigest(view[checked : body + length], seed=header.record_seed):
            raise BadRecord(offset, "a record does not match its checksum")
        try:
            record = _decode(kind, data[body : body + length], header)
        except (ValueError, struct.error) as error:
            raise BadRecord(offset, str(error)) from error
        yield offset, body + length, record
        offset = body + length


def _decode(kind: int, body: bytes, header: Header) -> Record:
    match Kind(kind):
        case Kind.NAMESPACE:
            return _namespace(body)
        case Kind.LIVE:
            return _live(body, header)
        case Kind.DEAD:
            return DeadRecord(_pages(body, header))
        case Kind.CLEAN:
            return CleanRecord()


def _namespace(body: bytes) -> NamespaceRecord:
    number, *lengths = _NAMESPACE.unpack_from(body)
    if _NAMESPACE.size + sum(lengths) != len(body):
        raise ValueError("a namespace's parts do not fill its record")
    at, parts = _NAMESPACE.size, []
    for length in lengths:
        parts.append(body[at : at + length])
        at += length
    return NamespaceRecord(number, Namespace(*parts))


def _live(body: bytes, header: Header) -> LiveRecord:
    namespace, count, parent = _LIVE.unpack_from(body)
    pages = _LIVE.size + 8 * count
    key = pages + 4 * count
    if not count or key + count * header.key_page_bytes != len(body):
        raise ValueError(f"a run of {count} pages does not fill its record")
    host_pages = _pages(body[pages:key], header)
    if len(set(host_pages.tolist())) != count:
        raise ValueError("a host page stands twice in one run")
    return LiveRecord(namespace, parent, np.frombuffer(body, "<u8", count, _LIVE.size), host_pages, body[key:])


def _pages(body: bytes, header: Header) -> PageIds:
    pages = np.frombuffer(body, "<i4")
    if len(pages) and not 1 <= pages.min() <= pages.max() <= header.host_pages:
        raise ValueError(f"a host page is outside [1, {header.host_pages}]")
    return pages
