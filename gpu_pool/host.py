"""The host tier's memory: pages that left the device, each one contiguous run."""

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import xxhash

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.geometry import Geometry
from radixd.gpu_pool.host_file import HostFile
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.pairs import IdRange
from radixd.gpu_pool.views import PoolViews, torch_views

Digests = npt.NDArray[np.uint64]


class HostPool:
    """Pages 1..num_pages of `geometry` in host memory, page_first without padding; `Layout.page_stride` bytes each.

    Page 0 is never copied to: it is the owner's, for what must stand in the same file as the pages.
    Size it from bytes with `layout.pages_for_bytes`.
    """

    def __init__(self, geometry: Geometry, num_pages: int, memory: CpuDevice | HostFile) -> None:
        self.layout = Layout(geometry, "page_first", num_pages)
        self.views: PoolViews = torch_views(memory.buffer, self.layout)
        """The pages as tensors, region by region, as a device's."""
        self.pages: npt.NDArray[np.uint8] = self.views.page_rows[0].numpy()
        """Their bytes: [num_pages + 1, bytes of a page], the memory itself."""
        self._memory = memory

    @classmethod
    def anonymous(cls, geometry: Geometry, num_pages: int, name: str = "radixd-host") -> Self:
        """Memory that ends with the process, all of it zero. Raises DeviceMemoryError if there is no room.

        Args:
            name: what the memory is called in /proc/PID/maps.
        """
        return cls(geometry, num_pages, CpuDevice(Layout(geometry, "page_first", num_pages).nbytes, name))

    @classmethod
    def in_file(cls, geometry: Geometry, num_pages: int, path: Path) -> Self:
        """Memory in the file `path`, made if it is missing, else with the bytes that it holds.

        A page lies at page id × bytes a page whatever num_pages is: a resized file keeps the pages that still fit.
        Raises DeviceMemoryError, naming path, need and room, if the file cannot be had whole.
        """
        return cls(geometry, num_pages, HostFile(path, Layout(geometry, "page_first", num_pages).nbytes))

    def checksums(self, pages: npt.ArrayLike, seeds: npt.ArrayLike = 0) -> Digests:
        """xxh3-64 of each page's bytes: uint64[n]. Any thread may call it, for pages that nobody writes meanwhile.

        Args:
            pages: int [n].
            seeds: uint64 [n], or one for all.

        Raises MoveError for a page outside 1..num_pages.
        """
        ids = IdRange("host pages", 1, self.layout.physical_pages).check(pages)
        seeded = np.broadcast_to(np.asarray(seeds, dtype=np.uint64), ids.shape)
        digests = [
            xxhash.xxh3_64_intdigest(self.pages[page], seed)
            for page, seed in zip(ids.tolist(), seeded.tolist(), strict=True)
        ]
        return np.array(digests, dtype=np.uint64)

    def close(self) -> None:
        """Give up the memory, once; copies and views that still hold it keep it until they go. A file stays."""
        del self.views, self.pages
        self._memory.close()
