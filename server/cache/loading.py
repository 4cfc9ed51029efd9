"""Prefixes whose bytes have yet to arrive, and the leases that wait for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from radixd.server.cache.admission import Admission
from radixd.server.cache.lease import Lease
from radixd.server.cache.ledger import Owner
from radixd.server.cache.node import Node
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import NO_PAGES, Arrival, PageIds, TablePatch
from radixd.server.cache.session import Session
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import RadixTree


class Load:
    """A copy that fills nodes, the `pages` last of `anchor`'s path.

    `peer` names the pool that it comes from; "" for the host.
    """

    def __init__(self, anchor: Node, pages: int, peer: str):
        self.copy_id = 0
        self.anchor = anchor
        self.pages = pages
        self.peer = peer
        self.leases: dict[Lease, None] = {}  # that wait, in the order they came
        self.ended: list[Lease] = []  # that wait no longer, but may hold their lock until their steps are over

    def leave(self, lease: Lease) -> None:
        """A lease that has ended waits no longer."""
        del self.leases[lease]
        self.ended.append(lease)


class Loads:
    """Nodes get device pages at once, and count as arriving until their bytes are there.

    Whoever acquires them meanwhile joins, and reserves as many pages: should the copy fail, every lease gets pages of
    its own in their place, and computes them.
    """

    def __init__(
        self,
        tree: RadixTree,
        residence: Residence,
        device: Tier,
        admission: Admission,
        sessions: Mapping[int, Session],
        page_size: int,
    ):
        self._tree = tree
        self._residence = residence
        self._device = device
        self._admission = admission
        self._sessions = sessions
        self._page_size = page_size

    def begin(self, lease: Lease, nodes: list[Node], pages: PageIds, peer: str = "") -> Load:
        """Gives leased `pages` to `nodes`, a locked path from the top down. The caller opens the copy next."""
        load = Load(nodes[-1], len(pages), peer)
        at = 0
        for node in nodes:
            self._residence.give_device(node, pages[at : at + node.size].copy())
            node.arriving = load
            at += node.size
        self._residence.lock(load.anchor)  # the copy's own lock: leases may go before it ends
        load.leases[lease] = None
        lease.load = load
        return load

    def join(self, lease: Lease, anchor: Node, pages: int) -> Load:
        """Makes a lease wait for the `pages` last of its path, which are arriving. One copy at most fills a path."""
        load = anchor.arriving
        assert isinstance(load, Load)
        load.leases[lease] = None
        lease.joined = pages
        lease.load = load
        return load

    def arrive(self, load: Load) -> None:
        """The bytes are in place. `close` must follow."""
        for node in load.anchor.upwards(load.pages):
            node.arriving = None
        for lease in load.leases:
            self._leave(lease)
            self._report(lease, load, (), "")

    def give_up(self, load: Load, error: str) -> None:
        """The bytes will not come: leases take the pages, or others, as their own. `close` must follow."""
        nodes = list(load.anchor.upwards(load.pages))
        above = nodes[-1].parent
        assert above is not None
        start = self._tree.depth(above)
        taken = [self._residence.take_device(node) for node in nodes]
        pages = np.concatenate([NO_PAGES, *taken[::-1]])
        for node in nodes:
            node.arriving = None
        self._device.ledger.change(pages, Owner.CACHED, Owner.LEASED)
        for lease in load.ended:
            self._withdraw(lease, above)
        for lease in load.leases:
            own = self._shorten(lease, above, start, pages)
            pages = pages[len(own) :]
            lease.readable = start * self._page_size
            self._report(lease, load, (TablePatch(start, own),), error)
        self._device.ledger.release(pages, Owner.LEASED)

    def close(self, load: Load) -> None:
        """Gives the copy's own lock back. After a failure it is the last one: nodes without pages leave the tree."""
        nodes = list(load.anchor.upwards(load.pages))
        self._residence.unlock(load.anchor)
        self._residence.drop_bare(nodes)

    def _withdraw(self, lease: Lease, above: Node) -> None:
        """Shortens a lease's lock to end at `above`."""
        if lease.anchor is not None:
            self._residence.unlock(lease.anchor, above)
            lease.anchor = above

    def _shorten(self, lease: Lease, above: Node, start: int, pages: PageIds) -> PageIds:
        """Ends a lease's hit at `start` pages; from there on, pages of its own follow, out of `pages` if they last."""
        wanted = lease.published // self._page_size - start
        own = pages[:wanted].copy()
        self._withdraw(lease, above)
        lease.published = lease.pending = start * self._page_size
        lease.written = min(lease.written, lease.published)
        self._leave(lease)
        if len(own) < wanted:
            own = np.concatenate([own, self._admission.claim(wanted - len(own))])
        lease.table.replace(start, own)
        return own

    def _leave(self, lease: Lease) -> None:
        lease.load = None
        self._admission.unjoin(lease)

    def _report(self, lease: Lease, load: Load, patches: tuple[TablePatch, ...], error: str) -> None:
        session = self._sessions.get(lease.session_id)
        if session is not None:
            session.arrivals.append(Arrival(lease.lease_id, load.copy_id, lease.readable, patches, error))
