"""The journal of a pool's host tier, fed: what the cache says goes in, checksums are made beside it."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from radixd.server.cache.host_log import Kept, Lost
from radixd.server.journal.journal import Journal, State
from radixd.server.journal.seal import Checksums, seal
from radixd.server.pools.copier import Copier, Urgency

if TYPE_CHECKING:
    from radixd.gpu_pool.host import HostPool

log = logging.getLogger(__name__)


class HostJournal:
    """Belongs to the loop. What it cannot write ends journaling, never serving: `trouble` and the log say so."""

    def __init__(self, pool: str, path: Path, journal: Journal, host: "HostPool", copier: Copier) -> None:
        self.path = path
        self.journal = journal
        self._pool = pool
        self._host = host
        self._copier = copier
        self._sealing: set[asyncio.Future[None]] = set()
        self._seen = State.WRITING
        self._watch()

    @property
    def trouble(self) -> str:
        """Why the journal is kept no longer; empty while it is."""
        return "" if self.journal.state in (State.WRITING, State.CLOSED) else self.journal.reason

    def write(self, records: Iterable[Kept | Lost]) -> bool:
        """Take records, in order. True if host pages that were lost may be overwritten now; if not, try again later."""
        try:
            for record in records:
                if isinstance(record, Lost):
                    self.journal.lost(record.host_pages)
                elif self.journal.state is State.WRITING:
                    self._seal(record)
        except Exception as error:  # the rest of the records is gone, and with it what the journal could vouch for
            self.poison(f"a record could not be taken: {error}")
            raise
        return self._flush()

    def _seal(self, kept: Kept) -> None:
        ticket = self.journal.expect(kept)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sealing.add(ended)
        made: list[Checksums] = []

        def work() -> None:
            made.append(seal(kept, self._host.layout.geometry.fingerprint, self._host.checksums))

        def done(error: str) -> None:
            self._sealing.discard(ended)
            ended.set_result(None)
            if not error:  # without checksums the run is not adopted, which is safe
                self.journal.kept(ticket, made[0])
                self._flush()

        self._copier.submit(work, done, Urgency.IDLE)

    def _flush(self) -> bool:
        written = self.journal.flush()
        compaction = self.journal.begin_compaction()
        if compaction is not None:

            def done(error: str) -> None:
                if not error:  # else the copier has been told to stop, and the old file goes on
                    self.journal.finish_compaction(compaction)
                    self._watch()

            self._copier.submit(compaction.run, done, Urgency.IDLE)
        self._watch()
        return written

    async def sealed(self) -> None:
        """Return when everything kept so far is in the journal."""
        if self._sealing:
            await asyncio.wait(set(self._sealing))

    def poison(self, reason: str) -> None:
        """Nothing of this pool may be adopted."""
        if self.journal.state is not State.OFF:
            self.journal.poison(reason)
            self._watch()

    def close(self) -> None:
        """Make the journal the snapshot of an orderly end. No host page may change any more."""
        pages = self.journal.live_pages
        self.journal.close()
        self._watch()
        if self.journal.state is State.CLOSED:
            log.info(
                "pool %s: %d host pages stand in the snapshot at %s",
                self._pool,
                pages,
                self.path,
                extra={"pool": self._pool},
            )

    def _watch(self) -> None:
        if self.journal.state is not self._seen:
            self._seen = self.journal.state
            if self.trouble:
                log.error(
                    "pool %s: the journal is %s, the next start is cold: %s", self._pool, self._seen, self.trouble,
                    extra={"pool": self._pool},
                )  # fmt: skip
