"""Who may have how many pages: what is free or evictable, less what others were promised."""

from __future__ import annotations

from collections import Counter

from radixd.server.cache.lease import Lease
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import PageIds
from radixd.server.cache.tier import Tier


class Admission:
    """Reservations, and the pages handed out under them.

    A reservation is a count, not page ids. It keeps free + evictable ≥ all reservations at every step, so that an
    admitted lease can always grow to the length it named: two half-prefilled requests never wait for each other.
    """

    def __init__(self, device: Tier, residence: Residence):
        self._device = device
        self._ledger = device.ledger
        self._residence = residence
        self.reserved = 0
        self.reserved_by: Counter[int] = Counter()  # by session
        self.growing = 0  # active leases with no reservation left: an Acquire leaves each a page

    @property
    def unreserved(self) -> int:
        """Pages that are free or evictable and promised to nobody."""
        return self._ledger.free + self._device.evictable - self.reserved

    @property
    def max_fit(self) -> int:
        """The most new pages an Acquire could be given now."""
        return max(0, self.unreserved - self.growing)

    def check_fits_ever(self, pages: int, page_size: int) -> None:
        """Refuses what the empty pool could not hold."""
        total = self._ledger.total
        if pages > total:
            message = f"needs {pages} pages, the pool has {total}: at most {total * page_size} tokens fit; do not retry"
            facts: dict[str, int | str] = {"needed": pages, "max_pages": total, "max_tokens": total * page_size}
            raise Refusal(Reason.NEVER_FITS, message, facts=facts)

    def check_acquire(self, cost: int) -> None:
        """Refuses an Acquire that costs more pages, new, locked and reserved, than it may have now."""
        if cost > self.max_fit:
            raise self._no_pages(cost, self.max_fit)

    def check_growth(self, lease: Lease, pages: int) -> None:
        """Refuses growth beyond the lease's reservation that would break another's."""
        extra = pages - lease.reserved
        if extra > 0 and extra > self.unreserved:
            raise self._no_pages(pages, lease.reserved + max(0, self.unreserved))

    def can_lock(self, evictable_pages: int) -> bool:
        """Whether locking as many evictable pages leaves every reservation whole."""
        return evictable_pages <= self.unreserved

    def claim(self, pages: int) -> PageIds:
        """Hands out pages that a check has allowed, evicting what is short."""
        self.evict(pages - self._ledger.free)
        return self._ledger.lease(pages)

    def evict(self, pages: int) -> int:
        """Evicts that many pages, which are evictable. Returns how many."""
        if pages <= 0:
            return 0
        self._residence.evict_device(pages)
        return pages

    def admit(self, lease: Lease) -> None:
        """Counts a lease that has become active."""
        self._count(lease, +1)

    def spend(self, lease: Lease, pages: int) -> None:
        """Takes grown pages off the lease's reservation, as far as it goes."""
        self._count(lease, -1)
        lease.reserved -= min(lease.reserved, pages)
        self._count(lease, +1)

    def unjoin(self, lease: Lease) -> None:
        """Gives back what a lease reserved by joining a copy that has ended."""
        self._count(lease, -1)
        lease.joined = 0
        self._count(lease, +1)

    def dismiss(self, lease: Lease) -> None:
        """Gives back the reservation of a lease that grows no more."""
        self._count(lease, -1)
        lease.reserved = lease.joined = 0

    def _count(self, lease: Lease, sign: int) -> None:
        reserved = lease.reserved + lease.joined
        self.reserved += sign * reserved
        self.reserved_by[lease.session_id] += sign * reserved
        self.growing += sign * (lease.reserved == 0)

    def _no_pages(self, needed: int, max_fit: int) -> Refusal:
        facts: dict[str, int | str] = {
            "needed": needed,
            "max_fit": max_fit,
            "free": self._ledger.free,
            "evictable": self._device.evictable,
            "retired": self._ledger.retired,
            "reserved": self.reserved,
        }
        figures = ", ".join(f"{name} {value}" for name, value in facts.items())
        message = f"not now: {figures} pages; retry when leases have ended or steps completed"
        return Refusal(Reason.NO_PAGES, message, facts=facts)
