"""Pages of the host tier, handed out."""

from __future__ import annotations

from radixd.server.cache.ledger import Owner
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import PageIds
from radixd.server.cache.tier import Tier


class HostSpace:
    """Host pages are claimed before a copy begins, evicting colder ones where there are none free."""

    def __init__(self, tier: Tier, residence: Residence):
        self._tier = tier
        self._residence = residence
        self.evicted_pages = 0

    @property
    def room(self) -> int:
        """Pages that a claim could be given now."""
        return self._tier.ledger.free + self._tier.evictable

    @property
    def capacity(self) -> int:
        """Pages that the tree holds, or could hold without taking any from leases and copies."""
        return self._tier.ledger.free + self._tier.ledger.cached

    def claim(self, pages: int) -> PageIds | None:
        """Leased host pages; None, with nothing changed, where there are not as many."""
        if pages > self.room:
            return None
        short = pages - self._tier.ledger.free
        if short > 0:
            self._residence.evict_host(short)
            self.evicted_pages += short
        return self._tier.ledger.lease(pages)

    def free(self, pages: PageIds) -> None:
        """Gives leased pages back."""
        self._tier.ledger.release(pages, Owner.LEASED)
