"""The borrower's side of an import: a hit whose bytes arrive from the device of another pool of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from radixd.server.cache.config import CacheConfig
from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import Demoter
from radixd.server.cache.lease import Lease
from radixd.server.cache.lending import Lender
from radixd.server.cache.loading import Load, Loads
from radixd.server.cache.node import Node
from radixd.server.cache.results import ImportPlan, PageIds
from radixd.server.cache.tree import Query, Walk


@dataclass(frozen=True, slots=True)
class Peer:
    """A pool whose pages can be copied page for page: one geometry, and prefixes keyed alike."""

    name: str
    lender: Lender
    served: Callable[[], bool]


class Offer(NamedTuple):
    """A prefix on a peer's device: `pages` of it, the walk in the peer's tree, can be reused."""

    peer: Peer
    walk: Walk
    pages: int
    rollback: int  # pages that speculation took off it


class Importer:
    """Asks the peers, and loads what one of them holds. One thread owns all caches, so what is offered stays so."""

    def __init__(self, config: CacheConfig, loads: Loads, demoter: Demoter, copies: Copies, counters: Counters):
        self._config = config
        self._loads = loads
        self._demoter = demoter
        self._copies = copies
        self._counters = counters
        self._plans: list[ImportPlan] = []
        self.peers: tuple[Peer, ...] = ()

    def seek(self, query: Query, pages: int) -> Offer | None:
        """The longest reusable prefix of at least `pages` pages that a peer can lend; of equal ones, the idlest's."""
        best: Offer | None = None
        for peer in self.peers:
            walk = peer.lender.offer(*query) if peer.served() else None
            if walk is None:
                continue
            rollback = self._config.speculative.rollback_pages(walk.pages)
            length = walk.pages - rollback
            if length < max(1, pages) or (best is not None and _rank(best) >= (length, -peer.lender.busy_pages)):
                continue
            lent = peer.lender.shorten(walk, length)
            if lent is not None:
                best = Offer(peer, lent, length, rollback)
        return best

    def start(self, lease: Lease, nodes: list[Node], pages: PageIds, offer: Offer) -> Load:
        """Begins to fill leased `pages` with the last of an offer's. `nodes`: a locked path from the top down."""
        load = self._loads.begin(lease, nodes, pages, offer.peer.name)
        load.copy_id = self._copies.open(len(pages), lambda error: self._finish(load, error), anchor=load.anchor)
        loan = offer.peer.lender.lend(offer.walk, offer.pages - len(pages))
        self._plans.append(ImportPlan(load.copy_id, offer.peer.name, loan.copy_id, loan.pages, pages.copy()))
        return load

    def take_plans(self) -> tuple[ImportPlan, ...]:
        """Plans made since the last call."""
        plans = tuple(self._plans)
        self._plans.clear()
        return plans

    def _finish(self, load: Load, error: str) -> None:
        if error:
            self._counters.import_failed_pages += load.pages
            self._loads.give_up(load, error)
        else:
            self._counters.imported_pages += load.pages
            self._loads.arrive(load)
            self._demoter.save_arrived(load.anchor)
        self._loads.close(load)


def _rank(offer: Offer) -> tuple[int, int]:
    return offer.pages, -offer.peer.lender.busy_pages
