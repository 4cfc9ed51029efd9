"""Recomputes everything a cache keeps twice, and says where it disagrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from radixd.server.cache.lease import Lease, LeaseState
from radixd.server.cache.ledger import Ledger, Owner
from radixd.server.cache.loading import Load
from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.refusal import BrokenInvariant
from radixd.server.cache.results import PageIds


def check_invariants(cache: PrefixCache) -> None:
    """Raises BrokenInvariant with every violation found. Costs time in proportion to pages, nodes and leases."""
    violations = [
        *_device(cache),
        *_host(cache),
        *_tree(cache),
        *_residence(cache),
        *_loads(cache),
        *_locks(cache),
        *_queue(cache),
        *_leases(cache),
        *_admission(cache),
    ]
    if violations:
        raise BrokenInvariant(*violations)


def all_leases(cache: PrefixCache) -> Iterator[Lease]:
    """Every lease that still holds something."""
    for session in cache.sessions.values():
        yield from session.leases.values()
        yield from session.closing
    for remains in cache.endings.remains.values():
        yield from remains.copying


def _device(cache: PrefixCache) -> Iterator[str]:
    """Each owner's device pages, gathered from where they are held, are those that the ledger says."""
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
    yield from _ledger(cache.ledger, [node.pages for node in cache.tree], leased, retired)


def _host(cache: PrefixCache) -> Iterator[str]:
    """The same for host pages, which are leased to offloaded leases, and to copies that will give them to the tree."""
    leased = [lease.saved for lease in all_leases(cache)] + cache.copies.reserved_pages()
    yield from (f"host: {it}" for it in _ledger(cache.host.ledger, [node.host for node in cache.tree], leased, []))


