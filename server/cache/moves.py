"""Token moves in flight: planned here, carried out elsewhere, reported back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from radixd.server.cache.checks import check_limit
from radixd.server.cache.lease import Lease
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.results import FinishedCopy, MovePlan, PageIds
from radixd.server.cache.session import Session


@dataclass(frozen=True, slots=True)
class _Copy:
    session: Session
    lease: Lease
    pages: int  # written


class Moves:
    """Copies between the slots of one lease. Its pages stay whose they are until the last has ended."""

    def __init__(self, page_size: int, max_pairs: int):
        self._page_size = page_size
        self._max_pairs = max_pairs
        self._copies: dict[int, _Copy] = {}
        self._ids = count(1)

    @property
    def pages_in_copy(self) -> int:
        return sum(copy.pages for copy in self._copies.values())

    def plan(self, session: Session, lease: Lease, sources: PageIds, destinations: PageIds) -> MovePlan:
        """Checks slot ids and opens a copy."""
        self._check(lease, sources, destinations)
        copy_id = next(self._ids)
        lease.copies += 1
        self._copies[copy_id] = _Copy(session, lease, len(np.unique(destinations // self._page_size)))
        return MovePlan(copy_id, sources.copy(), destinations.copy())

    def finish(self, copy_id: int, error: str) -> None:
        """Closes a copy, and what waited for it."""
        copy = self._copies.pop(copy_id)
        copy.session.finished_copies.append(FinishedCopy(copy_id, error))
        if error and copy.lease.ended:
            copy.lease.barred = True  # nobody can repair the bytes, so what waits to be published never may be
        copy.lease.copy_over()

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
