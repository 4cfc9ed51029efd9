"""A host tier that keeps its promises to a journal, and what it expects to find again."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import xxhash

from radixd.server.cache.chain import ROOT, chain_names
from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds
from radixd.server.journal.header import NONCE_BYTES, Header
from radixd.server.journal.journal import COMPACT_BYTES, Journal
from radixd.server.journal.recovery import Recovered, recover
from radixd.server.journal.seal import Checksums, seal
from radixd.server.journal.stamp import read_stamp, write_stamp

PAGE_BYTES = 96
PAGE_SIZE = 2
KEY_PAGE = PAGE_SIZE * 4
FINGERPRINT = b"tiny geometry 00"
NAMESPACE = Namespace(b"model", b"", b"salt")

Prefix = tuple[Namespace, bytes]


def ids(*pages: int) -> PageIds:
    return np.array(pages, np.int32)


def key_of(*pages: int) -> bytes:
    """A key whose pages are told apart by these numbers."""
    return np.repeat(np.array(pages, "<u4"), PAGE_SIZE).tobytes()


def page_bytes(prefix: Prefix) -> bytes:
    """What a page at the end of `prefix` holds: no two alike."""
    namespace, key = prefix
    return xxhash.xxh3_128_digest(namespace.digest().encode() + key) * (PAGE_BYTES // 16)


@dataclass
class Tier:
    """Pages in a file and a journal beside it. `held` is what the journal has been told, by page."""

    directory: Path
    host_pages: int = 16
    compact_bytes: int = COMPACT_BYTES
    epoch: int = 1
    held: dict[int, tuple[int, Prefix]] = field(default_factory=dict)
    _order: Iterable[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        path = self.directory / "host.data"
        shape = (self.host_pages + 1, PAGE_BYTES)
        with path.open("ab") as file:
            file.truncate(shape[0] * shape[1])
        self.pages = np.memmap(path, np.uint8, "r+", shape=shape)
        self.recovered = self.recover()
        write_stamp(self.pages[0].data, self.recovered.header.nonce)
        self.adopted = {prefix: page for page, prefix in adopted(self.recovered, self.pages).items()}
        self.held = {page: (next(iter(self._order)), prefix) for prefix, page in self.adopted.items()}
        self.journal = Journal.start(self.directory, self.recovered, compact_bytes=self.compact_bytes)

    @property
    def header(self) -> Header:
        nonce = read_stamp(self.pages[0].data)
        return Header(nonce, FINGERPRINT, PAGE_BYTES, PAGE_SIZE, self.host_pages, 4, self.epoch)

    def recover(self) -> Recovered:
        """What a start-up finds now."""
        return recover(self.directory, self.header, self.checksums)

    def checksums(self, pages: PageIds, seeds: Checksums) -> Checksums:
        return np.array(
            [xxhash.xxh3_64_intdigest(self.pages[p], s) for p, s in zip(pages.tolist(), seeds.tolist(), strict=True)],
            np.uint64,
        )

    def write(self, namespace: Namespace, before: bytes, key: bytes, pages: PageIds) -> Kept:
        """The bytes of a run behind the prefix `before`, and what is to be said of it."""
        for i, page in enumerate(pages.tolist()):
            prefix = before + key[: (i + 1) * KEY_PAGE]
            self.pages[page] = np.frombuffer(page_bytes((namespace, prefix)), np.uint8)
        names = chain_names(ROOT, before, len(before) // KEY_PAGE) if before else [ROOT]
        return Kept(namespace, names[-1], key, pages)

    def keep(self, before: bytes, key: bytes, pages: PageIds, namespace: Namespace = NAMESPACE) -> None:
        """Stores a run and tells the journal, without a flush."""
        kept = self.write(namespace, before, key, pages)
        ticket = self.journal.expect(kept)
        self.journal.kept(ticket, seal(kept, FINGERPRINT, self.checksums))
        for i, page in enumerate(pages.tolist()):
            self.held[page] = next(iter(self._order)), (namespace, before + key[: (i + 1) * KEY_PAGE])

    def lose(self, pages: PageIds) -> None:
        """Tells the journal, without a flush."""
        self.journal.lost(pages)
        for page in pages.tolist():
            self.held.pop(page, None)

    def compact(self) -> bool:
        """A compaction from begin to end, if one is due."""
        compaction = self.journal.begin_compaction()
        if compaction is None:
            return False
        compaction.run()
        self.journal.finish_compaction(compaction)
        return True


def adopted(recovered: Recovered, pages: np.ndarray) -> dict[int, Prefix]:
    """Every adopted page with its prefix; asserts that its bytes are the right ones."""
    found: dict[int, Prefix] = {}
    for namespace, key, path in recovered.paths():
        assert len(path) * KEY_PAGE == len(key)
        for i, page in enumerate(path.tolist()):
            prefix = namespace, key[: (i + 1) * KEY_PAGE]
            assert found.setdefault(page, prefix) == prefix
            assert pages[page].tobytes() == page_bytes(prefix), f"wrong bytes in page {page}"
    assert len(found) == recovered.pages
    return found


def adoptable(held: dict[int, tuple[int, Prefix]]) -> dict[int, Prefix]:
    """What must be adopted of what is held: whole chains, the latest page of each prefix."""
    latest = {prefix: page for page, (_, prefix) in sorted(held.items(), key=lambda item: item[1][0])}
    return {
        page: (namespace, key)
        for (namespace, key), page in latest.items()
        if all((namespace, key[:end]) in latest for end in range(KEY_PAGE, len(key), KEY_PAGE))
    }


def random_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)
