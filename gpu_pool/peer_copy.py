"""Copies between two pools of a node: pages that one pool's devices hold come to another's without the host."""

from concurrent.futures import Future

import numpy.typing as npt

from radixd.gpu_pool.device import PageCopy, joined, page_runs
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.pairs import IdRange, MoveError, checked_pairs
from radixd.gpu_pool.views import same_bytes

_MEMORY = {"cpu_async": "cpu"}
"""Kinds of devices that are the same memory, copied at other times."""


def import_pages(
    source: PoolMemory, source_pages: npt.ArrayLike, target: PoolMemory, target_pages: npt.ArrayLike
) -> Future[None]:
    """Copy page source_pages[i] of `source` to page target_pages[i] of every device of `target`. The lists are copied.

    Layouts may differ. Target device i reads source device i modulo their number: a pool's devices all hold the same
    KV, and so no source feeds more targets than it must. The copies run on the targets' devices; the sources are read
    when they run, so they must not change, nor `source` be closed, before the future has ended.

    Raises MoveError, and nothing moves, if lengths differ, an id is outside 1..num_pages of its pool, a target
    repeats, the geometries differ, both are one pool, or they lie in memory of different kinds.
    """
    if source is target:
        raise MoveError("a pool imports nothing from itself: use copy_pages")
    ours, theirs = target.layout.geometry, source.layout.geometry
    if ours != theirs:
        raise MoveError(f"the source holds pages of geometry {theirs.name}, the target of {ours.name}")
    kinds = {_MEMORY.get(device.kind, device.kind) for memory in (source, target) for device in memory.devices}
    if len(kinds) > 1:
        raise MoveError(f"pools on {' and '.join(sorted(kinds))} share no pages: both must lie in memory of one kind")
    runs = page_runs(
        *checked_pairs(
            source_pages,
            IdRange("source pages", 1, source.layout.physical_pages),
            target_pages,
            IdRange("target pages", 1, target.layout.physical_pages),
        )
    )
    parts: list[Future[None]] = []
    for rank, (device, views) in enumerate(zip(target.devices, target.views, strict=True)):
        peer = rank % len(source.devices)
        device.add_peer(source.devices[peer])
        pairs = same_bytes(source.views[peer], views)
        parts.append(device.copy_async([PageCopy(there, here, runs) for there, here in pairs]))
    return joined(parts)