def _ledger(ledger: Ledger, cached: list[PageIds], leased: list[PageIds], retired: list[PageIds]) -> Iterator[str]:
    """Each owner's pages are those that the ledger says, none of them held twice."""
    held = {
        Owner.FREE: ledger.free_ids(),
        Owner.CACHED: _concatenate(cached),
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
    """Nodes are whole pages, known to their parents by their first one."""
    width = cache.tree.page_bytes
    nodes = 0
    for node in cache.tree:
        nodes += 1
        if node.size < 1 or node.stop - node.start != node.size * width:
            yield f"node {node.serial} spans {node.stop - node.start} bytes for {node.size} pages"
        if 2 * (node.stop - node.start) < len(node.buffer):
            yield f"node {node.serial} keeps {len(node.buffer)} bytes for {node.stop - node.start}"
        parent = node.parent
        if parent is None or parent.children.get(node.key(width)) is not node:
            yield f"node {node.serial} is not its parent's child under its key"
        elif node.root is not parent.root:
            yield f"node {node.serial} has another root than its parent"
    if nodes != cache.tree.nodes:
        yield f"{nodes} nodes, counted as {cache.tree.nodes}"
    for namespace, root in cache.tree.roots.items():
        if root.detached or root.namespace != namespace or not (root.children or root.lock_ref or root.keep_ref):
            yield f"root {root.serial} is stale"


def _residence(cache: PrefixCache) -> Iterator[str]:
    """A node has all its pages on a tier or none; it is on one at least, and on the device only where its parent is."""
    for node in cache.tree:
        device, host = len(node.pages), len(node.host)
        if {device, host} not in ({0, node.size}, {node.size}):
            yield f"node {node.serial} of {node.size} pages has {device} device, {host} host pages"
        parent = node.parent
        if device and parent is not None and parent.parent is not None and not len(parent.pages):
            yield f"node {node.serial} is on the device, its parent is not"
        if node.arriving is not None and not (device and node.lock_ref):
            yield f"node {node.serial} is arriving without device pages or a lock"
        if node.root.detached and not node.lock_ref and (device or not node.keep_ref):
            yield f"node {node.serial} is detached and held by nothing"


def _loads(cache: PrefixCache) -> Iterator[str]:
    """Arriving nodes are those that copies in flight are to fill; a lease whose prefix ends in one waits for it."""
    arriving: dict[object, set[Node]] = {}
    for node in cache.tree:
        if node.arriving is not None:
            arriving.setdefault(node.arriving, set()).add(node)
    for load, nodes in arriving.items():
        assert isinstance(load, Load)
        if load.copy_id not in cache.copies:
            yield f"{len(nodes)} nodes are arriving by copy {load.copy_id}, which is not in flight"
        if set(load.anchor.upwards(load.pages)) != nodes:
            yield f"copy {load.copy_id} is to fill other nodes than those that are arriving by it"
    for lease in all_leases(cache):
        if lease.active and not lease.ended and lease.anchor is not None and lease.anchor.arriving is not lease.load:
            yield f"lease {lease.lease_id} waits for another copy than the one that fills its prefix"


def _locks(cache: PrefixCache) -> Iterator[str]:
    """lock_ref is the number of leases and copies anchored at a node or below it, keep_ref that of offloaded leases."""
    locked: Counter[Node] = Counter()
    kept: Counter[Node] = Counter()
    for lease in all_leases(cache):
        held = kept if lease.state is LeaseState.OFFLOADED else locked
        for node in _upwards(lease.anchor):
            held[node] += 1
    for anchor in cache.copies.anchors():
        for node in _upwards(anchor):
            locked[node] += 1
    for node in (*cache.tree, *cache.tree.roots.values(), *cache.tree.detached):
        if node.lock_ref != locked.pop(node, 0):
            yield f"node {node.serial} has lock_ref {node.lock_ref}, which leases and copies do not account for"
        if node.keep_ref != kept.pop(node, 0):
            yield f"node {node.serial} has keep_ref {node.keep_ref}, which offloaded leases do not account for"
    if locked or kept:
        yield f"{len(locked)} nodes are locked and {len(kept)} kept that are not in the tree"


def _upwards(node: Node | None) -> Iterator[Node]:
    while node is not None:
        yield node
        node = node.parent


def _queue(cache: PrefixCache) -> Iterator[str]:
    """Each tier counts what is held in it and what is not, and queues what can be evicted from it, in order."""
    nodes = list(cache.tree)
    sizes = {node: (len(node.pages), len(node.host)) for node in nodes}
    for at, (name, tier) in enumerate((("device", cache.device), ("host", cache.host))):
        held = {node for node in nodes if node.lock_ref or (at == 1 and node.keep_ref)}
        protected = sum(sizes[node][at] for node in held)
        evictable = sum(sizes[node][at] for node in nodes) - protected
        if (evictable, protected) != (tier.evictable, tier.protected):
            counted = (tier.evictable, tier.protected)
            yield f"{name}: evictable, protected are {(evictable, protected)}, counted as {counted}"
        parents = {node.parent for node in nodes if sizes[node][at]}
        leaves = {node for node in nodes if sizes[node][at] and node not in held and node not in parents}
        if set(tier) != leaves or len(tier) != len(leaves):
            yield f"{name}: {len(tier)} nodes are queued for eviction, {len(leaves)} could be evicted"
        for node in tier:
            if not tier.is_current(node):
                yield f"{name}: node {node.serial} is queued under an outdated rank"
    listed = sum(node.listed is not None for node in nodes)
    if listed != len(cache.tree.retention):
        yield f"{len(cache.tree.retention)} nodes are listed for their retention's end, {listed} are in the tree"


def _leases(cache: PrefixCache) -> Iterator[str]:
    """published ≤ pending and written ≤ known, within the table; the published prefix is the anchor's path."""
    size = cache.config.page_size
    for lease in all_leases(cache):
        if lease.state is LeaseState.OFFLOADED and lease.anchor is not None:
            if lease.table.length or cache.tree.depth(lease.anchor) * size != lease.published:
                yield f"lease {lease.lease_id} is offloaded with a page table, or anchored beside its published prefix"
            continue
        known, allocated = len(lease.tokens), lease.table.length * size
        within = lease.ended or lease.written <= min(known, allocated)  # an ended lease's tail is given up first
        if not lease.published <= lease.pending <= allocated or not within:
            lengths = (lease.published, lease.pending, lease.written, known, allocated)
            yield f"lease {lease.lease_id} has published, pending, written, known, allocated {lengths}"
        if lease.anchor is None:
            if lease.table.length or lease.reserved or len(lease.saved):
                yield f"lease {lease.lease_id} is waiting but holds pages"
            continue
        if lease.ended:  # it only waits to let go
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
    reserved = sum(lease.reserved + lease.joined for lease in active)
    growing = sum(lease.reserved == 0 for lease in active)
    by_session = Counter({s.session_id: s.reserved_pages for s in cache.sessions.values()})
    if reserved != admission.reserved or +by_session != +admission.reserved_by or growing != admission.growing:
        counted = (admission.reserved, admission.growing)
        yield f"{reserved} pages reserved and {growing} leases growing, counted as {counted}"
    if admission.unreserved < 0:
        yield f"reservations of {reserved} pages cannot be met from {reserved + admission.unreserved}"


def _concatenate(runs: list[PageIds]) -> PageIds:
    return np.concatenate([np.empty(0, np.int32), *runs])
