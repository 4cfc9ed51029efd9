"""What a journal's records say, up to the first that is bad."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.namespace import Namespace
from radixd.server.journal.header import HEADER_BYTES, Header
from radixd.server.journal.record import (
    BadRecord,
    CleanRecord,
    DeadRecord,
    LiveRecord,
    NamespaceRecord,
    read_records,
)


@dataclass(slots=True, eq=False)
class Replay:
    """The state that a journal's good records lead to."""

    live: NDArray[np.int64]
    """For each host page the offset of the record that holds it, 0 for none; [host_pages + 1]."""
    namespaces: dict[int, Namespace] = field(default_factory=dict)
    end: int = HEADER_BYTES
    """Offset behind the last good record."""
    clean: bool = False
    """The daemon ended in order, and nothing follows."""
    bad: str = ""
    """The first bad record: where and why; empty where all are good."""


def replay(data: bytes, header: Header) -> Replay:
    """Reads a whole journal. Never raises: a bad record ends it, as a torn one must."""
    state = Replay(np.zeros(header.host_pages + 1, np.int64))
    try:
        for offset, end, record in read_records(data, header):
            match record:
                case NamespaceRecord():
                    state.namespaces[record.number] = record.namespace
                case LiveRecord():
                    if record.namespace not in state.namespaces:
                        raise BadRecord(offset, f"a run is in namespace {record.namespace}, which was never named")
                    state.live[record.host_pages] = offset
                case DeadRecord():
                    state.live[record.host_pages] = 0
                case CleanRecord():
                    pass
            state.end, state.clean = end, isinstance(record, CleanRecord)
    except BadRecord as bad:
        state.bad, state.clean = str(bad), False
    return state


def live_runs(data: bytes, header: Header, live: NDArray[np.int64]) -> Iterator[LiveRecord]:
    """The runs of those pages that `live` gives to a record of `data`, in the file's order. Raises BadRecord."""
    for offset, _, record in read_records(data, header):
        if isinstance(record, LiveRecord):
            yield from record.where(live[record.host_pages] == offset)
