"""What sessions and calls need of a pool; `radixd.server.pools.pool.Pool` is one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from radixd.gpu_pool.geometry import Geometry
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.refusal import Reason
from radixd.server.cache.results import MovePlan
from radixd.server.cache.speculative import Speculative
from radixd.server.sessions.work import Work


class Snapshot(NamedTuple):
    """What a restart would find."""

    host_pages: int
    path: Path


class ServedPool(Protocol):
    """One slot space with its tree, and the memory behind it."""

    name: str
    cache: PrefixCache
    work: Work
    geometry: Geometry
    layout_kind: str
    device_kind: str
    devices: int
    policy: str
    speculative: Speculative
    broken: str | None
    """Why the pool is no longer served; None while it is."""
    broken_reason: Reason
    """What calls are then refused with."""

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        """Starts a copy elsewhere. `done` follows on the loop's thread, with what went wrong or an empty text."""
        ...

    def turn(self) -> None:
        """Journals what has become of the host tier and starts planned copies: after whatever has changed the cache.

        Never raises. Where the pool is broken, it makes the journal void instead.
        """
        ...

    @property
    def journal(self) -> str:
        """Of the host tier: "" where there is none to keep, "ok", or why it is kept no longer."""
        ...

    async def snapshot(self) -> Snapshot:
        """Copies to the host what fits, waits for it, and makes the journal durable. Only where one is kept."""
        ...
