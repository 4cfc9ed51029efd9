"""One tier's share of the tree: its ledger, what of it is cached, and in which order that goes."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from radixd.server.cache.ledger import Ledger, Owner
from radixd.server.cache.node import Node
from radixd.server.cache.policy import POLICIES
from radixd.server.cache.results import PageIds


class Tier:
    """A ledger, and the nodes that can be evicted from it, in policy order; every change costs O(log n).

    A node is queued while it has pages here, nothing holds them, and no child of it has pages here.
    """

    def __init__(self, pages: int, policy: str):
        self.ledger = Ledger(pages)
        self.evictable = 0  # cached pages that nothing holds
        self.protected = 0  # cached pages that a lock, or for host pages an offloaded lease, holds
        self._rank = POLICIES[policy]
        self._ranks: dict[Node, tuple[float, ...]] = {}
        self._queue: SortedDict[tuple[float, ...], Node] = SortedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Node]:
        """Queued nodes, the next to go first."""
        return iter(self._queue.values())

    def rank(self, node: Node) -> tuple[float, ...]:
        """Where a node belongs: the policy's order, then age."""
        return (*self._rank(node), node.serial)

    def is_current(self, node: Node) -> bool:
        """Whether a queued node stands where it belongs."""
        return self._ranks[node] == self.rank(node)

    def queue(self, node: Node) -> None:
        """Lets a node be evicted."""
        if node not in self._ranks:
            rank = self._ranks[node] = self.rank(node)
            self._queue[rank] = node

    def unqueue(self, node: Node) -> None:
        """Keeps a node from being evicted."""
        rank = self._ranks.pop(node, None)
        if rank is not None:
            del self._queue[rank]

    def refresh(self, node: Node) -> None:
        """Puts a queued node in its new place, after something its rank depends on has changed."""
        if node in self._ranks:
            self.unqueue(node)
            self.queue(node)

    def first(self) -> Node:
        """The node to go next. The caller has made sure that there is one."""
        node: Node = self._queue.peekitem(0)[1]
        return node

    def protect(self, node: Node, pages: int) -> None:
        """A node's pages here are held from now on."""
        self.unqueue(node)
        self.evictable -= pages
        self.protected += pages

    def expose(self, pages: int) -> None:
        """As many pages here are held no longer."""
        self.protected -= pages
        self.evictable += pages

    def take(self, pages: PageIds) -> None:
        """Leased pages become cached. The caller counts them as evictable or protected."""
        self.ledger.change(pages, Owner.LEASED, Owner.CACHED)

    def free(self, pages: PageIds) -> None:
        """Cached pages go free. The caller has uncounted them."""
        self.ledger.release(pages, Owner.CACHED)
