"""A pool's host tier: its memory, its journal, and the copies between it and the device."""

import asyncio
import logging
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from radixd.gpu_pool.layout import Layout
from radixd.server.cache.results import CopyKind, CopyPlan
from radixd.server.pools.copier import Copier, Urgency
from radixd.server.pools.host_journal import HostJournal
from radixd.server.pools.traffic import Traffic
from radixd.server.pools.warm_start import HOST_PAGES, Found, adopt, read_state
from radixd.server.sessions.fault import guarded
from radixd.server.sessions.served_pool import ServedPool, Snapshot

if TYPE_CHECKING:
    from radixd.gpu_pool.host import HostPool
    from radixd.gpu_pool.memory import PoolMemory
    from radixd.server.journal.recovery import Recovered

log = logging.getLogger(__name__)

TO_HOST = (CopyKind.DEMOTE, CopyKind.OFFLOAD)
JOURNAL_STUCK = "the journal can be neither written nor made void, so no host page may be overwritten"


class HostTier:
    """Everything but `allocate`, `close` and the copier's work belongs to the loop.

    The rule of a turn: what host pages no longer hold stands in the journal before a copy may overwrite them.
    """

    def __init__(self, pool: ServedPool, directory: Path | None, copier: Copier, traffic: Traffic) -> None:
        self.journal: HostJournal | None = None
        self._pool = pool
        self._cache = pool.cache
        self._directory = directory
        self._copier = copier
        self._traffic = traffic
        self._memory: PoolMemory | None = None
        self._host: HostPool | None = None
        self.found: Found | None = None
        """What this start found in the state directory; None where there is none."""
        self._recovered: Recovered | None = None
        self._held: list[CopyPlan] = []  # to the host, while the journal does not let them begin
        self._copying: set[asyncio.Future[None]] = set()

    # --- start and end

    def memory_bytes(self) -> int:
        """Host memory that `allocate` will take: none for what a file on a disk holds. Raises OSError."""
        from radixd.gpu_pool.host_file import new_memory_bytes

        nbytes = Layout(self._pool.geometry, "page_first", self._cache.config.host_pages).nbytes
        return nbytes if self._directory is None else new_memory_bytes(self._directory / HOST_PAGES, nbytes)

    def allocate(self, memory: "PoolMemory", epoch: int) -> None:
        """Get the memory, and read what a state directory holds. Raises DeviceMemoryError."""
        from radixd.gpu_pool.host import HostPool

        geometry, pages = self._pool.geometry, self._cache.config.host_pages
        self._memory = memory
        if self._directory is None:
            self._host = HostPool.anonymous(geometry, pages, f"radixd-{self._pool.name}-host")
        else:
            self._host = HostPool.in_file(geometry, pages, self._directory / HOST_PAGES)
            self._recovered = read_state(self._pool.name, self._directory, self._host, self._cache, epoch)
        try:
            memory.pin(self._host)
        except BaseException:
            self.close()
            raise

    def adopt(self) -> None:
        """Take over what `allocate` has read, and keep a journal from now on. Before any session."""
        if self._recovered is None:
            return
        assert self._directory is not None
        assert self._host is not None
        journal = adopt(self._pool.name, self._directory, self._host, self._cache, self._recovered)
        self.journal = HostJournal(self._pool.name, self._directory, journal, self._host, self._copier)
        self.found = Found(self._recovered.verdict, self._recovered.pages, self._recovered.dropped)
        self._recovered = None

    def close(self) -> None:
        """Give up the memory, after the device's and after all copies; a state directory keeps it."""
        if self._host is not None:
            self._host.close()
            self._host = None

    # --- copies

    def turn(self) -> None:
        """Journals and starts what the cache has planned."""
        self._held += self._cache.take_plans()
        writable = self._write_journal()
        plans, self._held = self._held, []
        for plan in plans:
            if writable or plan.kind not in TO_HOST:
                self._submit(plan)
            else:
                self._held.append(plan)

    def _write_journal(self) -> bool:
        return self.journal is None or self.journal.write(self._cache.take_journal())

    def give_up_held(self) -> None:
        """Ends what the journal has held up for too long."""
        held, self._held = self._held, []
        for plan in held:
            self._cache.finish_copy(plan.copy_id, JOURNAL_STUCK)

    def _submit(self, plan: CopyPlan) -> None:
        to_host = plan.kind in TO_HOST
        nbytes = len(plan.host_pages) * self._pool.geometry.bytes_per_page * (1 if to_host else self._pool.devices)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._copying.add(ended)
        self._traffic.begin(plan.copy_id, plan.kind, nbytes)

        def done(error: str) -> None:
            self._traffic.end(plan.copy_id, error)
            self._finish(plan, error)
            self._copying.discard(ended)
            ended.set_result(None)

        self._copier.submit(lambda: self._begin(plan), done, Urgency.SAVING if to_host else Urgency.AWAITED)

    def _begin(self, plan: CopyPlan) -> Future[None] | None:
        """On the copier's thread."""
        if self._memory is None or self._host is None:
            return None  # a pool without memory
        from radixd.gpu_pool.tier_copy import load_pages, save_pages

        if plan.kind in TO_HOST:
            return save_pages(self._memory, self._host, plan.device_pages, plan.host_pages)
        return load_pages(self._memory, self._host, plan.host_pages, plan.device_pages)

    def _finish(self, plan: CopyPlan, error: str) -> None:
        if self._pool.broken is not None:
            return
        with guarded(self._pool, f"finishing a copy ({plan.kind})"):
            self._cache.finish_copy(plan.copy_id, error)
        if not error:  # what fails may fail again at once: the next step or tick is soon enough to try
            self._pool.turn()

    # --- snapshots

    async def save_everything(self) -> None:
        """Copies to the host what is on the device alone, as far as it fits, and waits for it."""
        planned = 0
        while planned < self._cache.config.pages and self._pool.broken is None:
            failed = self._cache.counters.demote_failed_pages
            more = self._cache.save_all()
            planned += more
            self._pool.turn()
            if self._copying:
                await asyncio.wait(set(self._copying))
            if not more or self._cache.counters.demote_failed_pages > failed:
                break
        if self.journal is not None:
            await self.journal.sealed()

    async def snapshot(self) -> Snapshot:
        """See ServedPool."""
        assert self.journal is not None
        await self.save_everything()
        self.journal.journal.sync()
        return Snapshot(self.journal.journal.live_pages, self.journal.path)
