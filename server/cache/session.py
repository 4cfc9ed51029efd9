"""A session as the cache knows it: its steps, its leases, and what it has given up but may still touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

import numpy as np

from radixd.server.cache.lease import Lease
from radixd.server.cache.results import NO_PAGES, Arrival, FinishedCopy, PageIds, Publication, Saved
from radixd.server.cache.step import StepFence


class Dedup(StrEnum):
    """What becomes of a lease's pages that the tree holds already. See Dedup in types.proto."""

    KEEP = "keep"
    PATCH = "patch"


@dataclass(slots=True)
class Superseded:
    """A lease's own pages that a patch has replaced, and the seq of the reply that carries it, once one does."""

    lease: Lease
    pages: PageIds
    reply: int | None = None


class Session:
    """One scheduler's leases and steps, between open_session and end_session."""

    def __init__(self, session_id: int, model: bytes, dedup: Dedup):
        self.session_id = session_id
        self.model = model
        self.dedup = dedup
        self.fence = StepFence()
        self.seq = 0  # of the Batch at hand
        self.leases: dict[int, Lease] = {}
        self.closing: set[Lease] = set()  # ended, but a step or a copy may still touch their pages
        self.retiring: dict[int, PageIds] = {}  # retired pages by the order of their retirement
        self.superseded: list[Superseded] = []
        self.retired_pages = 0
        self._retirements = count()
        self.publications: list[Publication] = []  # for the next reply
        self.finished_copies: list[FinishedCopy] = []  # for the next reply
        self.arrivals: list[Arrival] = []  # for the next reply
        self.saved: list[Saved] = []  # for the next reply

    @property
    def active_leases(self) -> int:
        return sum(lease.active for lease in self.leases.values())

    @property
    def held_leases(self) -> int:
        """Leases that take memory: those that have not ended, and those that a step or a copy may still touch."""
        return len(self.leases) + len(self.closing)

    @property
    def leased_pages(self) -> int:
        return sum(lease.table.own_count() for lease in (*self.leases.values(), *self.closing))

    @property
    def reserved_pages(self) -> int:
        return sum(lease.reserved + lease.joined for lease in self.leases.values())

    def untell(self, lease_id: int) -> None:
        """A lease ends, and its id may name its successor: no reply tells what the old one has waited for."""
        self.publications = [it for it in self.publications if it.lease_id != lease_id]
        self.arrivals = [it for it in self.arrivals if it.lease_id != lease_id]
        self.saved = [it for it in self.saved if it.lease_id != lease_id]

    def bar_writers(self, page_size: int) -> int:
        """See PrefixCache.bar_writers."""
        barred = 0
        for lease in (*self.leases.values(), *self.closing):
            if lease.active and lease.table.length * page_size > lease.published:
                lease.barred = True
                lease.pending = lease.published
                barred += 1
        return barred

    def carry_patches(self) -> None:
        """The reply to the Batch at hand carries every patch so far."""
        for it in self.superseded:
            it.reply = self.seq if it.reply is None else it.reply

    def take_superseded(self, over: Callable[[Superseded], bool]) -> PageIds:
        """Takes out the superseded pages that are over."""
        if not self.superseded:
            return NO_PAGES
        taken = [it.pages for it in self.superseded if over(it)]
        self.superseded = [it for it in self.superseded if not over(it)]
        return np.concatenate([NO_PAGES, *taken])

    def retire(self, pages: PageIds, free: Callable[[PageIds], None]) -> None:
        """Holds retired pages until the steps launched so far have completed, then frees them."""
        number = next(self._retirements)
        self.retiring[number] = pages
        self.retired_pages += len(pages)

        def finish() -> None:
            del self.retiring[number]
            self.retired_pages -= len(pages)
            free(pages)

        self.fence.after(self.fence.launched, finish)
