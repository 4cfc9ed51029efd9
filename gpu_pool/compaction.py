"""Packing pages to the front of a pool, so that those in use lie side by side."""

import numpy as np

from radixd.gpu_pool.slots import Pages


def compaction_plan(movable: Pages, free: Pages) -> tuple[Pages, Pages]:
    """(sources, targets), int32[n] each: the highest of `movable` go to the lowest of `free`, as long as it is lower.

    Nothing else moves, and no page is both source and target, so `move.copy_pages` takes the plan as it is. After it
    the movable pages hold the lowest ids that they can.

    Args:
        movable: distinct page ids, int32[m], that nobody reads or writes until the copy has ended.
        free: distinct page ids, int32[f], none of them in `movable`.
    """
    sources, targets = np.sort(movable)[::-1], np.sort(free)
    pairs = min(sources.size, targets.size)
    # Sources fall and targets rise, so the pairs that are worth a copy come first.
    worth = int(np.count_nonzero(targets[:pairs] < sources[:pairs]))
    return sources[:worth].copy(), targets[:worth]
