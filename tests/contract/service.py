"""The three services over a real Unix socket, in the test's own loop, on pools without memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import grpc
from opentelemetry.trace import Tracer

from radixd.gpu_pool.presets import load_geometry
from radixd.server.cache.prefix_cache import CacheConfig, PrefixCache
from radixd.server.cache.refusal import Reason
from radixd.server.cache.results import MovePlan
from radixd.server.cache.speculative import Speculative
from radixd.server.gate import Gate, State
from radixd.server.rpc import add_services
from radixd.server.sessions.limits import Limits
from radixd.server.sessions.liveness import Liveness
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.sessions.served_pool import Snapshot
from radixd.server.sessions.work import Work
from radixd.v1 import admin_pb2, admin_pb2_grpc, cache_pb2_grpc, session_pb2_grpc

EPOCH = 1_700_000_000_000_000_000
PAGES = 32

LIMITS = Limits(
    tokens=4_096, operations=1_000, leases=200, namespace_bytes=1_024, client_name_bytes=32, move_pairs=64,
    replay_batches=4,
)  # fmt: skip
LIVENESS = Liveness(keepalive_seconds=10, grace_seconds=10, ttl_seconds=30)


class LedgerPool:
    """A pool of which only the ledger is real: copies end when the test says so."""

    def __init__(self, name: str, pages: int, speculative: Speculative = Speculative.NONE) -> None:
        self.name = name
        self.geometry = load_geometry("tiny")
        self.layout_kind = "page_first"
        self.device_kind = "meta"
        self.devices = 1
        self.policy = "priority"
        self.speculative = speculative
        self.broken: str | None = None
        self.broken_reason = Reason.BROKEN_INVARIANT
        self.journal = ""
        self.work = Work()
        self.moves: list[tuple[MovePlan, Callable[[str], None]]] = []
        self.cache = PrefixCache(
            CacheConfig(
                pages,
                self.geometry.page_size,
                speculative=speculative,
                max_tokens=LIMITS.tokens,
                max_leases=LIMITS.leases,
                max_move_pairs=LIMITS.move_pairs,
            )
        )

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        self.moves.append((plan, done))

    def turn(self) -> None:
        """Without a host tier, nothing is left to do."""

    async def snapshot(self) -> Snapshot:
        raise AssertionError("there is no journal")

    def end_move(self, error: str = "") -> None:
        """The oldest copy has ended."""
        _, done = self.moves.pop(0)
        done(error)


class Service:
    """A server with its pools, and a channel to it."""

    def __init__(self, path: Path, *pools: LedgerPool, tracer: Tracer | None = None) -> None:
        self.pools = {pool.name: pool for pool in pools}
        self.gate = Gate()
        self.gate.state = State.SERVING
        self.registry = SessionRegistry(self.pools, EPOCH, LIMITS, LIVENESS, "")
        self.address = f"unix:{path}"
        self.server = grpc.aio.server()
        add_services(self.server, self.registry, self.pools, self.gate, tracer)
        self.server.add_insecure_port(self.address)
        self.channel = grpc.aio.insecure_channel(self.address)

    @property
    def pool(self) -> LedgerPool:
        return next(iter(self.pools.values()))

    @property
    def cache(self) -> cache_pb2_grpc.CacheAsyncStub:
        return cache_pb2_grpc.CacheStub(self.channel)

    @property
    def sessions(self) -> session_pb2_grpc.SessionsAsyncStub:
        return session_pb2_grpc.SessionsStub(self.channel)

    @property
    def admin(self) -> admin_pb2_grpc.AdminAsyncStub:
        return admin_pb2_grpc.AdminStub(self.channel)

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.server.stop(None)

    async def state(self) -> tuple[list[admin_pb2.PoolOccupancy], list[admin_pb2.Node]]:
        """Every pool's ledger, counters and tree, as an operator sees them. Fails where they do not add up."""
        assert not (await self.admin.Check(admin_pb2.CheckRequest())).violations
        occupancy = await self.admin.Occupancy(admin_pb2.OccupancyRequest())
        trees = [await self.admin.DumpTree(admin_pb2.DumpTreeRequest(pool=name)) for name in self.pools]
        for pool in occupancy.pools:
            ledger = pool.device
            owned = ledger.free + ledger.evictable + ledger.protected + ledger.leased + ledger.retired
            assert owned == ledger.total
        return list(occupancy.pools), [node for tree in trees for node in tree.nodes]

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Whatever happens inside leaves ledger, counters and tree as they were."""
        before = await self.state()
        yield
        assert await self.state() == before
