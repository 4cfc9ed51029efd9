"""Token moves in flight: planned here, carried out elsewhere, reported back."""

from __future__ import annotations

import numpy as np

from radixd.server.cache.checks import check_limit
from radixd.server.cache.copies import Copies
from radixd.server.cache.lease import Lease
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import FinishedCopy, MovePlan, PageIds
from radixd.server.cache.session import Session


class Moves:
    """Copies between the slots of one lease. Its pages stay whose they are until the last has ended."""

    def __init__(self, copies: Copies, page_size: int, max_pairs: int):
        self._copies = copies
        self._page_size = page_size
        self._max_pairs = max_pairs

    def plan(self, session: Session, lease: Lease, sources: PageIds, destinations: PageIds) -> MovePlan:
        """Checks slot ids and opens a copy."""
        self._check(lease, sources, destinations)

        def finish(error: str) -> None:
            session.finished_copies.append(FinishedCopy(copy_id, error))
            if error and lease.ended:
                lease.barred = True  # nobody can repair the bytes, so what waits to be published never may be
            lease.copy_over()

        lease.copies += 1
        copy_id = self._copies.open(len(np.unique(destinations // self._page_size)), finish)
        return MovePlan(copy_id, sources.copy(), destinations.copy())

    def _check(self, lease: Lease, sources: PageIds, destinations: PageIds) -> None:
        size, pages = self._page_size, lease.table.pages
        check_limit("sources", len(sources), self._max_pairs)
        if len(sources) != len(destinations) or not len(sources):
            raise _bad("destinations", f"{len(destinations)} slots for {len(sources)} sources; give one each")
        for field, slots in (("sources", sources), ("destinations", destinations)):
            if not np.isin(slots // size, pages).all():
                raise _bad(field, "a slot outside the lease's page table; take slots from the table's pages")
        if len(np.unique(destinations)) != len(destinations):
            raise _bad("destinations", "a slot is named twice; each may be written once")
        if not np.isin(destinations // size, lease.table.own_pages(lease.pending // size)).all():
            message = f"destinations: a slot below the {lease.pending} tokens published; write to private pages only"
            raise Refusal(Reason.PUBLISHED, message, field="destinations", facts={"published": lease.pending})


def _bad(field: str, what: str) -> Refusal:
    return Refusal(Reason.BAD_FIELD, f"{field}: {what}", field=field)
