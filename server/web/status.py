"""The state of the whole daemon as JSON, read no more often than it changes to the eye."""

import asyncio
import json
import time
from collections.abc import Mapping
from importlib.metadata import version

from radixd.server.gate import Gate
from radixd.server.observability.loop_reader import LoopReader
from radixd.server.pools.pool import Pool
from radixd.server.sessions.registry import SessionRegistry
from radixd.server.web.health import unready
from radixd.server.web.page_data import pool_data
from radixd.server.web.pool_reading import read_pool

SHARED_SECONDS = 0.5
"""Whoever asks within this time gets the same answer: many viewers cost the loop what one does."""


class Status:
    """Belongs to the web thread; what it reads belongs to the daemon's loop."""

    def __init__(
        self, reader: LoopReader, pools: Mapping[str, Pool], registry: SessionRegistry[Pool], gate: Gate
    ) -> None:
        self._reader = reader
        self._pools = pools
        self._registry = registry
        self._gate = gate
        self._version = version("radixd")
        self._started = time.monotonic()
        self._latest = b""
        self._fresh_until = 0.0
        self._turn = asyncio.Lock()

    async def unready(self) -> list[str]:
        """Why the daemon takes no work; empty where it does. Raises LoopSilentError."""
        return await self._reader.read(lambda: unready(self._gate, self._pools.values()))

    async def json(self) -> bytes:
        """Everything the page shows, UTF-8. Raises LoopSilentError."""
        async with self._turn:
            if time.monotonic() >= self._fresh_until:
                self._latest = await self._read()
                self._fresh_until = time.monotonic() + SHARED_SECONDS
            return self._latest

    async def _read(self) -> bytes:
        reasons = await self.unready()
        # One step a pool: pools share nothing, and so no step is longer than one pool's.
        pools = [
            pool_data(await self._reader.read(lambda pool=pool: read_pool(pool, self._registry)))  # type: ignore[misc]
            for pool in self._pools.values()
        ]
        state = {
            "version": self._version,
            "epoch": str(self._registry.epoch),  # beyond what a JavaScript number holds
            "uptime_seconds": time.monotonic() - self._started,
            "unready": reasons,
            "pools": pools,
        }
        return json.dumps(state, separators=(",", ":")).encode()
