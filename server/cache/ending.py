"""How leases and sessions end: what is retired, what still waits for a step, a copy or a process's death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from radixd.server.cache.admission import Admission
from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.ledger import Ledger, Owner
from radixd.server.cache.preemption import Preemption
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import PageIds
from radixd.server.cache.session import Session


@dataclass(slots=True)
class Remains:
    """What an ended session has left: pages that its processes may still write, and leases under a copy."""

    proved_gone: bool
    pages: list[PageIds] = field(default_factory=list)
    copying: set[Lease] = field(default_factory=set)

    def page_count(self) -> int:
        return sum(map(len, self.pages)) + sum(lease.table.own_count() for lease in self.copying)


class Endings:
    """Takes back what leases and sessions held. Time revokes ids; only proof frees pages."""

    def __init__(
        self, residence: Residence, ledger: Ledger, admission: Admission, preemption: Preemption, page_size: int
    ):
        self._residence = residence
        self._ledger = ledger
        self._admission = admission
        self._preemption = preemption
        self._page_size = page_size
        self.remains: dict[int, Remains] = {}

    def retire(self, session: Session, pages: PageIds) -> None:
        """A living session gives up leased pages: free once the steps launched so far have completed."""
        if len(pages):
            self._ledger.change(pages, Owner.LEASED, Owner.RETIRED)
            session.retire(pages, self._free_retired)

    def _free_retired(self, pages: PageIds) -> None:
        self._ledger.release(pages, Owner.RETIRED)

    def end_lease(
        self, session: Session, lease: Lease, first_page: int, after_step: int, publish: Callable[[], object]
    ) -> None:
        """Ends an active lease: `publish` runs once `after_step` has completed and its copies are over.

        Its own pages from `first_page` on retire now, unless a copy may touch them. What is still its own once launched
        steps and copies are over is given up then, and its lock returns.
        """
        lease.ended = True
        lease.leave_load()
        self._preemption.cancel(lease)
        self._admission.dismiss(lease)
        session.closing.add(lease)
        if lease.copies:
            lease.close = lambda: self._close(session, lease, publish)
        else:
            session.fence.after(after_step, publish)
            if after_step <= session.fence.completed:  # what could not be published now never will be
                first_page = lease.pending // self._page_size
            self.retire(session, lease.table.truncate(first_page))
            lease.close = lambda: self._close(session, lease)
        session.fence.after(session.fence.launched, lease.step_over)

    def _close(self, session: Session, lease: Lease, publish: Callable[[], object] | None = None) -> None:
        session.closing.discard(lease)
        if publish is not None:
            publish()
        self._ledger.release(lease.table.truncate(0), Owner.LEASED)
        self._unlock(lease)

    def _unlock(self, lease: Lease) -> None:
        if lease.anchor is not None:
            self._residence.leave(lease.anchor)
            lease.anchor = None

    def end_session(self, session: Session, proved_gone: bool) -> int:
        """Ends a session: locks return and nothing more is published. Returns pages left retired."""
        session.fence.abandon()
        remains = Remains(proved_gone)
        for lease in session.leases.values():
            lease.leave_load()
            self._preemption.cancel(lease)
            if lease.active:
                self._admission.dismiss(lease)
            elif lease.state is LeaseState.OFFLOADED:
                self._preemption.forget(lease)
        del self._admission.reserved_by[session.session_id]
        for lease in (*session.leases.values(), *session.closing):
            lease.ended = True
            self._ledger.change(lease.table.own_pages(), Owner.LEASED, Owner.RETIRED)
            if lease.copies:
                remains.copying.add(lease)
                lease.close = lambda lease=lease: self._drain(session.session_id, lease)
                lease.step_over()
            else:
                remains.pages.append(lease.table.truncate(0))
                self._unlock(lease)
        superseded = session.take_superseded(lambda _: True)
        self._ledger.change(superseded, Owner.LEASED, Owner.RETIRED)
        remains.pages += [superseded, *session.retiring.values()]
        self.remains[session.session_id] = remains
        self._settle(session.session_id)
        return self.retired_pages(session.session_id)

    def prove_gone(self, session_id: int) -> int:
        """No process of an ended session lives: frees what it left, once copies are over. Returns pages freed."""
        if session_id not in self.remains:
            return 0
        self.remains[session_id].proved_gone = True
        return self._settle(session_id)

    def retired_pages(self, session_id: int) -> int:
        """Pages that an ended session has left retired."""
        remains = self.remains.get(session_id)
        return remains.page_count() if remains else 0

    def _drain(self, session_id: int, lease: Lease) -> None:
        """The last copy of an ended session's lease is over."""
        remains = self.remains[session_id]
        remains.copying.discard(lease)
        remains.pages.append(lease.table.truncate(0))
        self._unlock(lease)
        self._settle(session_id)

    def _settle(self, session_id: int) -> int:
        remains = self.remains[session_id]
        if not remains.proved_gone and remains.page_count():
            return 0
        pages = np.concatenate([np.empty(0, np.int32), *remains.pages])
        self._ledger.release(pages, Owner.RETIRED)
        remains.pages.clear()
        if not remains.copying:
            del self.remains[session_id]
        return len(pages)
