"""What sessions and calls need of a pool; `radixd.server.pool.Pool` is one."""

from collections.abc import Callable
from typing import Protocol

from radixd.gpu_pool.geometry import Geometry
from radixd.server.cache.prefix_cache import PrefixCache
from radixd.server.cache.results import MovePlan
from radixd.server.cache.speculative import Speculative


class ServedPool(Protocol):
    """One slot space with its tree, and the memory behind it."""

    name: str
    cache: PrefixCache
    geometry: Geometry
    layout_kind: str
    device_kind: str
    devices: int
    policy: str
    speculative: Speculative
    broken: str | None
    """Why the pool is no longer served; None while it is."""

    def run_move(self, plan: MovePlan, done: Callable[[str], None]) -> None:
        """Starts a copy elsewhere. `done` follows on the loop's thread, with what went wrong or an empty text."""
        ...
