"""A pool's host tier found again in its state directory: read and verified on a thread, adopted on the loop."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from radixd.server.cache.ledger import Owner
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.journal.header import Header, Verdict
from radixd.server.journal.journal import Journal
from radixd.server.journal.recovery import Dropped, Recovered, recover
from radixd.server.journal.stamp import read_stamp, write_stamp

if TYPE_CHECKING:
    from radixd.gpu_pool.host import HostPool

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """What became of a state directory: its pages that were adopted, and those that were not."""

    verdict: Verdict
    pages: int
    dropped: Dropped


PROGRESS_SECONDS = 5.0
HOST_PAGES = "host.pages"
"""The data file's name in a pool's state directory."""


def read_state(pool: str, directory: Path, host: "HostPool", cache: PrefixCache, epoch: int) -> Recovered:
    """What of the host pages in `directory` may be adopted. Blocks: every page is verified."""
    geometry = host.layout.geometry
    wanted = Header(
        nonce=read_stamp(host.pages[0].data),
        fingerprint=geometry.fingerprint,
        page_bytes=geometry.bytes_per_page,
        page_size=geometry.page_size,
        host_pages=cache.config.host_pages,
        element_bytes=cache.config.speculative.element_bytes,
        epoch=epoch,
    )
    return recover(directory, wanted, host.checksums, _progress(pool, directory))


def _progress(pool: str, directory: Path) -> Callable[[int, int], None]:
    """Logs now and then how far the verification of many pages has come."""
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            text = "pool %s: verifying host pages in %s: %d of %d"
            log.info(text, pool, directory, done, total, extra={"pool": pool})

    return tell


def adopt(pool: str, directory: Path, host: "HostPool", cache: PrefixCache, recovered: Recovered) -> Journal:
    """Fills the fresh cache, and begins its journal. Says what was adopted, and what was dropped and why."""
    cache.adopt(recovered.paths())
    live = np.flatnonzero(recovered.live).astype(np.int32)
    recovered.discard(np.setdiff1d(live, cache.host.ledger.owned_by(Owner.CACHED)).astype(np.int32))
    write_stamp(host.pages[0].data, recovered.header.nonce)
    journal = Journal.start(directory, recovered)
    cache.keep_journal()
    _report(pool, recovered)
    return journal


def _report(pool: str, recovered: Recovered) -> None:
    if recovered.verdict is not Verdict.WARM:
        level = logging.INFO if recovered.verdict is Verdict.NEW else logging.WARNING
        log.log(level, "pool %s: the host tier starts cold: %s", pool, recovered.reason, extra={"pool": pool})
        return
    ended = "ended in order" if recovered.clean else "did not end in order"
    log.info("pool %s: %d host pages adopted; the daemon before %s", pool, recovered.pages, ended, extra={"pool": pool})
    dropped = {reason: pages for reason, pages in asdict(recovered.dropped).items() if pages}
    if dropped:
        counts = ", ".join(f"{n} ({why})" for why, n in dropped.items())
        log.warning("pool %s: host pages dropped: %s", pool, counts, extra={"pool": pool})
    if recovered.bad:
        log.warning("pool %s: the journal was read up to %s", pool, recovered.bad, extra={"pool": pool})
