"""A journal written anew with what is live alone, beside the old one."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.namespace import Namespace
from radixd.server.journal.header import Header
from radixd.server.journal.log_file import LogFile, LogReader
from radixd.server.journal.record import BadRecord, LiveRecord, NamespaceRecord, read_records

_WRITE_BYTES = 4 << 20


@dataclass(slots=True, eq=False)
class Rewritten:
    """A new log file, on the disk, and where things stand in it."""

    file: LogFile
    live: NDArray[np.int64]
    numbers: dict[Namespace, int]


def rewrite(path: Path, header: Header, data: bytes, live: NDArray[np.int64]) -> Rewritten:
    """Writes to `path` the pages that `live` (as in Replay) gives to a record of `data`. Raises OSError, BadRecord."""
    new = Rewritten(LogFile(path, header), np.zeros_like(live), {})
    named: dict[int, Namespace] = {}
    try:
        for offset, _, record in read_records(data, header):
            if isinstance(record, NamespaceRecord):
                named[record.number] = record.namespace
            elif isinstance(record, LiveRecord):
                for run in record.where(live[record.host_pages] == offset):
                    _append(new, run, named[run.namespace])
        new.file.flush()
        new.file.sync()  # or a power cut after its rename could leave an empty file
    except (OSError, BadRecord):
        new.file.discard()
        raise
    return new


def _append(new: Rewritten, run: LiveRecord, namespace: Namespace) -> None:
    if namespace not in new.numbers:
        new.numbers[namespace] = run.namespace
        new.file.append(NamespaceRecord(run.namespace, namespace))
    number = new.numbers[namespace]  # the first, where it has been given several
    new.live[run.host_pages] = new.file.append(replace(run, namespace=number))
    if new.file.waiting > _WRITE_BYTES:
        new.file.flush()


class Compaction:
    """One compaction on its way: made and finished by its journal, `run` on any thread between."""

    def __init__(self, path: Path, header: Header, source: LogReader, live: NDArray[np.int64]) -> None:
        self._path, self._header, self._source = path, header, source
        self.live = live
        self.end = source.size
        self.outcome: Rewritten | str = "it has not run"

    def run(self) -> None:
        """Writes the new file. Never raises for what a disk can do: `outcome` then is the reason."""
        try:
            self.outcome = rewrite(self._path, self._header, self._source.read(), self.live)
        except (OSError, BadRecord) as error:
            self.outcome = str(error)
