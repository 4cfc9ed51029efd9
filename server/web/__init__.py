"""What the daemon shows over HTTP: its page, its health and its metrics. Read-only, on a thread of its own."""

import asyncio
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from radixd.server.config import Address
from radixd.server.gate import Gate
from radixd.server.observability.loop_reader import LoopReader
from radixd.server.pools.pool import Pool
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.web.app import build_app
from radixd.server.web.listener import WebListener
from radixd.server.web.status import Status

__all__ = ["WebListener", "serve_web"]


def serve_web(
    address: Address,
    pools: Mapping[str, Pool],
    registry: SessionRegistry[Pool],
    gate: Gate,
    metrics: CollectorRegistry,
) -> WebListener:
    """Listens at once; the running loop is the one that owns the pools. Raises OSError where the port is taken."""
    status = Status(LoopReader(asyncio.get_running_loop()), pools, registry, gate)
    return WebListener(address, build_app(status, metrics))
