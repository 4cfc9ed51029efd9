"""Pools, nodes and sessions as operators are shown them."""

from collections.abc import Iterator, Sequence
from itertools import islice

from radixd.server.cache.node import Node
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.rpc.convert import SPECULATIVE, fill_host_occupancy, fill_occupancy
from radixd.server.sessions.served_pool import ServedPool
from radixd.server.sessions.served_session import ServedSession
from radixd.v1 import admin_pb2 as pb


def pool_occupancy(pool: ServedPool, sessions: Sequence[ServedSession]) -> pb.PoolOccupancy:
    """A pool's description, its ledger and its counters; `sessions` are those of all pools."""
    cache, counters = pool.cache, pool.cache.counters
    live = [cache.session(session.id) for session in sessions if session.pool is pool and not session.ended]
    active = sum(session.active_leases for session in live)
    message = pb.PoolOccupancy(
        pool=pool.name,
        geometry=pool.geometry.name,
        layout=pool.layout_kind,
        device_kind=pool.device_kind,
        devices=pool.devices,
        page_size=pool.geometry.page_size,
        page_bytes=pool.geometry.bytes_per_page,
        policy=pool.policy,
        speculative=SPECULATIVE[pool.speculative],
        generation=cache.generation,
        nodes=cache.tree.nodes,
        sessions=len(live),
        active_leases=active,
        waiting_leases=sum(len(session.leases) for session in live) - active,
        requested_tokens=counters.requested_tokens,
        hit_tokens=counters.hit_tokens,
        evicted_pages=counters.evicted_pages,
        inserted_pages=counters.inserted_pages,
        host_hit_tokens=counters.host_hit_tokens,
        demoted_pages=counters.demoted_pages,
        demote_skipped_pages=counters.demote_skipped_busy
        + counters.demote_skipped_full
        + counters.demote_skipped_outrun,
        promoted_pages=counters.promoted_pages,
        offloaded_pages=counters.offloaded_pages,
        restored_pages=counters.restored_pages,
        failed_copy_pages=counters.demote_failed_pages + counters.promote_failed_pages + counters.import_failed_pages,
        write_policy=cache.config.write_policy if cache.config.host_pages else "",
        journal=pool.journal,
        imported_hit_tokens=counters.imported_hit_tokens,
        imported_pages=counters.imported_pages,
        lent_pages=counters.lent_pages,
    )
    fill_occupancy(message.device, cache.occupancy())
    fill_host_occupancy(message.host, cache.host_occupancy())
    return message


def session_info(session: ServedSession) -> pb.SessionInfo:
    """A live session, or one that is over and whose pages stay retired."""
    info = pb.SessionInfo(
        session_id=session.id,
        pool=session.pool.name,
        client_name=session.opening.client_name,
        pids=sorted({holder.pid for holder in session.holders}),
        ended=session.ended,
        streaming=session.stream is not None,
        idle_seconds=session.idle_seconds,
    )
    if session.ended:
        info.retired_pages = session.pool.cache.endings.retired_pages(session.id)
        return info
    inner = session.pool.cache.session(session.id)
    info.launched = inner.fence.launched
    info.completed = inner.fence.completed
    info.active_leases = inner.active_leases
    info.waiting_leases = len(inner.leases) - inner.active_leases
    info.leased_pages = inner.leased_pages
    info.retired_pages = inner.retired_pages
    info.reserved_pages = inner.reserved_pages
    return info


def nodes(cache: PrefixCache, limit: int) -> Iterator[pb.Node]:
    """At most `limit` nodes, parents first."""
    ends: dict[int, int] = {}  # tokens from the namespace's root to the end of a node's run
    for node in islice(cache.tree, limit):
        parent = _parent(node)
        start = ends.get(parent, 0)
        tokens = node.size * cache.config.page_size
        ends[node.serial] = start + tokens
        yield pb.Node(
            id=node.serial,
            parent=parent,
            namespace=node.root.namespace.digest(),
            start_token=start,
            tokens=tokens,
            lock_ref=node.lock_ref,
            priority=node.priority,
            hits=node.hits,
            keep_ref=node.keep_ref,
            host_pages=node.host.tobytes(),
            pages=node.pages.tobytes(),
        )


def _parent(node: Node) -> int:
    """Its parent's id; 0 where that is a root."""
    return node.parent.serial if node.parent is not None and node.parent.parent is not None else 0
