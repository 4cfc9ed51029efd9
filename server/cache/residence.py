"""Which tier holds a node's pages, and what holds them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from radixd.server.cache.chain import ROOT, chain
from radixd.server.cache.host_log import Kept, Lost
from radixd.server.cache.node import Node
from radixd.server.cache.results import NO_PAGES, PageIds
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import RadixTree, Walk


class Parts(NamedTuple):
    """A match from its root on: pages that can be read, pages whose bytes are on their way, pages on the host alone."""

    resident: int
    arriving: int
    host: int


NOWHERE = Parts(0, 0, 0)


class Residence:
    """Gives and takes the pages of nodes, and keeps both tiers' counts and queues in step.

    A node with device pages has a parent with device pages, so a match is a device part, then a host part. A locked
    node's ancestors are locked: `lock_ref` counts the leases and copies anchored at the node or below it; likewise
    `keep_ref` the offloaded leases. A lock holds the pages of both tiers, a keep those of the host.
    """

    def __init__(self, tree: RadixTree, device: Tier, host: Tier):
        self._tree = tree
        self._device = device
        self._host = host
        self.dropped = 0  # device pages evicted without a copy on the host
        self.log: list[Kept | Lost] | None = None  # what a journal must learn, where there is one

    # --- reading

    def parts(self, walk: Walk, above: Node | None = None) -> Parts:
        """What of a match is where. `above`: where the match began, if not at a root."""
        arriving = host = 0
        for node, pages in self._upwards(walk):
            if node is above:
                break
            if not len(node.pages):
                host += pages
            elif node.arriving is not None:
                arriving += pages
            else:
                break
        return Parts(walk.pages - arriving - host, arriving, host)

    def unlocked_pages(self, walk: Walk) -> int:
        """Device pages that a lock on a match would take out of the evictable ones."""
        unlocked = 0
        for node, pages in self._upwards(walk):
            if node.lock_ref:
                break
            unlocked += pages if len(node.pages) else 0
        return unlocked

    def host_nodes(self, anchor: Node) -> list[Node]:
        """The nodes of the path to `anchor` that only the host holds, from the top down."""
        nodes = []
        node = anchor
        while node.parent is not None and not len(node.pages):
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @staticmethod
    def _upwards(walk: Walk) -> Iterator[tuple[Node, int]]:
        if walk.partial is not None:
            yield walk.partial, walk.partial_pages
        node = walk.node
        while node.parent is not None:
            yield node, node.size
            node = node.parent

    # --- locks and keeps

    def lock(self, node: Node, above: Node | None = None) -> None:
        """Locks the path from `node` up to, and without, `above`; to the root where `above` is None."""
        current: Node | None = node
        while current is not above and current is not None:
            if not current.lock_ref:
                self._device.protect(current, len(current.pages))
                if not current.keep_ref:
                    self._host.protect(current, len(current.host))
            current.lock_ref += 1
            current = current.parent

    def unlock(self, node: Node, above: Node | None = None) -> None:
        """Takes one lock off the same path. A detached node's pages go free with its last lock and keep."""
        current: Node | None = node
        while current is not above and current is not None:
            parent = current.parent
            current.lock_ref -= 1
            if not current.lock_ref:
                self._device.expose(len(current.pages))
                if not current.keep_ref:
                    self._host.expose(len(current.host))
                self._settle(current)
            current = parent

    def leave(self, node: Node) -> None:
        """A lease lets go of the path, which it has used until now. Copies unlock: they are no use of it."""
        self._tree.touch(node)
        self.unlock(node)

    def keep(self, node: Node) -> None:
        """Holds the host pages of the path."""
        current: Node | None = node
        while current is not None:
            if not current.keep_ref and not current.lock_ref:
                self._host.protect(current, len(current.host))
            current.keep_ref += 1
            current = current.parent

    def unkeep(self, node: Node) -> None:
        """Takes one keep off the same path."""
        current: Node | None = node
        while current is not None:
            parent = current.parent
            current.keep_ref -= 1
            if not current.keep_ref and not current.lock_ref:
                self._host.expose(len(current.host))
                self._settle(current)
            current = parent

    def _settle(self, node: Node) -> None:
        """Queues an unlocked node for eviction where nothing below it is in the way; drops what is of no more use."""
        if node.lock_ref:
            return
        if node.parent is None:
            if not node.children and not node.keep_ref:
                self._tree.drop_root(node.root)
        elif node.root.detached:
            self._device.free(self.take_device(node))
            if not node.keep_ref:
                self._host.free(self.take_host(node))
                self._tree.remove(node)
        else:
            if len(node.pages) and not node.device_children:
                self._device.queue(node)
            if len(node.host) and not node.host_children and not node.keep_ref:
                self._host.queue(node)

    # --- giving and taking

    def give_device(self, node: Node, pages: PageIds) -> None:
        """A node without device pages gets leased ones. Its parent has some, or is a root."""
        self._device.take(pages)
        node.pages = pages
        if node.parent is not None:
            self._device.unqueue(node.parent)
            node.parent.device_children += 1
        self._count(self._device, len(pages), held=node.lock_ref > 0)

    def give_host(self, node: Node, pages: PageIds) -> None:
        """A node without host pages gets leased ones."""
        self._host.take(pages)
        node.host = pages
        if node.parent is not None:
            self._host.unqueue(node.parent)
            node.parent.host_children += 1
        self._count(self._host, len(pages), held=node.lock_ref > 0 or node.keep_ref > 0)
        if self.log is not None and not node.root.detached:
            assert node.parent is not None
            self.log.append(Kept(node.root.namespace, self.chain(node.parent), node.run(), pages))
        self._settle(node)

    def take_device(self, node: Node) -> PageIds:
        """Takes a node's device pages; they stay cached in the ledger. No child of it has any."""
        pages, node.pages = node.pages, NO_PAGES
        if len(pages):
            self._device.unqueue(node)
            self._count(self._device, -len(pages), held=node.lock_ref > 0)
            if node.parent is not None:
                node.parent.device_children -= 1
                self._settle_parent(node.parent)
        return pages

    def take_host(self, node: Node) -> PageIds:
        """Takes a node's host pages; they stay cached in the ledger. No child of it has any."""
        pages, node.host = node.host, NO_PAGES
        if len(pages):
            self._host.unqueue(node)
            self._count(self._host, -len(pages), held=node.lock_ref > 0 or node.keep_ref > 0)
            if node.parent is not None:
                node.parent.host_children -= 1
                self._settle_parent(node.parent)
            if self.log is not None and not node.root.detached:
                self.log.append(Lost(pages))
        return pages

    def _settle_parent(self, parent: Node) -> None:
        if parent.parent is not None and not parent.root.detached:
            self._settle(parent)

    @staticmethod
    def _count(tier: Tier, pages: int, *, held: bool) -> None:
        if held:
            tier.protected += pages
        else:
            tier.evictable += pages

    # --- shrinking

    def evict_device(self, pages: int) -> None:
        """Frees exactly `pages` device pages off the tails of evictable nodes, in policy order. There are as many."""
        while pages:
            node = self._device.first()
            if node.size > pages and not len(node.host) and not node.children:
                self._device.evictable -= pages
                self.dropped += pages
                self._device.free(node.cut_tail(pages, self._tree.page_bytes))
                return
            if node.size > pages:
                self._tree.split(node, node.size - pages)
            pages -= node.size
            self.drop_device(node)

    def drop_device(self, node: Node) -> None:
        """Frees an evictable node's device pages. Without host pages, it and what hangs below it leave the tree."""
        self._device.free(self.take_device(node))
        if not len(node.host):
            self.dropped += node.size
            self._prune(node)

    def evict_host(self, pages: int) -> None:
        """Frees exactly `pages` host pages off the tails of evictable nodes, in policy order. There are as many."""
        while pages:
            node = self._host.first()
            if node.size > pages:
                self._tree.split(node, node.size - pages)
            pages -= node.size
            self._host.free(self.take_host(node))
            if not len(node.pages):
                self._leave(node)

    def drop_bare(self, nodes: Iterable[Node]) -> None:
        """Takes what has no pages left out of the tree. `nodes`: unlocked, from the bottom up."""
        for node in nodes:
            if not len(node.pages) and not len(node.host) and not node.root.detached:
                self._leave(node)

    def _prune(self, top: Node) -> None:
        """Takes out a node without pages, and its descendants, which only the host holds, children first."""
        order, stack = [], [top]
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(node.children.values())
        for node in reversed(order):
            self._host.free(self.take_host(node))
            self._leave(node)

    def _leave(self, node: Node) -> None:
        self._host.unqueue(node)
        parent = node.parent
        assert parent is not None
        self._tree.remove(node)
        self._settle(parent)

    def detach(self) -> None:
        """Makes everything unmatchable: frees what nothing holds, and leaves the rest to be freed when it is let go."""
        nodes = [node for node in self._tree if not node.root.detached]
        roots = list(self._tree.roots.values())
        self._tree.detach()
        if self.log is not None:
            self.log += [Lost(node.host) for node in nodes if len(node.host)]
        for node in reversed(nodes):  # children first
            self._device.unqueue(node)
            self._host.unqueue(node)
            self._settle(node)
        for root in roots:
            self._settle(root)

    # --- the journal's names

    def chain(self, node: Node) -> bytes:
        """Hash of the prefix that ends with a node's run. Kept in the node once it is known."""
        path = []
        while node.parent is not None and node.chain is None:
            path.append(node)
            node = node.parent
        value = node.chain or ROOT
        width = self._tree.page_bytes
        for below in reversed(path):
            run = below.run()
            for at in range(0, len(run), width):
                value = chain(value, run[at : at + width])
            below.chain = value
        return value
