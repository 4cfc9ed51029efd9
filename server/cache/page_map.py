"""What every page is at one moment, for a picture."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixd.server.cache.invariants import all_leases
from radixd.server.cache.ledger import Owner
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.results import NO_PAGES, PageIds

MAX_HELD = 10_000
"""Leases and nodes that one reading visits: it bounds the time that a reading takes."""


class PageState(IntEnum):
    """An Owner, whose CACHED has become one of two."""

    FREE = Owner.FREE
    LEASED = Owner.LEASED
    EVICTABLE = Owner.CACHED
    RETIRED = Owner.RETIRED
    SYSTEM = Owner.SYSTEM
    PROTECTED = 5


class TierMap(NamedTuple):
    """One tier's pages as they were read; `paint` may run on any thread."""

    owners: NDArray[np.uint8]
    protected: list[PageIds]

    def paint(self) -> NDArray[np.uint8]:
        """The PageState of every page, by id."""
        states = self.owners.copy()
        states[np.concatenate((NO_PAGES, *self.protected))] = PageState.PROTECTED
        return states


class PageMap(NamedTuple):
    """Both tiers of a pool. Not `whole`: too much is held to be visited, and some of it is shown as evictable."""

    device: TierMap
    host: TierMap
    whole: bool


def read_page_map(cache: PrefixCache, max_held: int = MAX_HELD) -> PageMap:
    """Costs a copy of one byte a page, and a visit to each lease and each held node, `max_held` at most."""
    held: set[Node] = set()
    visits = islice(_visits(cache, held), max_held + 1)
    whole = sum(1 for _ in visits) <= max_held
    return PageMap(
        TierMap(cache.ledger.owners(), [node.pages for node in held if node.lock_ref]),
        TierMap(cache.host.ledger.owners(), [node.host for node in held]),
        whole,
    )


def _visits(cache: PrefixCache, held: set[Node]) -> Iterator[None]:
    """Fills `held` with the nodes that leases and copies hold, a visit at a time."""
    for anchor in _anchors(cache):
        yield
        node = anchor
        while node is not None and node.parent is not None and node not in held:
            held.add(node)
            yield
            node = node.parent


def _anchors(cache: PrefixCache) -> Iterator[Node | None]:
    yield from cache.copies.anchors()
    for lease in all_leases(cache):
        yield lease.anchor
