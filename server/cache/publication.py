"""Putting a lease's written pages into the tree."""

from __future__ import annotations

from dataclasses import dataclass

from radixd.server.cache.admission import Admission
from radixd.server.cache.lease import Lease
from radixd.server.cache.node import Node
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import NO_PAGES, PageIds, TablePatch
from radixd.server.cache.session import Dedup
from radixd.server.cache.speculative import Speculative
from radixd.server.cache.tree import RadixTree


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication did: pages the tree adopted, the patches to the table, and the pages they replaced."""

    adopted: int
    patches: tuple[TablePatch, ...]
    replaced: PageIds


NOTHING = Published(0, (), NO_PAGES)


class Publisher:
    """Publishes under one pool's page size and speculative mode."""

    def __init__(
        self, tree: RadixTree, residence: Residence, admission: Admission, page_size: int, speculative: Speculative
    ):
        self._tree = tree
        self._residence = residence
        self._admission = admission
        self._page_size = page_size
        self._speculative = speculative

    def reach(self, lease: Lease, written: int) -> int:
        """The length, in whole pages, that publishing up to `written` tokens comes to."""
        if lease.barred or lease.anchor is None or lease.anchor.root.detached:
            return lease.published
        whole = self._speculative.publishable(written, len(lease.tokens)) // self._page_size * self._page_size
        return max(lease.published, whole)

    def publish(self, lease: Lease, written: int, dedup: Dedup, now: float) -> Published:
        """Adopts the lease's pages up to `written`, or drops to those that the tree holds already.

        Where the tree holds them on the device, the lease's anchor moves onto them: locking those that are evictable
        must leave every reservation whole, and their bytes must be there, or the publication stops where it is. Where
        the host alone holds them, the lease's pages become theirs.
        """
        length = self.reach(lease, written)
        anchor = lease.anchor
        if length == lease.published or anchor is None:
            return NOTHING
        first, last = lease.published // self._page_size, length // self._page_size
        tokens = lease.tokens.read(lease.published, length + self._speculative.lookahead)
        key = self._speculative.key(tokens)
        walk = self._tree.overlap(anchor, key)
        parts = self._residence.parts(walk, anchor)
        if parts.arriving or not self._admission.can_lock(self._residence.unlocked_pages(walk)):
            return NOTHING
        node = self._tree.cut(walk)
        canonical = self._tree.pages_between(anchor, node)
        self._residence.lock(node, above=anchor)
        if first + walk.pages < last:
            leaf = self._tree.append(node, key[walk.pages * self._tree.page_bytes :])
            self._residence.lock(leaf, above=node)
            node = leaf
        self._adopt(lease, node, first + parts.resident, last)
        self._tree.raise_priority(node, lease.priority, lease.retain_seconds, now)
        lease.anchor = node
        lease.published = length
        lease.pending = max(lease.pending, length)
        adopted = last - first - parts.resident
        if not len(canonical) or dedup is Dedup.KEEP:
            return Published(adopted, (), NO_PAGES)
        replaced = lease.table.patch(first, canonical)
        return Published(adopted, (TablePatch(first, canonical.copy()),), replaced)

    def _adopt(self, lease: Lease, node: Node, first: int, last: int) -> None:
        """The lease's pages [first, last) become those of the path's last nodes, which have none on the device."""
        if first == last:
            return
        pages = lease.table.pages
        end = first
        for bare in list(node.upwards(last - first))[::-1]:
            self._residence.give_device(bare, pages[end : end + bare.size].copy())
            end += bare.size
        lease.table.give_to_tree(first, last)
