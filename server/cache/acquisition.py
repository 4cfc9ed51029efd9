"""How a lease gets its prefix and its pages: match, lock, load, allocate, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from radixd.server.cache.admission import Admission
from radixd.server.cache.checks import pages_for
from radixd.server.cache.config import CacheConfig, WritePolicy
from radixd.server.cache.counters import Counters
from radixd.server.cache.demotion import Demoter
from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.namespace import Namespace
from radixd.server.cache.node import Node
from radixd.server.cache.page_table import PageTable
from radixd.server.cache.preemption import Preemption
from radixd.server.cache.promotion import Promoter
from radixd.server.cache.refusal import Reason, Refusal
from radixd.server.cache.residence import NOWHERE, Parts, Residence
from radixd.server.cache.results import NO_PAGES, AcquireResult, PageIds
from radixd.server.cache.tier import Tier
from radixd.server.cache.tree import RadixTree, Walk


class Growth(NamedTuple):
    """What an Acquire asks for, in pages: the table's length, and what to reserve beyond it."""

    wanted: int
    reserved: int


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
        promoter: Promoter,
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
        self._promoter = promoter
        self._preemption = preemption
        self._counters = counters
        self._clock = clock

    def match(self, namespace: Namespace, tokens: bytes, known: int, max_tokens: int | None) -> tuple[Walk | None, int]:
        """The reusable match of `known` tokens, and how many tokens speculation took off it."""
        limit = known - 1 if max_tokens is None else max_tokens
        key = self._config.speculative.key(tokens)
        walk = self._tree.walk(namespace, key, max(0, limit) // self._config.page_size)
        if walk is None:
            return None, 0
        rollback = self._config.speculative.rollback_pages(walk.pages)
        if rollback:
            walk = self._tree.trim(walk, rollback)
        return walk, rollback * self._config.page_size

    def activate(
        self, lease: Lease, max_tokens: int | None, allocate_to: int | None, reserve_to: int | None
    ) -> AcquireResult:
        """Makes a waiting lease active."""
        known, size = len(lease.tokens), self._config.page_size
        match, rollback = self.match(lease.namespace, lease.tokens.read(0, known), known, max_tokens)
        walk = self._worthwhile(match) if match else None
        parts = self._residence.parts(walk) if walk else NOWHERE
        matched = walk.pages if walk else 0
        growth = self._growth(matched, known if allocate_to is None else allocate_to, reserve_to)
        self._check(walk, parts, growth)

        anchor = self._tree.cut(walk) if walk else self._tree.root(lease.namespace)
        self._residence.lock(anchor)
        self._tree.hit(anchor, self._clock())
        loading = self._load(lease, anchor, parts)
        table = PageTable(self._tree.pages_between(None, anchor))
        table.append(self.claim(growth.wanted - matched))
        lease.activate(anchor, table, matched * size, growth.reserved)
        self._admission.admit(lease)
        if self._config.write_policy is WritePolicy.WRITE_THROUGH_SELECTIVE:
            self._demoter.save_path(anchor, min_hits=2)
        arriving = (matched - parts.resident) * size
        self._counters.acquired(known, matched * size)
        self._counters.host_hit_tokens += arriving
        return AcquireResult(lease.lease_id, matched * size, arriving, rollback, table.pages.copy(), loading)

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
        loading = self._load(lease, anchor, parts)
        table = lease.table = PageTable(self._tree.pages_between(None, anchor))
        table.append(self.claim(growth.wanted - prefix))
        lease.state, lease.reserved = LeaseState.ACTIVE, growth.reserved
        self._admission.admit(lease)
        copy_id = self._preemption.restore(lease, table)
        loading += (copy_id,) if copy_id else ()
        arriving = (parts.host + parts.arriving) * size
        return AcquireResult(lease.lease_id, lease.readable, arriving, 0, table.pages.copy(), loading)

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

    def _load(self, lease: Lease, anchor: Node, parts: Parts) -> tuple[int, ...]:
        """Lets the host part of a locked path arrive, or joins those for whom it does. Returns the copy, if any."""
        if parts.arriving:
            return (self._promoter.join(lease, anchor, parts.arriving).copy_id,)
        if parts.host:
            nodes = self._residence.host_nodes(anchor)
            return (self._promoter.start(lease, nodes, self.claim(parts.host)).copy_id,)
        return ()
