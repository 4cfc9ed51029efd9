"""A session as the cache knows it: its steps, its leases, and what it has given up but may still touch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from itertools import count

from radixd.server.cache.lease import Lease
from radixd.server.cache.results import FinishedCopy, PageIds, Publication
from radixd.server.cache.step import StepFence


class Dedup(StrEnum):
    """What becomes of a lease's pages that the tree holds already. See Dedup in types.proto."""

    KEEP = "keep"
    PATCH = "patch"


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
        self.superseded: deque[tuple[int, PageIds]] = deque()  # patched out, by the seq of the reply that said so
        self.retired_pages = 0
        self._retirements = count()
        self.publications: list[Publication] = []  # for the next reply
        self.finished_copies: list[FinishedCopy] = []  # for the next reply
        self.patched: list[PageIds] = []  # patched out by a publication that no reply has carried yet

    @property
    def active_leases(self) -> int:
        return sum(lease.active for lease in self.leases.values())

    @property
    def leased_pages(self) -> int:
        return sum(lease.table.own_count() for lease in (*self.leases.values(), *self.closing))

    @property
    def reserved_pages(self) -> int:
        return sum(lease.reserved for lease in self.leases.values())

    def retire(self, pages: PageIds, free: Callable[[PageIds], None]) -> None:
        """Holds retired pages until the steps launched so far have completed, then frees them."""
        if not len(pages):
            return
        number = next(self._retirements)
        self.retiring[number] = pages
        self.retired_pages += len(pages)

        def finish() -> None:
            del self.retiring[number]
            self.retired_pages -= len(pages)
            free(pages)

        self.fence.after(self.fence.launched, finish)
