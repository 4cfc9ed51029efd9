"""Moving tokens and copying pages inside a pool: every component, layer, region and device in lockstep."""

from concurrent.futures import Future

import numpy as np
import numpy.typing as npt
import torch

from radixd.gpu_pool.device import PageCopy, TokenCopy
from radixd.gpu_pool.memory import PoolMemory

Ids = npt.NDArray[np.int64]


class MoveError(ValueError):
    """A list of slots or pages was refused as a whole; no byte has changed."""


def move_tokens(memory: PoolMemory, src_slots: npt.ArrayLike, dst_slots: npt.ArrayLike) -> Future[None]:
    """Copy the KV of slot src_slots[i] to slot dst_slots[i], as if all were read before any is written.

    Sources and targets may overlap (swaps, shifts) and a source may repeat. The lists are copied: they may change
    after the call. Raises MoveError if lengths differ, an id is outside page 1..num_pages, or a target repeats.
    """
    page_size = memory.layout.geometry.page_size
    src, dst = _pairs("slot", src_slots, dst_slots, page_size, memory.layout.num_slots)
    src_index = (torch.from_numpy(src // page_size), torch.from_numpy(src % page_size))
    dst_index = (torch.from_numpy(dst // page_size), torch.from_numpy(dst % page_size))
    return memory.copy_async(lambda views: [TokenCopy(rows, src_index, dst_index) for rows in views.token_rows])


def copy_pages(memory: PoolMemory, src_pages: npt.ArrayLike, dst_pages: npt.ArrayLike) -> Future[None]:
    """Copy page src_pages[i] to page dst_pages[i], whole pages. The lists are copied.

    Raises MoveError if lengths differ, an id is outside 1..num_pages, a target repeats, or a page is both source
    and target.
    """
    src, dst = _pairs("page", src_pages, dst_pages, 1, memory.layout.physical_pages)
    both = np.intersect1d(src, dst)
    if both.size:
        raise MoveError(f"pages {_listed(both)} are both source and target: copy them in two calls or move tokens")
    return memory.copy_async(lambda views: [PageCopy(rows, rows, src, dst) for rows in views.page_rows])


def _pairs(noun: str, src: npt.ArrayLike, dst: npt.ArrayLike, low: int, high: int) -> tuple[Ids, Ids]:
    """Both lists as own int64 arrays of one length, with ids in [low, high) and distinct targets."""
    sources, targets = _ids(f"source {noun}s", src, low, high), _ids(f"target {noun}s", dst, low, high)
    if sources.size != targets.size:
        raise MoveError(f"{sources.size} source {noun}s for {targets.size} target {noun}s: they must pair up")
    distinct, counts = np.unique(targets, return_counts=True)
    if distinct.size != targets.size:
        raise MoveError(f"target {noun}s {_listed(distinct[counts > 1])} are named more than once")
    return sources, targets


def _ids(name: str, ids: npt.ArrayLike, low: int, high: int) -> Ids:
    given = np.asarray(ids)
    if given.size == 0:
        return np.empty(0, dtype=np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise MoveError(f"{name} must be a flat list of integers, got {given.dtype} of shape {given.shape}")
    outside = (given < low) | (given >= high)
    if outside.any():
        raise MoveError(f"{name} {_listed(given[outside])} are outside [{low}, {high - 1}]")
    return given.astype(np.int64)


def _listed(ids: npt.NDArray[np.generic]) -> str:
    shown = ", ".join(str(i) for i in ids[:8])
    return shown if ids.size <= 8 else f"{shown} and {ids.size - 8} more"
