"""A journal as a dict: what a restart could adopt, by host page."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from radixd.server.cache.chain import ROOT, chain_names
from radixd.server.cache.host_log import Kept, Lost
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds


class Entry(NamedTuple):
    """One host page: its name, the name of the page before it, and its key elements."""

    namespace: Namespace
    parent: bytes
    name: bytes
    key: bytes


class HostJournal:
    """Follows what a cache says of its host tier."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}

    def write(self, records: Iterable[Kept | Lost]) -> None:
        for record in records:
            pages = record.host_pages.tolist()
            if isinstance(record, Lost):
                for page in pages:
                    del self.entries[page]
                continue
            width, parent = len(record.key) // len(pages), record.parent
            for at, (page, name) in enumerate(
                zip(pages, chain_names(record.parent, record.key, len(pages)), strict=True)
            ):
                assert page not in self.entries, f"host page {page} is kept anew and was never lost"
                self.entries[page] = Entry(record.namespace, parent, name, record.key[at * width : (at + 1) * width])
                parent = name

    def paths(self) -> Iterator[tuple[Namespace, bytes, PageIds]]:
        """From the root to each page without a successor: what of the journal can be reached."""
        below: dict[tuple[Namespace, bytes], list[tuple[int, Entry]]] = {}
        for page, entry in self.entries.items():
            below.setdefault((entry.namespace, entry.parent), []).append((page, entry))
        stack: list[tuple[Namespace, bytes, bytes, list[int]]] = [
            (namespace, ROOT, b"", []) for namespace, parent in below if parent == ROOT
        ]
        while stack:
            namespace, name, key, pages = stack.pop()
            following = below.get((namespace, name), [])
            if pages and not following:
                yield namespace, key, np.array(pages, np.int32)
            stack += [(namespace, it.name, key + it.key, [*pages, page]) for page, it in following]

    def restarted(self) -> "HostJournal":
        """What a journal holds once a restart has adopted all that it could reach."""
        new = HostJournal()
        for _, _, pages in self.paths():
            new.entries |= {page: self.entries[page] for page in pages.tolist()}
        return new
