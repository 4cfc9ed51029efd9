"""What the pool needs of a memory device, and the copies that a device runs."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from radixd.gpu_pool.handle import DeviceKind, Handle


class DeviceMemoryError(Exception):
    """A device cannot give the memory that a pool needs; the message says how much, what limits it and the way out."""


class DeviceFull(DeviceMemoryError):
    """Others hold the memory that a pool needs, and may give it back."""


class Copy(Protocol):
    """One piece of work on a device's memory. It owns its index lists, so it may run long after it was made."""

    def run(self) -> None:
        """Do it, in full, on the calling thread."""


@dataclass(frozen=True)
class TokenCopy:
    """Rows of one [pages, page_size, words] tensor copied within it: every source is read before any row changes."""

    rows: torch.Tensor
    src: tuple[torch.Tensor, torch.Tensor]
    dst: tuple[torch.Tensor, torch.Tensor]

    def run(self) -> None:
        """Gather, then scatter."""
        self.rows[self.dst] = self.rows[self.src]


PageRun = tuple[int, int, int]
"""First source page, first target page, count: pages that lie side by side at both ends."""


def page_runs(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> Sequence[PageRun]:
    """The pairs (sources[i], targets[i]) in as few runs as their order allows."""
    breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
    starts = np.concatenate(([0], breaks))[: sources.size]
    counts = np.diff(starts, append=sources.size)
    return tuple(zip(sources[starts].tolist(), targets[starts].tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class PageCopy:
    """Pages, entries of the first axis, copied run by run; within one copy no page is both source and target.

    One memcpy a run where pages are contiguous, on the calling thread alone: numpy releases the GIL and starts no
    threads, where torch would share a few megabytes out among all cores and wait for the slowest.
    """

    src: torch.Tensor
    dst: torch.Tensor
    runs: Sequence[PageRun]

    def run(self) -> None:
        """Copy in host memory."""
        src, dst = self.src.numpy(), self.dst.numpy()
        for first_source, first_target, count in self.runs:
            dst[first_target : first_target + count] = src[first_source : first_source + count]


class Device(Protocol):
    """One allocation on one device, made when the object is made and given up by `close`."""

    @property
    def kind(self) -> DeviceKind:
        """Its name in configuration and on the attach wire."""

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8, zero at first, shared with every process that maps it."""

    def export(self) -> Handle:
        """How another process maps the buffer."""

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """Run `copies` in order, after all that were handed in before. Thread-safe.

        The future ends when the last byte is written, with the exception if one failed.
        """

    def synchronize(self) -> None:
        """Wait until all copies handed in so far have ended."""

    def close(self) -> None:
        """End the copies and give up the memory; processes that mapped it keep it until they unmap it."""


def run_now(copies: Sequence[Copy]) -> Future[None]:
    """Run `copies` on the calling thread: an ended future."""
    done: Future[None] = Future()
    try:
        for copy in copies:
            copy.run()
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    return done
