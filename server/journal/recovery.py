"""What a start-up adopts: pages that a journal holds, that verify, and whose whole prefix does."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.chain import ROOT
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds
from radixd.server.journal.header import NONCE_BYTES, Header, Unusable, Verdict
from radixd.server.journal.replay import Replay, live_runs, replay
from radixd.server.journal.seal import ReadChecksums, page_seeds

JOURNAL = "journal"
"""The file's name in its directory."""
_BATCH_PAGES = 64
_THREADS = 4

Progress = Callable[[int, int], None]
"""Pages verified so far, and pages in all."""


class _Page(NamedTuple):
    namespace: int
    parent: bytes
    name: bytes
    key: bytes
    host_page: int
    seed: int
    checksum: int


@dataclass(slots=True)
class Dropped:
    """Live pages of the journal that are not adopted, by reason."""

    checksum: int = 0
    """Their bytes are not those that were sealed."""
    duplicate: int = 0
    """Another page holds the same prefix."""
    orphan: int = 0
    """A page before them is missing."""
    discarded: int = 0
    """The cache had no use for them."""


class Recovered:
    """The outcome of a start-up. A cold one has no pages, and `reason` says why it is cold."""

    def __init__(self, header: Header, verdict: Verdict, reason: str) -> None:
        self.header = header
        """What the next journal begins with. A cold start has a fresh nonce: stamp the data file with it."""
        self.verdict = verdict
        self.reason = reason
        self.clean = False
        """The daemon before had ended in order."""
        self.bad = ""
        """Where the journal ended early, and why; what it said before counts."""
        self.dropped = Dropped()
        self.data = b""
        """The journal's good bytes."""
        self.live: NDArray[np.int64] = np.zeros(header.host_pages + 1, np.int64)
        """The record of each adopted page, as in Replay."""
        self._namespaces: dict[int, Namespace] = {}
        self._below: dict[tuple[int, bytes], list[_Page]] = {}

    @property
    def pages(self) -> int:
        """How many are adopted."""
        return int(np.count_nonzero(self.live))

    def paths(self) -> Iterator[tuple[Namespace, bytes, PageIds]]:
        """Every leaf's whole prefix: namespace, key elements from the root, host pages.

        A page stands in as many paths as pass through it.
        """
        for number, namespace in self._namespaces.items():
            key, pages = bytearray(), list[int]()
            for page, depth, leaf in self._walk(number):
                del key[depth * self.header.key_page_bytes :], pages[depth:]
                key += page.key
                pages.append(page.host_page)
                if leaf:
                    yield namespace, bytes(key), np.array(pages, np.int32)

    def discard(self, host_pages: PageIds) -> None:
        """These have not been adopted after all. Before Journal.start."""
        self.dropped.discarded += int(np.count_nonzero(self.live[host_pages]))
        self.live[host_pages] = 0

    def _walk(self, namespace: int) -> Iterator[tuple[_Page, int, bool]]:
        """Each page behind the one before it, with its depth and whether none is behind it."""
        stack = [(page, 0) for page in self._below.get((namespace, ROOT), ())]
        while stack:
            page, depth = stack.pop()
            below = self._below.get((namespace, page.name), ())
            yield page, depth, not below
            stack.extend((child, depth + 1) for child in below)

    def _adopt(self, data: bytes, state: Replay, read: ReadChecksums, progress: Progress) -> None:
        self.data, self.clean, self.bad = data[: state.end], state.clean, state.bad
        first: dict[Namespace, int] = {}
        merged = {number: first.setdefault(namespace, number) for number, namespace in state.namespaces.items()}
        self._namespaces = {number: namespace for namespace, number in first.items()}

        pages = list(_live_pages(self.data, self.header, state, merged))
        verified = _verify(pages, read, progress)
        unique = {(page.namespace, page.name): page for page in verified}  # the last said is the one that counts
        for page in unique.values():
            self._below.setdefault((page.namespace, page.parent), []).append(page)
        for number in self._namespaces:
            for page, _, _ in self._walk(number):
                self.live[page.host_page] = state.live[page.host_page]

        self.dropped.checksum = len(pages) - len(verified)
        self.dropped.duplicate = len(verified) - len(unique)
        self.dropped.orphan = len(unique) - self.pages


def recover(
    directory: Path, wanted: Header, read: ReadChecksums, progress: Progress = lambda done, total: None
) -> Recovered:
    """Reads the journal in `directory` for a pool that is `wanted`, whose nonce is the data file's (see stamp).

    Verifies every page that it adopts, on a few threads; `read` is called on these. Never raises for what it
    finds on the disk: what cannot be used makes a cold start with its reason. Blocks; writes nothing.
    """
    try:
        data = read_journal(directory)
        Header.decode(data).check(wanted)
    except Unusable as cold:
        return Recovered(replace(wanted, nonce=os.urandom(NONCE_BYTES)), cold.verdict, str(cold))
    recovered = Recovered(wanted, Verdict.WARM, "")
    recovered._adopt(data, replay(data, wanted), read, progress)
    return recovered


def read_journal(directory: Path) -> bytes:
    """The whole file. Raises Unusable."""
    path = directory / JOURNAL
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Unusable(Verdict.NEW, f"there is no journal at {path}") from None
    except OSError as error:
        raise Unusable(Verdict.UNREADABLE, f"the journal cannot be read: {error}") from error


def _live_pages(data: bytes, header: Header, state: Replay, merged: dict[int, int]) -> Iterator[_Page]:
    for run in live_runs(data, header, state.live):
        names, step = run.names, header.key_page_bytes
        seeds = page_seeds(header.fingerprint, state.namespaces[run.namespace], names).tolist()
        pages, checksums = run.host_pages.tolist(), run.checksums.tolist()
        for i, name in enumerate(names):
            parent, key = names[i - 1] if i else run.parent, run.key[i * step : (i + 1) * step]
            yield _Page(merged[run.namespace], parent, name, key, pages[i], seeds[i], checksums[i])


def _verify(pages: list[_Page], read: ReadChecksums, progress: Progress) -> list[_Page]:
    """Those whose bytes are what was sealed, in the same order."""

    def right(batch: list[_Page]) -> list[_Page]:
        found = read(
            np.array([page.host_page for page in batch], np.int32), np.array([page.seed for page in batch], np.uint64)
        )
        return [page for page, checksum in zip(batch, found.tolist(), strict=True) if checksum == page.checksum]

    batches = [pages[at : at + _BATCH_PAGES] for at in range(0, len(pages), _BATCH_PAGES)]
    verified: list[_Page] = []
    with ThreadPoolExecutor(_THREADS, "radixd-verify") as threads:
        for i, batch in enumerate(threads.map(right, batches)):
            verified += batch
            progress(min((i + 1) * _BATCH_PAGES, len(pages)), len(pages))
    return verified
