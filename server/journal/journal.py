"""The journal of one host tier: what it says may be adopted by the next daemon, whenever this one dies."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.host_log import Kept
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.results import PageIds
from radixd.server.journal.compaction import Compaction, rewrite
from radixd.server.journal.header import Header
from radixd.server.journal.log_file import LogFile, sync_directory, void
from radixd.server.journal.record import BadRecord, CleanRecord, DeadRecord, LiveRecord, NamespaceRecord
from radixd.server.journal.recovery import JOURNAL, Recovered

COMPACT_BYTES = 64 << 20
_NEW = "journal.new"


class State(StrEnum):
    """What a journal is good for."""

    WRITING = "writing"
    OFF = "off"
    """It says nothing any more, and the next start is cold. Host pages may be used freely."""
    STUCK = "stuck"
    """It can neither be written nor made void: no host page may be overwritten."""
    CLOSED = "closed"
    """It is the snapshot: no host page may be overwritten."""


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A run whose checksums are being made."""

    number: int
    kept: Kept


class Journal:
    """Written on the loop, one `flush` a turn, and only there; nothing in it raises for what a disk can do.

    The rule: give what is lost to `lost`, `flush`, and overwrite these pages only once it returned true. A flush
    reaches the kernel, so a killed daemon loses nothing of it. After a power cut the file may be older than the pages;
    then their checksums decide, unless `durable`, at the price of an fdatasync a flush.

    Any error of the file ends journaling: it is made void, and `state` and `reason` say so.
    """

    def __init__(self, directory: Path, header: Header, durable: bool, compact_bytes: int) -> None:
        self.state = State.OFF
        self.reason = ""
        self.compactions = 0
        self._path, self._new_path = directory / JOURNAL, directory / _NEW
        self._header, self._durable, self._compact_bytes = header, durable, compact_bytes
        self._log: LogFile | None = None
        self._least = 0  # bytes of the file when it was last written anew
        self._compacting = False
        self._live: NDArray[np.int64] = np.zeros(header.host_pages + 1, np.int64)  # as in Replay
        self._claims: NDArray[np.int64] = np.zeros(header.host_pages + 1, np.int64)  # each page's latest ticket
        self._tickets = 0
        self._numbers: dict[Namespace, int] = {}  # namespaces that the file names
        self._next_number = 1

    @classmethod
    def start(
        cls, directory: Path, recovered: Recovered, durable: bool = False, compact_bytes: int = COMPACT_BYTES
    ) -> "Journal":
        """Begins a journal with what has been adopted, in place of the one before. Before any host page is written.

        Where the disk does not let it, the journal is OFF or STUCK from the start.
        """
        journal = cls(directory, recovered.header, durable, compact_bytes)
        try:
            new = rewrite(journal._new_path, recovered.header, recovered.data, recovered.live)
            try:
                new.file.sync()
                new.file.rename(journal._path)
                sync_directory(directory)
            except OSError:
                new.file.discard()
                raise
        except (OSError, BadRecord) as error:
            journal._give_up(f"the journal cannot be written: {error}")
            return journal
        journal._log, journal._live, journal._least = new.file, new.live, new.file.size
        journal._numbers = new.numbers
        journal._next_number = max(new.numbers.values(), default=0) + 1
        journal.state = State.WRITING
        return journal

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._log.size if self._log else 0

    @property
    def limit(self) -> int:
        """Bytes from which on it is to be compacted. At twice as many it gives up."""
        return max(self._compact_bytes, 2 * self._least)

    @property
    def live_pages(self) -> int:
        """Host pages that the file holds."""
        return int(np.count_nonzero(self._live))

    def expect(self, kept: Kept) -> Ticket:
        """A run has been confirmed: seal it (see seal.seal, on a copier thread), then call `kept`."""
        pages = kept.host_pages
        if len(np.unique(pages)) != len(pages) or len(kept.key) != len(pages) * self._header.key_page_bytes:
            raise ValueError(f"a run of {len(pages)} host pages and {len(kept.key)} key bytes is none of this pool")
        self._tickets += 1
        self._claims[pages] = self._tickets
        return Ticket(self._tickets, kept)

    def kept(self, ticket: Ticket, checksums: NDArray[np.uint64]) -> None:
        """The run may be adopted from now on, except for those of its pages that were lost since `expect`."""
        if self.state is not State.WRITING:
            return
        kept = ticket.kept
        valid = self._claims[kept.host_pages] == ticket.number
        run = LiveRecord(self._number(kept.namespace), kept.parent, checksums, kept.host_pages, kept.key)
        for record in run.where(valid):
            self._live[record.host_pages] = self._append(record)

    def lost(self, host_pages: PageIds) -> None:
        """These may no longer be adopted, nor what is being sealed of them."""
        self._claims[host_pages] = 0
        held = host_pages[self._live[host_pages] != 0]
        if len(held) and self.state is State.WRITING:
            self._append(DeadRecord(held))
            self._live[held] = 0

    def flush(self) -> bool:
        """Writes the turn's records. True if the pages given to `lost` may be overwritten; if not, try again later."""
        if self.state is State.STUCK:
            self._give_up(self.reason)
        if self.state is State.WRITING and self.size > 2 * self.limit:
            self._give_up(f"compaction does not keep up: {self.size} bytes, {self.live_pages} pages live")
        if self.state is State.WRITING:
            self._write()
        return self.state in (State.WRITING, State.OFF)

    def begin_compaction(self) -> Compaction | None:
        """One that is due: have a thread `run` it, then finish it here."""
        if self.state is not State.WRITING or self._compacting or self.size <= self.limit or not self.flush():
            return None
        ...
