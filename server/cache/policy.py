"""Eviction policies: the order in which unlocked leaves go, lowest rank first."""

from __future__ import annotations

from collections.abc import Callable

from radixd.server.cache.node import Node

Rank = tuple[float, ...]

# Hits from which a node is in slru's protected segment.
_SLRU_PROTECTED_HITS = 2

POLICIES: dict[str, Callable[[Node], Rank]] = {
    "priority": lambda node: (node.priority, node.last_use),
    "lru": lambda node: (node.last_use,),
    "lfu": lambda node: (node.hits, node.last_use),
    "slru": lambda node: (node.hits >= _SLRU_PROTECTED_HITS, node.last_use),
    "fifo": lambda node: (node.born,),
    "filo": lambda node: (-node.born,),
    "mru": lambda node: (-node.last_use,),
}
