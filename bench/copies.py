"""The copies part: pages of GLM-5.3 between the tiers, beside one flat memcpy of the same bytes.

All sides copy between the same two buffers, every byte of which was touched before, on one thread.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from time import perf_counter_ns
from typing import Self

import numpy as np
import torch

from bench.sampling import Side, medians
from bench.table import Row
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.tier_copy import load_pages, save_pages
from radixd.gpu_pool.views import PoolViews

PAGES = 100
POOL_PAGES = 2 * PAGES
SEED = 5
WORD = 8


class CopiesPart:
    """Measures its rows one after another, with `rounds` turns for each side of a row."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        self._host = HostPool.anonymous(load_geometry("glm-5.3"), POOL_PAGES)
        self._undo.callback(self._host.close)
        self._host.pages[:] = 1
        self._page_first, self._layer_first = self._device("page_first"), self._device("layer_first")
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _device(self, kind: LayoutKind) -> PoolMemory:
        layout = Layout(self._host.layout.geometry, kind, POOL_PAGES)
        memory = self._undo.enter_context(PoolMemory.allocate(layout, "cpu"))
        memory.views[0].buffer.fill_(2)
        return memory

    def rows(self) -> Iterator[Row]:
        """All rows."""
        shuffled, pool = random.Random(SEED), range(1, POOL_PAGES + 1)
        yield from self._both_ways("adjacent", range(3, 3 + PAGES), range(7, 7 + PAGES))
        yield from self._both_ways("scattered", shuffled.sample(pool, PAGES), shuffled.sample(pool, PAGES))

    def _both_ways(self, order: str, device: Sequence[int], host: Sequence[int]) -> Iterator[Row]:
        there, here = self._page_first.views[0], self._host.views
        offload = {
            "radixd": timed(lambda: save_pages(self._page_first, self._host, device, host).result()),
            "flat": timed(lambda: copy_flat(there, here)),
            "layer_first": timed(lambda: save_pages(self._layer_first, self._host, device, host).result()),
            "gather a layer": timed(layer_gather(self._layer_first.views[0], here, device, host)),
        }
        restore = {
            "radixd": timed(lambda: load_pages(self._page_first, self._host, host, device).result()),
            "flat": timed(lambda: copy_flat(here, there)),
            "layer_first": timed(lambda: load_pages(self._layer_first, self._host, host, device).result()),
            "gather a layer": timed(layer_gather(here, self._layer_first.views[0], host, device)),
        }
        for name, sides in (("offload", offload), ("restore", restore)):
            taken = medians(sides, self._rounds)
            case = f"{name} {PAGES} pages, {order}"
            yield Row(case, taken.pop("radixd"), taken.pop("flat"), "one memcpy", 1.25, taken)


def timed(work: Callable[[], None]) -> Side:
    """`work` as a side that takes turns."""

    def sample() -> int:
        start = perf_counter_ns()
        work()
        return perf_counter_ns() - start

    return lambda repeats: [sample() for _ in range(repeats)]


def copy_flat(src: PoolViews, dst: PoolViews) -> None:
    """The bytes of PAGES pages as one run."""
    nbytes = PAGES * src.layout.page_stride
    dst.buffer[:nbytes].numpy()[:] = src.buffer[:nbytes].numpy()


def layer_gather(
    src: PoolViews, dst: PoolViews, src_pages: Sequence[int], dst_pages: Sequence[int]
) -> Callable[[], None]:
    """The same bytes between pools that are both layer_first, as SGLang's are: layer after layer, by index."""
    sources, targets = torch.tensor(src_pages), torch.tensor(dst_pages)
    pairs = list(zip(layer_words(src), layer_words(dst), strict=True))

    def run() -> None:
        for theirs, ours in pairs:
            ours[targets] = theirs[sources]

    return run


def layer_words(views: PoolViews) -> list[torch.Tensor]:
    """The buffer as a layer_first pool's: int64 [pages, words] for each layer of each component."""
    geometry, pages = views.layout.geometry, views.layout.physical_pages
    sizes = [
        geometry.bytes_per_component_page(component) for component in geometry.components for _ in component.layers
    ]
    ends = np.cumsum(sizes) * pages
    return [
        views.buffer[end - size * pages : end].view(torch.int64).view(pages, size // WORD)
        for end, size in zip(ends.tolist(), sizes, strict=True)
    ]
