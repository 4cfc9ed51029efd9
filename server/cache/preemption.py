"""Offload and restore: a running request gives up its device pages, and comes back without computing them again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from radixd.server.cache.admission import Admission
from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import attach
from radixd.server.cache.host_space import HostSpace
from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.ledger import Ledger, Owner
from radixd.server.cache.node import Node
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import NO_PAGES, Arrival, CopyKind, PageIds, Saved
from radixd.server.cache.session import Session


class Preemption:
    """Saves a lease's private pages to host pages of its own, and its prefix into the tree's host part.

    Until the copy is confirmed nothing is given up. From then on a keep on the path holds the prefix on the host.
    """

    def __init__(
        self,
        residence: Residence,
        ledger: Ledger,
        host: HostSpace,
        admission: Admission,
        copies: Copies,
        counters: Counters,
        sessions: Mapping[int, Session],
        page_size: int,
    ):
        self._residence = residence
        self._ledger = ledger
        self._host = host
        self._admission = admission
        self._copies = copies
        self._counters = counters
        self._sessions = sessions
        self._page_size = page_size
        self._unstarted: set[Lease] = set()  # offloads that wait for launched steps

    # --- to the host

    def offload(self, session: Session, lease: Lease) -> int:
        """Reserves host pages now, and saves an active lease once launched steps have completed. Returns how many."""
        nodes, tail = self._to_copy(lease)
        needed = sum(node.size for node in nodes) + len(tail)
        host_pages = self._host.claim(needed)
        if host_pages is None:
            raise self._no_host_pages(needed)
        lease.state = LeaseState.OFFLOADING
        lease.saved = host_pages
        lease.copies += 1
        self._unstarted.add(lease)
        session.fence.after(session.fence.launched, lambda: self._start(lease))
        return needed

    def _to_copy(self, lease: Lease) -> tuple[list[Node], PageIds]:
        """The nodes of a lease's prefix that have no host pages, and those of its own pages that hold known tokens."""
        assert lease.anchor is not None
        first = lease.published // self._page_size
        known = -(-len(lease.tokens) // self._page_size)
        return _device_only(lease.anchor), lease.table.pages[first : max(first, known)].copy()

    def _start(self, lease: Lease) -> None:
        if lease not in self._unstarted:
            return
        self._unstarted.remove(lease)
        nodes, tail = self._to_copy(lease)  # anew: an Insert that waited for a step may have published
        for node in nodes:
            node.saving = True
        anchors = [(node, node.size) for node in nodes]
        device_pages = np.concatenate([NO_PAGES, *(node.pages for node in nodes), tail])
        self._host.free(lease.saved[len(device_pages) :])
        lease.saved = lease.saved[: len(device_pages)].copy()
        self._copies.plan(CopyKind.OFFLOAD, device_pages, lease.saved, lambda error: self._saved(lease, anchors, error))

    def cancel(self, lease: Lease) -> None:
        """A lease ends: an offload that has not begun never will."""
        if lease in self._unstarted:
            self._unstarted.remove(lease)
            self._host.free(lease.saved)
            lease.saved = NO_PAGES
            lease.copies -= 1

    def _saved(self, lease: Lease, anchors: list[tuple[Node, int]], error: str) -> None:
        host_pages, lease.saved = lease.saved, NO_PAGES
        at = 0
        for anchor, pages in anchors:
            attach(self._residence, self._host, anchor, host_pages[at : at + pages], error)
            at += pages
        tail = host_pages[at:].copy()
        if error or lease.ended:
            self._host.free(tail)
            lease.state = LeaseState.ACTIVE
        else:
            self._give_up_device(lease, tail)
        session = self._sessions.get(lease.session_id)
        if session is not None and not lease.ended:
            session.saved.append(Saved(lease.lease_id, error))
        lease.copy_over()

    def _give_up_device(self, lease: Lease, tail: PageIds) -> None:
        assert lease.anchor is not None
        self._counters.offloaded_pages += len(tail)
        lease.state = LeaseState.OFFLOADED
        lease.saved = tail
        self._admission.dismiss(lease)
        self._ledger.release(lease.table.truncate(0), Owner.LEASED)
        self._residence.keep(lease.anchor)
        self._residence.leave(lease.anchor)

    def forget(self, lease: Lease) -> None:
        """An offloaded lease ends."""
        assert lease.anchor is not None
        self._host.free(lease.saved)
        self._residence.unkeep(lease.anchor)
        lease.saved, lease.anchor, lease.state = NO_PAGES, None, LeaseState.WAITING

    # --- and back

    def restore(self, lease: Lease, table: PageTable) -> int:
        """Begins to fill own pages of a lease that is locked again with its host pages.

        Returns the copy's id, 0 where there is nothing to copy.
        """
        assert lease.anchor is not None
        self._residence.unkeep(lease.anchor)
        lease.readable = min(len(lease.tokens), lease.published + len(lease.saved) * self._page_size)
        if not len(lease.saved):
            return 0
        first = lease.published // self._page_size
        lease.state = LeaseState.RESTORING
        lease.copies += 1
        copy_id = self._copies.plan(
            CopyKind.RESTORE,
            table.pages[first : first + len(lease.saved)].copy(),
            lease.saved,
            lambda error: self._restored(lease, copy_id, error),
        )
        return copy_id

    def _restored(self, lease: Lease, copy_id: int, error: str) -> None:
        self._counters.restored_pages += 0 if error else len(lease.saved)
        self._host.free(lease.saved)
        lease.saved = NO_PAGES
        lease.state = LeaseState.ACTIVE
        if error:
            lease.readable = min(lease.readable, lease.published)
        session = self._sessions.get(lease.session_id)
        if session is not None and not lease.ended:
            session.arrivals.append(Arrival(lease.lease_id, copy_id, lease.readable, (), error))
        lease.copy_over()

    def _no_host_pages(self, needed: int) -> Refusal:
        message = f"not now: the lease needs {needed} host pages, {self._host.room} can be had; retry, or release it"
        facts: dict[str, int | str] = {"needed": needed, "max_fit": self._host.room, "tier": "host"}
        return Refusal(Reason.NO_PAGES, message, facts=facts)


def _device_only(anchor: Node) -> list[Node]:
    """The nodes of the path that have no host pages, from the bottom up. Of a detached tree, too: a lease reads it."""
    nodes = []
    node = anchor
    while node.parent is not None:
        if not len(node.host):
            nodes.append(node)
        node = node.parent
    return nodes
