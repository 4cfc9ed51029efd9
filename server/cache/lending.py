"""The lender's side of an import: prefixes on this pool's device that another pool may copy."""

from __future__ import annotations

from typing import NamedTuple

from radixd.server.cache.admission import Admission
from radixd.server.cache.copies import Copies
from radixd.server.cache.counters import Counters
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.residence import Residence
from radixd.server.cache.results import PageIds
from radixd.server.cache.tree import RadixTree, Walk


class Loan(NamedTuple):
    """Device pages to be read under a copy's lock: `PrefixCache.finish_copy(copy_id)` must follow, whatever happens."""

    copy_id: int
    pages: PageIds


class Lender:
    """Lends what can be read now. Being lent is no use of a prefix: neither its recency nor its hits change."""

    def __init__(self, tree: RadixTree, residence: Residence, admission: Admission, copies: Copies, counters: Counters):
        self._tree = tree
        self._residence = residence
        self._admission = admission
        self._copies = copies
        self._counters = counters

    @property
    def page_bytes(self) -> int:
        """Key bytes of a page. Two pools that differ in it do not key their prefixes alike."""
        return self._tree.page_bytes

    @property
    def busy_pages(self) -> int:
        """Pages under copies."""
        return self._copies.pages

    def offer(self, namespace: Namespace, key: bytes, max_pages: int) -> Walk | None:
        """The longest match of `key` whose bytes are on the device. Changes nothing."""
        walk = self._tree.walk(namespace, key, max_pages)
        return None if walk is None else self._tree.trim(walk, walk.pages - self._residence.parts(walk).resident)

    def shorten(self, walk: Walk, pages: int) -> Walk | None:
        """The first `pages` pages of an offer; None where locking them would break a reservation."""
        walk = self._tree.trim(walk, walk.pages - pages)
        return walk if self._admission.can_lock(self._residence.unlocked_pages(walk)) else None

    def lend(self, walk: Walk, first: int) -> Loan:
        """Locks an offer that `shorten` has allowed, and lends its pages from the one at `first` on."""
        anchor = self._tree.cut(walk)
        self._residence.lock(anchor)
        pages = self._tree.pages_between(None, anchor)[first:]
        self._counters.lent_pages += len(pages)
        return Loan(self._copies.open(len(pages), lambda _: self._residence.unlock(anchor), anchor=anchor), pages)
