"""When priorities expire."""

from __future__ import annotations

from sortedcontainers import SortedDict

from radixd.server.cache.node import Node


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
