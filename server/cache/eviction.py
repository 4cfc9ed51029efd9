"""The order of eviction, kept sorted: every change costs O(log n), whatever the number of leaves."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from sortedcontainers import SortedDict

from radixd.server.cache.node import Node
from radixd.server.cache.policy import POLICIES


class EvictionQueue:
    """Unlocked leaves in policy order, each exactly once."""

    def __init__(self, policy: str):
        self._rank = POLICIES[policy]
        self._leaves: SortedDict[tuple[float, ...], Node] = SortedDict()

    def __len__(self) -> int:
        return len(self._leaves)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._leaves.values())

    def rank(self, leaf: Node) -> tuple[float, ...]:
        """Where a leaf belongs: the policy's order, then age."""
        return (*self._rank(leaf), leaf.serial)

    def add(self, leaf: Node) -> None:
        leaf.rank = self.rank(leaf)
        self._leaves[leaf.rank] = leaf

    def discard(self, node: Node) -> None:
        if node.rank is not None:
            del self._leaves[node.rank]
            node.rank = None

    def refresh(self, node: Node) -> None:
        """Puts a queued node in its new place, after something its rank depends on has changed."""
        if node.rank is not None:
            self.discard(node)
            self.add(node)

    def first(self) -> Node:
        """The leaf to go next. The caller has made sure that there is one."""
        leaf: Node = self._leaves.peekitem(0)[1]
        return leaf


class RetentionClock:
    """Nodes whose priority expires, soonest first. A node is listed once; a hit only moves its own deadline."""

    def __init__(self) -> None:
        self._deadlines: list[tuple[float, int, Node]] = []

    def watch(self, node: Node, expires: float) -> None:
        if node.expires is None:
            heapq.heappush(self._deadlines, (expires, node.serial, node))
        node.expires = expires

    def expired(self, now: float) -> list[Node]:
        """Takes out the nodes whose deadline has passed."""
        over = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial, node = heapq.heappop(self._deadlines)
            if node.expires is None:  # gone from the tree
                continue
            if node.expires > now:
                heapq.heappush(self._deadlines, (node.expires, serial, node))
            else:
                node.expires = None
                over.append(node)
        return over
