"""How long a prefix can be reused: in this pool, and, where that is asked, in its peers."""

from __future__ import annotations

from radixd.server.cache.config import CacheConfig
from radixd.server.cache.importing import Importer
from radixd.server.cache.loading import Load
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import MatchResult
from radixd.server.cache.tree import Query, RadixTree, Walk


class Matcher:
    """Reads the tree under one pool's page size and speculative mode."""

    def __init__(self, config: CacheConfig, tree: RadixTree, residence: Residence, importer: Importer):
        self._config = config
        self._tree = tree
        self._residence = residence
        self._importer = importer

    def query(self, namespace: Namespace, tokens: bytes, known: int, max_tokens: int | None) -> Query:
        """What to look for, given `known` tokens of which at most `max_tokens` may match."""
        limit = known - 1 if max_tokens is None else max_tokens
        return Query(namespace, self._config.speculative.key(tokens), max(0, limit) // self._config.page_size)

    def match(self, query: Query) -> tuple[Walk | None, int]:
        """The reusable match, and how many pages speculation took off it."""
        walk = self._tree.walk(*query)
        if walk is None:
            return None, 0
        rollback = self._config.speculative.rollback_pages(walk.pages)
        return (self._tree.trim(walk, rollback) if rollback else walk), rollback

    def measure(self, query: Query, *, peek: bool, peers: bool) -> MatchResult:
        """The match in tokens. Refreshes its recency unless `peek`; asks the peers where `peers`."""
        walk, rollback = self.match(query)
        pages = unlocked = resident = arriving = host = lent = 0
        peer = ""
        if walk is not None:
            if not peek:
                self._tree.touch(walk.partial or walk.node)
            resident, arriving, host = self._residence.parts(walk)
            pages, unlocked = walk.pages, self._residence.unlocked_pages(walk)
        if walk is not None and arriving:
            peer = _arriving_from(walk)
            host, lent = (host, arriving) if peer else (host + arriving, 0)
        elif peers and (offer := self._importer.seek(query, pages + 1)) is not None:
            peer, lent, rollback = offer.peer.name, offer.pages - pages, offer.rollback
        size = self._config.page_size
        return MatchResult(resident * size, host * size, unlocked, rollback * size, lent * size, peer)


def _arriving_from(walk: Walk) -> str:
    """The peer that the arriving part of a match comes from; "" for the host."""
    node = walk.partial or walk.node
    while node.arriving is None:  # the host part lies below
        assert node.parent is not None
        node = node.parent
    assert isinstance(node.arriving, Load)
    return node.arriving.peer
