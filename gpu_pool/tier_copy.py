"""Copies between a pool's tiers. A page travels whole: latent, index key and index scale, on every layer.

A host page has the bytes of a page_first page whatever the device's layout, so what one layout saved another loads.
"""

from concurrent.futures import Future

import numpy.typing as npt

from radixd.gpu_pool.device import PageCopy, page_runs
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.pairs import IdRange, MoveError, checked_pairs
from radixd.gpu_pool.views import same_bytes


def save_pages(
    memory: PoolMemory, host: HostPool, device_pages: npt.ArrayLike, host_pages: npt.ArrayLike
) -> Future[None]:
    """Copy device page device_pages[i] to host page host_pages[i]. The lists are copied.

    Reads the first device alone: all of them hold the same KV. The sources are read when the copy runs, so they must
    not change before the future has ended. Raises MoveError, and nothing moves, if lengths differ, an id is outside
    1..num_pages of its tier, a target repeats, or the tiers' geometries differ.
    """
    devices, hosts = _tiers(memory, host)
    runs = page_runs(*checked_pairs(device_pages, devices, host_pages, hosts))
    return memory.devices[0].copy_async([PageCopy(*pair, runs) for pair in same_bytes(memory.views[0], host.views)])


def load_pages(
    memory: PoolMemory, host: HostPool, host_pages: npt.ArrayLike, device_pages: npt.ArrayLike
) -> Future[None]:
    """Copy host page host_pages[i] to page device_pages[i] of every device; the future ends with the last of them.

    Raises MoveError as `save_pages` does.
    """
    devices, hosts = _tiers(memory, host)
    runs = page_runs(*checked_pairs(host_pages, hosts, device_pages, devices))
    return memory.copy_async(
        lambda views: [PageCopy(there, here, runs) for here, there in same_bytes(views, host.views)]
    )


def _tiers(memory: PoolMemory, host: HostPool) -> tuple[IdRange, IdRange]:
    """The ids of the device's and of the host's pages. Raises MoveError if the pages' bytes mean different things."""
    ours, theirs = memory.layout.geometry, host.layout.geometry
    if ours != theirs:
        raise MoveError(f"the device holds pages of geometry {ours.name}, the host tier of {theirs.name}")
    return (
        IdRange("device pages", 1, memory.layout.physical_pages),
        IdRange("host pages", 1, host.layout.physical_pages),
    )
