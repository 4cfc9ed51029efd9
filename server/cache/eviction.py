"""The order of eviction, kept sorted: every change costs O(log n), whatever the number of leaves."""

from __future__ import annotations

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
        self._deadlines: SortedDict[tuple[float, int], Node] = SortedDict()

    def __len__(self) -> int:
        return len(self._deadlines)

    def watch(self, node: Node, expires: float) -> None:
        node.expires = expires
        if node.listed is None or expires < node.listed:
            self._drop(node)
            node.listed = expires
            self._deadlines[expires, node.serial] = node

    def forget(self, node: Node) -> None:
        """The node is gone from the tree, and nothing may keep it in memory until its deadline."""
        node.expires = None
        self._drop(node)

    def _drop(self, node: Node) -> None:
        if node.listed is not None:
            del self._deadlines[node.listed, node.serial]
            node.listed = None

    def expired(self, now: float) -> list[Node]:
        """Takes out the nodes whose deadline has passed."""
        over = []
        while self._deadlines and self._deadlines.peekitem(0)[0][0] <= now:
            _, node = self._deadlines.popitem(0)
            node.listed = None
            assert node.expires is not None
            if node.expires > now:
                self.watch(node, node.expires)
            else:
                node.expires = None
                over.append(node)
        return over
