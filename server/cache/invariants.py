"""Recomputes everything a cache keeps twice, and says where it disagrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from radixd.server.cache.lease import Lease
from radixd.server.cache.ledger import Owner
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.refusal import BrokenInvariant
from radixd.server.cache.results import PageIds


def check_invariants(cache: PrefixCache) -> None:
    """Raises BrokenInvariant with every violation found. Costs time in proportion to pages, nodes and leases."""
    violations = [*_ledger(cache), *_tree(cache), *_locks(cache), *_queue(cache), *_leases(cache), *_admission(cache)]
    if violations:
        raise BrokenInvariant(*violations)


def _all_leases(cache: PrefixCache) -> Iterator[Lease]:
    """Every lease that still holds something."""
    for session in cache.sessions.values():
        yield from session.leases.values()
        yield from session.closing
    for remains in cache.endings.remains.values():
        yield from remains.copying


def _ledger(cache: PrefixCache) -> Iterator[str]:
    """Each owner's pages, gathered from where they are held, are those that the ledger says; none is held twice."""
    ledger = cache.ledger
    leased: list[PageIds] = []
    retired: list[PageIds] = []
    for session in cache.sessions.values():
        leased += [lease.table.own_pages() for lease in (*session.leases.values(), *session.closing)]
        leased += [it.pages for it in session.superseded]
        retired += session.retiring.values()
        counted = sum(map(len, session.retiring.values()))
        if session.retired_pages != counted:
            yield f"session {session.session_id} counts {session.retired_pages} retired pages, holds {counted}"
    for remains in cache.endings.remains.values():
        retired += [*remains.pages, *(lease.table.own_pages() for lease in remains.copying)]
    held = {
        Owner.FREE: ledger.free_ids(),
        Owner.CACHED: _concatenate([node.pages for node in cache.tree]),
        Owner.LEASED: _concatenate(leased),
        Owner.RETIRED: _concatenate(retired),
        Owner.SYSTEM: np.zeros(1, np.int32),
    }
    for owner, pages in held.items():
        recorded = ledger.owned_by(owner)
        if not np.array_equal(np.sort(pages), recorded):
            odd = np.setxor1d(pages, recorded)[:8].tolist()
            yield f"{owner.name}: {len(pages)} pages held, {len(recorded)} in the ledger, differing in {odd}"
    counts = (ledger.free, ledger.cached, ledger.leased, ledger.retired)
    if sum(counts) != ledger.total:
        yield f"free, cached, leased, retired {counts} do not sum to {ledger.total}"


def _tree(cache: PrefixCache) -> Iterator[str]:
    """Nodes are whole pages, known to their parents by their first one; counts are those of the nodes."""
    tree, width = cache.tree, cache.tree.page_bytes
    nodes = evictable = protected = 0
    for node in tree:
        nodes += 1
        if not len(node.pages) or node.stop - node.start != len(node.pages) * width:
            yield f"node {node.serial} spans {node.stop - node.start} bytes for {len(node.pages)} pages"
        if 2 * (node.stop - node.start) < len(node.buffer):
            yield f"node {node.serial} keeps {len(node.buffer)} bytes for {node.stop - node.start}"
        if node.parent is None or node.parent.children.get(node.key(width)) is not node:
            yield f"node {node.serial} is not its parent's child under its key"
        elif node.root is not node.parent.root:
            yield f"node {node.serial} has another root than its parent"
        protected += len(node.pages) if node.lock_ref else 0
        evictable += 0 if node.lock_ref else len(node.pages)
        if node.root.detached and not node.lock_ref:
            yield f"node {node.serial} is detached and unlocked"
    if (nodes, evictable, protected) != (tree.nodes, tree.evictable, tree.protected):
        counted = (tree.nodes, tree.evictable, tree.protected)
        yield f"nodes, evictable, protected are {(nodes, evictable, protected)}, counted as {counted}"
    for namespace, root in tree.roots.items():
        if root.detached or root.namespace != namespace or not (root.children or root.lock_ref):
            yield f"root {root.serial} is stale"


