"""The forward pass: what a step does to the pool's memory. It runs late, between two Batches, as a GPU would."""

from collections.abc import Sequence

from radixd.client import Lease, Session
from radixd.server.replay.fingerprint import poison_seeds
from radixd.server.replay.journal import Journal
from radixd.server.replay.running import Access, RunningRequest, Work
from radixd.server.replay.slot_bytes import Mismatch, SlotBytes


class Kernel:
    """Reads and writes KV in place of an engine's attention layers."""

    def __init__(self, session: Session, memory: SlotBytes, journal: Journal) -> None:
        self._session = session
        self._memory = memory
        self._journal = journal

    def run(self, works: Sequence[Work]) -> None:
        """One step, as it was launched: page tables that have changed since then do not concern it.

        It has completed on return, and so has whatever was written before it.
        """
        for work in works:
            for read in work.reads:
                self.check(work.running, read)
            for write in work.writes:
                self.write(write)
            work.running.completed = work.stop
        self.synchronize()

    def synchronize(self) -> None:
        """Return when the memory holds all that was written: only then may an engine call a step completed."""
        self._memory.synchronize()

    def write(self, access: Access) -> None:
        """Put KV in place."""
        self._journal.tally.bytes_written += self._memory.write(access.pages, access.start, access.seeds)

    def check(self, running: RunningRequest, access: Access) -> None:
        """Count every page that does not hold what its prefix stands for."""
        tally = self._journal.tally
        found: list[Mismatch] = []
        tally.bytes_verified += self._memory.check(access.pages, access.start, access.seeds, found)
        for mismatch in found:
            tally.mismatch(
                f"request {running.request.index}, session {self._session.session_id}, step {self._session.launched}: "
                f"{mismatch}"
            )

    def poison(self, lease: Lease, first_page: int) -> None:
        """Overwrite the private pages from table index `first_page` on: what is not written afterwards will show."""
        pages = lease.pages
        seeds = poison_seeds(self._session.session_id, lease.lease_id, self._session.page_size)
        for index in range(first_page, pages.size):
            self.write(Access(pages[index : index + 1], 0, seeds))
