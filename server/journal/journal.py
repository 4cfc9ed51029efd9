"""The journal of one host tier: what it says may be adopted by the next daemon, whenever this one dies."""

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
from radixd.server.journal.seal import Checksums

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

    The rule: give what is lost to `lost`, then `flush`, and overwrite these pages only once it returned true. A flush
    reaches the kernel, so a killed daemon loses nothing of it. After a power cut the file may be older than the pages;
    then their checksums decide, unless it is `durable`, at the price of an fdatasync a flush.

    Any error of the file ends journaling: it is made void, and `state` and `reason` say so.
    """

    def __init__(self, directory: Path, header: Header, durable: bool, compact_bytes: int) -> None:
        """See `start`."""
        self.state = State.OFF
        self.reason = ""
        self.compactions = 0
        self._path, self._new_path = directory / JOURNAL, directory / _NEW
        self._header, self._durable, self._compact_bytes = header, durable, compact_bytes
        self._log: LogFile | None = None  # while WRITING
        self._least = 0  # bytes of the file when it was last written anew
        self._compacting = False
        self._live: NDArray[np.int64] = np.zeros(header.host_pages + 1, np.int64)  # as in Replay
        self._claims: NDArray[np.int64] = np.zeros(header.host_pages + 1, np.int64)  # each page's latest ticket
        self._tickets = 0
        self._numbers: dict[Namespace, int] = {}  # of namespaces that records may refer to
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
                new.file.rename(journal._path)
                sync_directory(directory)
            except OSError:
                new.file.discard()
                raise
        except (OSError, BadRecord) as error:
            journal._give_up(f"the journal cannot be written: {error}")
            return journal
        journal._log, journal._live, journal._least = new.file, new.live, new.file.size
        journal._numbers, journal._next_number = new.numbers, max(new.numbers.values(), default=0) + 1
        journal.state = State.WRITING
        return journal

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._log.size if self._log else 0

    @property
    def limit(self) -> int:
        """Bytes above which a compaction is due. Above twice as many the journal gives up."""
        return max(self._compact_bytes, 2 * self._least)

    @property
    def live_pages(self) -> int:
        """Host pages that the file holds."""
        return int(np.count_nonzero(self._live))

    def expect(self, kept: Kept) -> Ticket:
        """A run has been confirmed: have a thread seal it (see seal), then call `kept`. ValueError if it is no run."""
        pages = kept.host_pages
        if len(set(pages.tolist())) != len(pages) or len(kept.key) != len(pages) * self._header.key_page_bytes:
            raise ValueError(f"host pages {pages.tolist()} with {len(kept.key)} key bytes are no run of this pool")
        self._tickets += 1
        self._claims[pages] = self._tickets
        return Ticket(self._tickets, kept)

    def kept(self, ticket: Ticket, checksums: Checksums) -> None:
        """The run may be adopted from now on, except for those of its pages that were lost since `expect`."""
        kept = ticket.kept
        valid = self._claims[kept.host_pages] == ticket.number
        if self._log is None or not valid.any():
            return
        number = self._number(self._log, kept.namespace)
        run = LiveRecord(number, kept.parent, checksums, kept.host_pages, kept.key)
        for record in run.where(valid):
            self._live[record.host_pages] = self._log.append(record)

    def lost(self, host_pages: PageIds) -> None:
        """These may no longer be adopted, nor what is being sealed of them."""
        self._claims[host_pages] = 0
        held = host_pages[self._live[host_pages] != 0]
        if self._log is not None and len(held):
            self._log.append(DeadRecord(held))
            self._live[held] = 0

    def flush(self) -> bool:
        """Writes the turn's records. True if what was given to `lost` may be overwritten; if not, try again later."""
        if self._log is not None:
            try:
                if self._log.waiting:
                    self._log.flush()
                    if self._durable:
                        self._log.sync()
            except OSError as error:
                self._give_up(f"the journal cannot be written: {error}")
            if self.size > 2 * self.limit:
                self._give_up(f"compaction does not keep up: {self.size} bytes for {self.live_pages} pages")
        elif self.state is State.STUCK:
            self._give_up(self.reason)
        return self.state in (State.WRITING, State.OFF)

    def sync(self) -> None:
        """Has the kernel put on the disk what has been flushed."""
        if self._log is not None:
            try:
                self._log.sync()
            except OSError as error:
                self._give_up(f"the journal cannot be written: {error}")

    def begin_compaction(self) -> Compaction | None:
        """One that is due: have a thread `run` it, then give it to `finish_compaction`."""
        if self._log is None or self._compacting or self.size <= self.limit:
            return None
        try:
            self._log.flush()
            source = self._log.reader()
        except OSError as error:
            self._give_up(f"the journal cannot be compacted: {error}")
            return None
        self._compacting = True
        self._numbers.clear()  # the new file names those with live pages alone; later records name theirs anew
        return Compaction(self._new_path, self._header, source, self._live.copy())

    def finish_compaction(self, compaction: Compaction) -> None:
        """Puts the new file in place, with what was written meanwhile."""
        self._compacting = False
        new = compaction.outcome
        if isinstance(new, str):
            self._give_up(f"the journal cannot be compacted: {new}")
            return
        if self._log is None:
            new.file.discard()
            return
        least = new.file.size
        try:
            self._log.flush()
            new.file.append_raw(self._log.reader().read(compaction.end))
            new.file.flush()
            new.file.rename(self._path)
        except OSError as error:
            new.file.discard()
            self._give_up(f"the journal cannot be compacted: {error}")
            return
        self._log.close()
        later = self._live >= compaction.end
        self._live = np.where(later, self._live + (least - compaction.end), np.where(self._live, new.live, 0))
        self._log, self._least = new.file, least
        self.compactions += 1

    def poison(self, reason: str) -> bool:
        """Nothing of this pool may be adopted: its state has proved wrong. False if the disk does not let it."""
        self._give_up(reason)
        return self.state is State.OFF

    def close(self) -> None:
        """Makes the journal the snapshot of an orderly end, on the disk. The pages must not change any more."""
        if self._log is None:
            return
        self._log.append(CleanRecord())
        try:
            self._log.flush()
            self._log.sync()
            sync_directory(self._path.parent)
        except OSError as error:
            self._give_up(f"the snapshot cannot be written: {error}")
            return
        self._log.close()
        self._log, self.state = None, State.CLOSED

    def _number(self, log: LogFile, namespace: Namespace) -> int:
        if namespace not in self._numbers:
            self._numbers[namespace] = self._next_number
            log.append(NamespaceRecord(self._next_number, namespace))
            self._next_number += 1
        return self._numbers[namespace]

    def _give_up(self, reason: str) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        self._live[:] = 0
        self.reason = reason
        self.state = State.OFF if void(self._path, reason) else State.STUCK