def _locks(cache: PrefixCache) -> Iterator[str]:
    """A node's lock_ref is the number of leases anchored at it or below."""
    held: Counter[Node] = Counter()
    for lease in _all_leases(cache):
        node = lease.anchor
        while node is not None:
            held[node] += 1
            node = node.parent
    for node in (*cache.tree, *cache.tree.roots.values(), *cache.tree.detached):
        if node.lock_ref != held.pop(node, 0):
            yield f"node {node.serial} has lock_ref {node.lock_ref}, which its leases do not account for"
    if held:
        yield f"{len(held)} nodes are locked but not in the tree"


def _queue(cache: PrefixCache) -> Iterator[str]:
    """The eviction queue holds exactly the unlocked leaves, in order; retention holds on to no node that is gone."""
    leaves = {node for node in cache.tree if not node.children and not node.lock_ref}
    queued = list(cache.tree.queue)
    if set(queued) != leaves or len(queued) != len(leaves):
        yield f"{len(queued)} leaves are queued for eviction, {len(leaves)} could be evicted"
    for node in queued:
        if node.rank != cache.tree.queue.rank(node):
            yield f"node {node.serial} is queued under an outdated rank"
    listed = sum(node.listed is not None for node in cache.tree)
    if listed != len(cache.tree.retention):
        yield f"{len(cache.tree.retention)} nodes are listed for their retention's end, {listed} are in the tree"


def _leases(cache: PrefixCache) -> Iterator[str]:
    """published ≤ pending and written ≤ known, within the table; the published prefix is the anchor's path."""
    size = cache.config.page_size
    for lease in _all_leases(cache):
        known, allocated = len(lease.tokens), lease.table.length * size
        within = lease.ended or lease.written <= min(known, allocated)  # an ended lease's tail is given up first
        if not lease.published <= lease.pending <= allocated or not within:
            lengths = (lease.published, lease.pending, lease.written, known, allocated)
            yield f"lease {lease.lease_id} has published, pending, written, known, allocated {lengths}"
        if lease.anchor is None:
            if lease.table.length or lease.reserved:
                yield f"lease {lease.lease_id} is waiting but holds pages"
            continue
        path = cache.tree.pages_between(None, lease.anchor)
        if len(path) * size != lease.published:
            yield f"lease {lease.lease_id} is anchored at {len(path)} pages, published {lease.published} tokens"
            continue
        cached = ~np.isin(lease.table.pages[: len(path)], lease.table.own_pages())
        if not np.array_equal(lease.table.pages[: len(path)][cached], path[cached]):
            yield f"lease {lease.lease_id} reads other pages than the tree's"
        if len(lease.table.own_pages(len(path))) != lease.table.length - len(path):
            yield f"lease {lease.lease_id} does not own all its unpublished pages"


def _admission(cache: PrefixCache) -> Iterator[str]:
    """Reservations are those of the leases, and can all be met."""
    admission = cache.admission
    active = [lease for session in cache.sessions.values() for lease in session.leases.values() if lease.active]
    reserved = sum(lease.reserved for lease in active)
    growing = sum(lease.reserved == 0 for lease in active)
    by_session = Counter({s.session_id: s.reserved_pages for s in cache.sessions.values()})
    if reserved != admission.reserved or +by_session != +admission.reserved_by or growing != admission.growing:
        counted = (admission.reserved, admission.growing)
        yield f"{reserved} pages reserved and {growing} leases growing, counted as {counted}"
    if admission.unreserved < 0:
        yield f"reservations of {reserved} pages cannot be met from {reserved + admission.unreserved}"


def _concatenate(runs: list[PageIds]) -> PageIds:
    return np.concatenate([np.empty(0, np.int32), *runs])
