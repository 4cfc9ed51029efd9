"""Moving tokens and copying pages inside a pool: every component, layer, region and device in lockstep."""

from concurrent.futures import Future

import numpy as np
import numpy.typing as npt
import torch

from radixd.gpu_pool.device import PageCopy, TokenCopy, page_runs
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.pairs import IdRange, MoveError, checked_pairs, listed


def move_tokens(memory: PoolMemory, src_slots: npt.ArrayLike, dst_slots: npt.ArrayLike) -> Future[None]:
    """Copy the KV of slot src_slots[i] to slot dst_slots[i], as if all were read before any is written.

    Sources and targets may overlap (swaps, shifts) and a source may repeat. The lists are copied: they may change
    after the call. Raises MoveError if lengths differ, an id is outside page 1..num_pages, or a target repeats.
    """
    page_size, end = memory.layout.geometry.page_size, memory.layout.num_slots
    sources, targets = IdRange("source slots", page_size, end), IdRange("target slots", page_size, end)
    src, dst = checked_pairs(src_slots, sources, dst_slots, targets)
    src_index = (torch.from_numpy(src // page_size), torch.from_numpy(src % page_size))
    dst_index = (torch.from_numpy(dst // page_size), torch.from_numpy(dst % page_size))
    return memory.copy_async(lambda views: [TokenCopy(rows, src_index, dst_index) for rows in views.token_rows])


def copy_pages(memory: PoolMemory, src_pages: npt.ArrayLike, dst_pages: npt.ArrayLike) -> Future[None]:
    """Copy page src_pages[i] to page dst_pages[i], whole pages. The lists are copied.

    Raises MoveError if lengths differ, an id is outside 1..num_pages, a target repeats, or a page is both source
    and target.
    """
    end = memory.layout.physical_pages
    src, dst = checked_pairs(src_pages, IdRange("source pages", 1, end), dst_pages, IdRange("target pages", 1, end))
    both = np.intersect1d(src, dst)
    if both.size:
        raise MoveError(f"pages {listed(both)} are both source and target: copy them in two calls or move tokens")
    runs = page_runs(src, dst)
    return memory.copy_async(lambda views: [PageCopy(rows, rows, runs) for rows in views.page_rows])
