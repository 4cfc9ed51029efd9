"""Copies between two pools of a node: pages that one pool's devices hold come to another's without the host."""

from concurrent.futures import Future

import numpy.typing as npt

from radixd.gpu_pool.device import PageCopy, joined, page_runs
from radixd.gpu_pool.handle import memory_kind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.pairs import IdRange, MoveError, checked_pairs
from radixd.gpu_pool.views import same_bytes


def import_pages(
    source: PoolMemory, source_pages: npt.ArrayLike, target: PoolMemory, target_pages: npt.ArrayLike
) -> Future[None]:
    """Copy page source_pages[i] of `source` to page target_pages[i] of every device of `target`. The lists are copied.

    Layouts may differ. Target device i reads source device i modulo their number: a pool's devices all hold the same
    KV, and so no source feeds more targets than it must. The copies run on the targets' devices; the sources are read
    when they run, so they must not change, nor `source` be closed, before the future has ended.

    Raises MoveError, and nothing moves, if lengths differ, an id is outside 1..num_pages of its pool, a target
    repeats, the geometries differ, both are one pool, or they lie in memory of different kinds. Nothing moves either
    where a device cannot reach its peer, and says so in an exception of its own.
    """
    if source is target:
        raise MoveError("a pool imports nothing from itself: use copy_pages")
    ours, theirs = target.layout.geometry, source.layout.geometry
    if ours != theirs:
        raise MoveError(f"the source holds pages of geometry {theirs.name}, the target of {ours.name}")
    kinds = {memory_kind(device.kind) for memory in (source, target) for device in memory.devices}
    if len(kinds) > 1:
        raise MoveError(f"pools in {' and '.join(sorted(kinds))} memory share no pages: both must lie in one")
    runs = page_runs(
        *checked_pairs(
            source_pages,
            IdRange("source pages", 1, source.layout.physical_pages),
            target_pages,
            IdRange("target pages", 1, target.layout.physical_pages),
        )
    )
    lenders = [rank % len(source.devices) for rank in range(len(target.devices))]
    # All of what may fail comes before the first copy: nothing would wait for the copies of earlier ranks.
    for device, lender in zip(target.devices, lenders, strict=True):
        device.add_peer(source.devices[lender])
    plans = [
        [PageCopy(there, here, runs) for there, here in same_bytes(source.views[lender], views)]
        for views, lender in zip(target.views, lenders, strict=True)
    ]
    return joined([device.copy_async(plan) for device, plan in zip(target.devices, plans, strict=True)])
