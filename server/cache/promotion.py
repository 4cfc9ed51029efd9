"""Host to device: a hit whose bytes have to arrive first."""

from __future__ import annotations

import numpy as np

from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.lease import Lease
from radixd.server.cache.loading import Load, Loads
from radixd.server.cache.node import Node
from radixd.server.cache.results import NO_PAGES, CopyKind, PageIds


class Promoter:
    """Loads nodes from the host. Where a copy fails they stay there, and the next one may try again."""

    def __init__(self, loads: Loads, copies: Copies, counters: Counters):
        self._loads = loads
        self._copies = copies
        self._counters = counters

    def start(self, lease: Lease, nodes: list[Node], pages: PageIds) -> Load:
        """Begins to fill leased `pages` with the host pages of `nodes`, a locked path from the top down."""
        load = self._loads.begin(lease, nodes, pages)
        host_pages = np.concatenate([NO_PAGES, *(node.host for node in nodes)])
        load.copy_id = self._copies.plan(
            CopyKind.PROMOTE, pages.copy(), host_pages, lambda error: self._finish(load, error), anchor=load.anchor
        )
        return load

    def _finish(self, load: Load, error: str) -> None:
        if error:
            self._counters.promote_failed_pages += load.pages
            self._loads.give_up(load, error)
        else:
            self._counters.promoted_pages += load.pages
            self._loads.arrive(load)
        self._loads.close(load)
