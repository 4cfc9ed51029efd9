"""How a lease gets its prefix and its pages: match, lock, load, allocate, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from radixd.server.cache.admission import Admission
from radixd.server.cache.checks import pages_for
from radixd.server.cache.config import CacheConfig, WritePolicy
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import Demoter
from radixd.server.cache.importing import Importer, Offer
from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.loading import Load, Loads
from radixd.server.cache.matching import Matcher
from radixd.server.cache.node import Node
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.preemption import Preemption
from radixd.server.cache.promotion import Promoter
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.residence import NOWHERE, Parts, Residence
from radixd.server.cache.results import NO_PAGES, AcquireResult, PageIds
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import Query, RadixTree, Walk


class Growth(NamedTuple):
    """What an Acquire asks for, in pages: the table's length, and what to reserve beyond it."""

    wanted: int
    reserved: int


class Hit(NamedTuple):
    """What an Acquire is to read: a match in the own tree and, of an import, what follows it in a peer's."""

    walk: Walk | None
    parts: Parts  # an import's pages count as the host's: they are to be filled
    pages: int
    rollback: int  # pages
    offer: Offer | None = None


class Acquisition:
    """Every check comes first; from then on nothing can fail."""

    def __init__(
        self,
        config: CacheConfig,
        tree: RadixTree,
        residence: Residence,
        device: Tier,
        admission: Admission,
        demoter: Demoter,
        matcher: Matcher,
        loads: Loads,
        promoter: Promoter,
        importer: Importer,
        preemption: Preemption,
        counters: Counters,
        clock: Callable[[], float],
    ):
        self._config = config
        self._tree = tree
        self._residence = residence
        self._device = device
        self._admission = admission
        self._demoter = demoter
        self._matcher = matcher
        self._loads = loads
        self._promoter = promoter
        self._importer = importer
        self._preemption = preemption
        self._counters = counters
        self._clock = clock

    def activate(
        self,
        lease: Lease,
        max_tokens: int | None,
        allocate_to: int | None,
        reserve_to: int | None,
        *,
        import_from_peers: bool,
    ) -> AcquireResult:
        """Makes a waiting lease active."""
        known, size = len(lease.tokens), self._config.page_size
        query = self._matcher.query(lease.namespace, lease.tokens.read(0, known), known, max_tokens)
        hit, least = self._own_hit(query), known if allocate_to is None else allocate_to
        if import_from_peers and (longer := self._longer_hit(query, hit)) is not None:
            with suppress(Refusal):  # what an import alone has no room for is acquired without it
                self._check(longer.walk, longer.parts, self._growth(longer.pages, least, reserve_to))
                hit = longer
        growth = self._growth(hit.pages, least, reserve_to)
        self._check(hit.walk, hit.parts, growth)

        anchor, now = self._anchor(query, hit), self._clock()
        self._residence.lock(anchor)
        self._tree.hit(anchor, now)
        if hit.offer is not None:
            self._tree.raise_priority(anchor, lease.priority, lease.retain_seconds, now)
        load = self._load(lease, anchor, hit.parts, hit.offer)
        table = PageTable(self._tree.pages_between(None, anchor))
        table.append(self.claim(growth.wanted - hit.pages))
        lease.activate(anchor, table, hit.pages * size, growth.reserved)
        lease.locked_at = now
        self._admission.admit(lease)
        if self._config.write_policy is WritePolicy.WRITE_THROUGH_SELECTIVE:
            self._demoter.save_path(anchor, min_hits=2)
        arriving = (hit.pages - hit.parts.resident) * size
        imported = arriving if load is not None and load.peer else 0
        self._counters.acquired(known, hit.pages * size)
        self._counters.host_hit_tokens += arriving - imported
        self._counters.imported_hit_tokens += imported
        return AcquireResult(
            lease.lease_id,
            hit.pages * size,
            arriving - imported,
            imported,
            hit.rollback * size,
            table.pages.copy(),
            (load.copy_id,) if load is not None else (),
        )

    def restore(self, lease: Lease, allocate_to: int | None, reserve_to: int | None) -> AcquireResult:
        """Brings an offloaded lease back, to pages wherever there are some."""
        anchor, size = lease.anchor, self._config.page_size
        assert anchor is not None
        known, prefix = len(lease.tokens), lease.published // size
        walk = Walk(anchor, None, 0, prefix)
        parts = self._residence.parts(walk)
        if parts.host and parts.arriving:
            message = f"the prefix of lease {lease.lease_id} is arriving for another; restore it when that has ended"
            raise Refusal(Reason.IN_FLIGHT, message)
        growth = self._growth(prefix + len(lease.saved), known if allocate_to is None else allocate_to, reserve_to)
        self._check(walk, parts, growth)

        self._residence.lock(anchor)
        load = self._load(lease, anchor, parts)
        table = lease.table = PageTable(self._tree.pages_between(None, anchor))
        table.append(self.claim(growth.wanted - prefix))
        lease.state, lease.reserved, lease.locked_at = LeaseState.ACTIVE, growth.reserved, self._clock()
        self._admission.admit(lease)
        copy_id = self._preemption.restore(lease, table)
        loading = ((load.copy_id,) if load is not None else ()) + ((copy_id,) if copy_id else ())
        arriving = (parts.host + parts.arriving) * size
        imported = arriving if load is not None and load.peer else 0
        pages = table.pages.copy()
        return AcquireResult(lease.lease_id, lease.readable, arriving - imported, imported, 0, pages, loading)

    def claim(self, pages: int) -> PageIds:
        """Hands out pages that a check has allowed, evicting what is short."""
        if not pages:
            return NO_PAGES
        self._tree.expire(self._clock())
        evictable, dropped = self._device.evictable, self._residence.dropped
        claimed = self._admission.claim(pages)
        self._counters.evicted_pages += evictable - self._device.evictable
        if self._config.host_pages:
            self._counters.demote_skipped_outrun += self._residence.dropped - dropped
        return claimed

    def _own_hit(self, query: Query) -> Hit:
        match, rollback = self._matcher.match(query)
        if match is None:
            return Hit(None, NOWHERE, 0, 0)
        walk = self._worthwhile(match)
        return Hit(walk, self._residence.parts(walk), walk.pages, rollback)

    def _longer_hit(self, query: Query, own: Hit) -> Hit | None:
        """What a peer makes of it, if enough: all that is not on the device here comes from there, in one copy.

        Nothing comes behind pages that are arriving: one copy at most fills a path.
        """
        offer = self._importer.seek(query, own.pages + self._config.import_min_pages)
        if offer is None:
            return None
        walk = self._tree.walk(query.namespace, query.key, offer.pages)
        resident, arriving, _ = self._residence.parts(walk) if walk else NOWHERE
        if arriving or resident == offer.pages:
            return None
        return Hit(walk, Parts(resident, 0, offer.pages - resident), offer.pages, offer.rollback, offer)

    def _anchor(self, query: Query, hit: Hit) -> Node:
        """The end of a hit's path: a node of the tree, or a new leaf for what an import adds."""
        tree, matched = self._tree, hit.walk.pages if hit.walk else 0
        node = tree.cut(hit.walk) if hit.walk else tree.root(query.namespace)
        if matched == hit.pages:
            return node
        return tree.append(node, query.key[matched * tree.page_bytes : hit.pages * tree.page_bytes])

    def _worthwhile(self, match: Walk) -> Walk:
        """The part of a match that is worth having.

        Bytes are copied from the host for enough pages only, and not behind others that are still arriving.
        """
        parts = self._residence.parts(match)
        if parts.host and (parts.arriving or parts.host < self._config.promote_min_pages):
            return self._tree.trim(match, parts.host)
        return match

    def _growth(self, matched: int, allocate_to: int, reserve_to: int | None) -> Growth:
        size = self._config.page_size
        wanted = max(matched, pages_for("allocate_to", allocate_to, size))
        return Growth(wanted, max(0, pages_for("reserve_to", reserve_to or 0, size) - wanted))

    def _check(self, walk: Walk | None, parts: Parts, growth: Growth) -> None:
        """Refuses what never fits, or not now: new pages, reserved ones, and those that the lock takes away."""
        self._admission.check_fits_ever(growth.wanted + growth.reserved, self._config.page_size)
        new = growth.wanted - parts.resident - parts.arriving
        locked = self._residence.unlocked_pages(walk) if walk else 0
        self._admission.check_acquire(new + growth.reserved + parts.arriving + locked)

    def _load(self, lease: Lease, anchor: Node, parts: Parts, offer: Offer | None = None) -> Load | None:
        """Lets the missing part of a locked path arrive, or joins those for whom it does."""
        if parts.arriving:
            return self._loads.join(lease, anchor, parts.arriving)
        if not parts.host:
            return None
        nodes, pages = self._residence.host_nodes(anchor), self.claim(parts.host)
        if offer is not None:
            return self._importer.start(lease, nodes, pages, offer)
        return self._promoter.start(lease, nodes, pages)
