"""The Admin service: an operator looks at pools, and acts on them."""

import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version

import grpc

from radixd.server.cache.invariants import check_invariants
from radixd.server.cache.refusal import BrokenInvariant, Reason, Refusal
from radixd.server.gate import Gate
from radixd.server.rpc import convert_admin
from radixd.server.rpc.convert import bad_field
from radixd.server.rpc.methods import Methods, awaited, unary
from radixd.server.sessions.calls import Calls
from radixd.server.sessions.fault import check_served, stop_pool
from radixd.server.sessions.registry import PoolT, SessionRegistry
from radixd.server.sessions.served_pool import ServedPool
from radixd.v1 import admin_pb2 as pb

NAME = "radixd.v1.Admin"

DEFAULT_NODES = 1_000
MAX_NODES = 100_000


class AdminService:
    """What reads answers in every phase, and of a stopped pool too; what changes anything, only while serving."""

    def __init__(self, registry: SessionRegistry[PoolT], pools: Mapping[str, ServedPool], gate: Gate):
        self._registry = registry
        self._pools = pools
        self._gate = gate
        self._started = time.monotonic()

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """All methods of radixd.v1.Admin, which are counted in `calls`."""
        methods: Methods = {
            "Occupancy": unary(calls, pb.OccupancyRequest, self.occupancy),
            "Evict": unary(calls, pb.EvictRequest, self.evict),
            "Flush": unary(calls, pb.FlushRequest, self.flush),
            "Check": unary(calls, pb.CheckRequest, self.check),
            "DumpTree": unary(calls, pb.DumpTreeRequest, self.dump_tree),
            "ListSessions": unary(calls, pb.ListSessionsRequest, self.list_sessions),
            "Reap": unary(calls, pb.ReapRequest, self.reap),
            "Snapshot": awaited(calls, pb.SnapshotRequest, self.snapshot),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    def occupancy(self, request: pb.OccupancyRequest) -> pb.OccupancyResponse:
        """Occupancy."""
        sessions = list(self._registry)
        return pb.OccupancyResponse(
            server_version=version("radixd"),
            epoch=self._registry.epoch,
            uptime_seconds=time.monotonic() - self._started,
            pools=[convert_admin.pool_occupancy(pool, sessions) for pool in self._named(request.pool)],
        )

    def evict(self, request: pb.EvictRequest) -> pb.EvictResponse:
        """Evict."""
        pool = self._served(request.pool)
        evicted = pool.cache.evict(request.pages)
        pool.turn()
        return pb.EvictResponse(evicted_pages=evicted)

    def flush(self, request: pb.FlushRequest) -> pb.FlushResponse:
        """Flush."""
        pool = self._served(request.pool)
        flushed = pool.cache.flush()
        pool.turn()
        return pb.FlushResponse(
            generation=flushed.generation, freed_pages=flushed.freed_pages, detached_pages=flushed.detached_pages
        )

    def check(self, request: pb.CheckRequest) -> pb.CheckResponse:
        """Check. It holds up every call while it counts: seconds where there are millions of pages."""
        response = pb.CheckResponse()
        for pool in self._named(request.pool):
            response.checked_pages += pool.cache.config.pages
            response.checked_nodes += pool.cache.tree.nodes
            try:
                check_invariants(pool.cache)
            except BrokenInvariant as broken:
                stop_pool(pool, str(broken))
                response.violations.extend(broken.violations)
        return response

    def dump_tree(self, request: pb.DumpTreeRequest) -> pb.DumpTreeResponse:
        """DumpTree."""
        if request.max_nodes > MAX_NODES:
            raise bad_field("max_nodes", f"{request.max_nodes} nodes are above the {MAX_NODES} that one reply may show")
        cache = self._pool(request.pool).cache
        nodes = convert_admin.nodes(cache, request.max_nodes or DEFAULT_NODES)
        return pb.DumpTreeResponse(nodes=nodes, total_nodes=cache.tree.nodes)

    def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        """ListSessions."""
        names = {pool.name for pool in self._named(request.pool)}
        sessions = [session for session in self._registry if session.pool.name in names]
        return pb.ListSessionsResponse(sessions=map(convert_admin.session_info, sessions))

    def reap(self, request: pb.ReapRequest) -> pb.ReapResponse:
        """Reap."""
        return pb.ReapResponse(freed_pages=self._registry.reap(request.session_id, request.client_name))

    async def snapshot(self, request: pb.SnapshotRequest) -> pb.SnapshotResponse:
        """Snapshot."""
        pool = self._served(request.pool)
        if not pool.journal:
            raise bad_field("pool", f"{pool.name} has no state directory; start the daemon with --state-dir")
        taken = await pool.snapshot()
        check_served(pool)
        if pool.journal != "ok":
            raise Refusal(Reason.BROKEN_INVARIANT, f"pool {pool.name} keeps no journal any more: {pool.journal}")
        return pb.SnapshotResponse(host_pages=taken.host_pages, path=str(taken.path))

    def _named(self, name: str) -> Iterable[ServedPool]:
        """The pool of that name; all of them where it is empty."""
        return [self._pool(name)] if name else self._pools.values()

    def _pool(self, name: str) -> ServedPool:
        if not name and len(self._pools) == 1:
            return next(iter(self._pools.values()))
        if name not in self._pools:
            names = ", ".join(self._pools)
            message = f"pool: no pool {name[:64]!r} is served here; name one of: {names}"
            raise Refusal(Reason.NO_POOL, message, field="pool", facts={"pools": names})
        return self._pools[name]

    def _served(self, name: str) -> ServedPool:
        """A pool that may be changed now."""
        self._gate.check()
        pool = self._pool(name)
        check_served(pool)
        return pool
