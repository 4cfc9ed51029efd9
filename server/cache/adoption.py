"""Host pages of an earlier life, taken over by a fresh cache."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from radixd.server.cache.ledger import Owner
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import PageIds
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import RadixTree


def adopt(tree: RadixTree, residence: Residence, host: Tier, paths: Iterable[tuple[Namespace, bytes, PageIds]]) -> int:
    """Fills an empty tree. Returns how many host pages it took. See PrefixCache.adopt."""
    ledger, width = host.ledger, tree.page_bytes
    everything = ledger.lease(ledger.free)
    for namespace, key, host_pages in paths:
        walk = tree.overlap(tree.root(namespace), key)
        node, new = tree.cut(walk), host_pages[walk.pages :].copy()
        if len(new):
            residence.give_host(tree.append(node, key[walk.pages * width :]), new)
    ledger.release(np.setdiff1d(everything, ledger.owned_by(Owner.CACHED)).astype(np.int32), Owner.LEASED)
    return ledger.cached
