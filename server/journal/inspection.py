"""What a journal on disk says of itself, without a daemon and without its data."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from radixd.server.cache.namespace import Namespace
from radixd.server.journal.header import VERSION, Header
from radixd.server.journal.recovery import JOURNAL, read_journal
from radixd.server.journal.replay import live_runs, replay


@dataclass(frozen=True, slots=True)
class NamespacePages:
    """Live pages of one namespace. Its salt is not told: the digest stands for it."""

    digest: str
    model: str
    pages: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """A readable journal. Whether its pages verify is for a start-up to find out, which reads the data too."""

    path: str
    format: int
    nonce: str
    geometry: str
    epoch: int
    page_size: int
    page_bytes: int
    element_bytes: int
    host_pages: int
    live_pages: int
    live_bytes: int
    journal_bytes: int
    clean: bool
    bad_record: str
    ignored_bytes: int
    """From the first bad record on."""
    namespaces: tuple[NamespacePages, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


def inspect_journal(directory: Path) -> Inspection:
    """Reads the journal in one pool's directory. Raises Unusable."""
    data = read_journal(directory)
    header = Header.decode(data)
    state = replay(data, header)
    good = data[: state.end]
    pages = Counter[Namespace]()
    for run in live_runs(good, header, state.live):
        pages[state.namespaces[run.namespace]] += len(run.host_pages)
    live = int(np.count_nonzero(state.live))
    return Inspection(
        path=str(directory / JOURNAL),
        format=VERSION,
        nonce=header.nonce.hex(),
        geometry=header.fingerprint.hex(),
        epoch=header.epoch,
        page_size=header.page_size,
        page_bytes=header.page_bytes,
        element_bytes=header.element_bytes,
        host_pages=header.host_pages,
        live_pages=live,
        live_bytes=live * header.page_bytes,
        journal_bytes=len(data),
        clean=state.clean,
        bad_record=state.bad,
        ignored_bytes=len(data) - state.end,
        namespaces=tuple(
            NamespacePages(namespace.digest(), namespace.model.hex(), count) for namespace, count in pages.most_common()
        ),
    )


def journal_directories(directory: Path) -> list[Path]:
    """`directory` itself where it holds a journal, else those directly in it that do."""
    if (directory / JOURNAL).exists():
        return [directory]
    return sorted(path.parent for path in directory.glob(f"*/{JOURNAL}"))
