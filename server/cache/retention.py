"""When priorities expire."""

from __future__ import annotations

import heapq

from radixd.server.cache.node import Node


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
