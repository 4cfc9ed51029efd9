"""The GPU part: pages of GLM-5.3 to and from a card, beside one flat asynchronous copy of the same bytes."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Self

from cuda.bindings import runtime as cudart

from bench.copies import timed
from bench.sampling import medians
from bench.table import Row
from radixd.gpu_pool.cuda.gpu import Gpu, visible_gpus
from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout, LayoutKind
from radixd.gpu_pool.memory import PoolMemory
from radixd.gpu_pool.move import copy_pages, move_tokens
from radixd.gpu_pool.peer_copy import import_pages
from radixd.gpu_pool.presets import load_geometry
from radixd.gpu_pool.tier_copy import load_pages, save_pages

PAGES = 512
"""1.77 GB: large enough that a launch is nothing."""

MOVED_TOKENS = 4_096
SEED = 5


class GpuPart:
    """Measures its rows on the first GPU, and between the first two where there are two."""

    def __init__(self, rounds: int, geometry: Geometry | None = None, pages: int = PAGES) -> None:
        self._rounds = rounds
        self._geometry = geometry or load_geometry("glm-5.3")
        self._pages = pages
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._gpus = visible_gpus()[:2]
        self._host = HostPool.anonymous(self._geometry, 2 * self._pages)
        self._undo.callback(self._host.close)
        self._memory = {kind: self._pool(kind, self._gpus[0]) for kind in ("page_first", "layer_first")}
        self._memory["page_first"].pin(self._host)  # for both: they are one process's
        self._gpus[0].make_current()
        status, self._stream = cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking)
        assert not status, status
        self._undo.callback(cudart.cudaStreamDestroy, self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _pool(self, kind: LayoutKind, gpu: Gpu) -> PoolMemory:
        return self._undo.enter_context(PoolMemory.on_gpus(Layout(self._geometry, kind, 2 * self._pages), [gpu]))

    def rows(self) -> Iterator[Row]:
        """All rows."""
        shuffled, pool = random.Random(SEED), range(1, 2 * self._pages + 1)
        adjacent = (range(3, 3 + self._pages), range(7, 7 + self._pages))
        scattered = (shuffled.sample(pool, self._pages), shuffled.sample(pool, self._pages))
        for order, (device, host) in (("adjacent", adjacent), ("scattered", scattered)):
            yield from self._tiers(order, device, host)
        yield from self._on_the_card()
        if len(self._gpus) > 1:
            yield self._between_cards()

    def _tiers(self, order: str, device: Sequence[int], host: Sequence[int]) -> Iterator[Row]:
        here, there = self._host.pages.ctypes.data, self._memory["page_first"].views[0].buffer.data_ptr()
        for layout, memory in self._memory.items():
            target = 1.25 if layout == "page_first" else None
            case = f"{self._pages} pages, {order}, {layout}"
            save = partial(save_pages, memory, self._host, device, host)
            load = partial(load_pages, memory, self._host, host, device)
            yield self._row(f"offload {case}", save, here, there, target)
            yield self._row(f"restore {case}", load, there, here, target)

    def _on_the_card(self) -> Iterator[Row]:
        memory = self._memory["page_first"]
        start = memory.views[0].buffer.data_ptr()
        half = start + memory.layout.page_stride * self._pages
        first, second = range(1, self._pages + 1), range(self._pages + 1, 2 * self._pages + 1)
        copy = partial(copy_pages, memory, first, second)
        yield self._row(f"copy {self._pages} pages on the card", copy, half, start, 1.25)
        tokens = min(MOVED_TOKENS, self._pages * self._geometry.page_size)
        slots = [self._geometry.page_size + slot for slot in range(2 * tokens)]
        for layout, pool in self._memory.items():
            move, nbytes = (
                partial(move_tokens, pool, slots[:tokens], slots[tokens:]),
                tokens * self._geometry.bytes_per_token,
            )
            yield self._row(f"move {tokens} tokens on the card, {layout}", move, half, start, None, nbytes)

    def _between_cards(self) -> Row:
        source, target = self._memory["page_first"], self._pool("page_first", self._gpus[1])
        pages = range(1, self._pages + 1)
        there, here = target.views[0].buffer.data_ptr(), source.views[0].buffer.data_ptr()
        copy = partial(import_pages, source, pages, target, pages)
        return self._row(f"import {self._pages} pages from another card", copy, there, here, 1.25)

    def _row(
        self,
        case: str,
        ours: Callable[[], Future[None]],
        dst: int,
        src: int,
        target: float | None,
        nbytes: int | None = None,
    ) -> Row:
        """`ours` beside a flat copy of as many bytes from `src` to `dst`."""
        size = self._pages * self._geometry.bytes_per_page if nbytes is None else nbytes

        def flat() -> None:
            self._gpus[0].make_current()
            (status,) = cudart.cudaMemcpyAsync(dst, src, size, cudart.cudaMemcpyKind.cudaMemcpyDefault, self._stream)
            assert not status, status
            (status,) = cudart.cudaStreamSynchronize(self._stream)
            assert not status, status

        taken = medians({"radixd": timed(lambda: ours().result()), "flat": timed(flat)}, self._rounds)
        return Row(f"{case}: {size / taken['radixd']:.1f} GB/s", taken["radixd"], taken["flat"], "one copy", target)
