"""What the pool needs of a memory device, and the copies that a device runs."""

import threading
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


class DeviceLost(Exception):
    """A device can be used no more by this process; the message says why. What its last copies did is not known."""


SERIAL_BYTES = 2**18
"""Torch shares larger gathers of words out among all cores, and waits for the slowest."""


@dataclass(frozen=True)
class TokenCopy:
    """Slots of one [pages, page_size, layers, words] tensor copied within it: all are read before any is written.

    `src` and `dst` are (page, offset) of each slot. It owns them, so it may run long after it was made.
    """

    rows: torch.Tensor
    src: tuple[torch.Tensor, torch.Tensor]
    dst: tuple[torch.Tensor, torch.Tensor]

    def run(self, scratch_bytes: int = SERIAL_BYTES) -> None:
        """Gather, then scatter, so many layers at a time as `scratch_bytes` hold, one at least."""
        slots, layers = self.src[0].numel(), self.rows.shape[2]
        step = max(1, scratch_bytes // max(1, slots * self.rows.shape[3] * self.rows.element_size()))
        for first in range(0, layers, step):
            rows = self.rows[:, :, first : first + step]
            rows[self.dst] = rows[self.src]


PageRuns = npt.NDArray[np.int64]
"""[n, 3]: first source page, first target page, count of pages that lie side by side at both ends."""


def page_runs(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> PageRuns:
    """The pairs (sources[i], targets[i]) in as few runs as their order allows."""
    breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
    starts = np.concatenate(([0], breaks))[: sources.size]
    counts = np.diff(starts, append=sources.size)
    return np.stack((sources[starts], targets[starts], counts), axis=1)


@dataclass(frozen=True)
class PageCopy:
    """Pages, entries of the first axis, copied run by run; within one copy no page is both source and target.

    One memcpy a run where pages are contiguous, on the calling thread alone: numpy releases the GIL and starts no
    threads, where torch would share a few megabytes out among all cores and wait for the slowest.
    """

    src: torch.Tensor
    dst: torch.Tensor
    runs: PageRuns

    def run(self) -> None:
        """Copy in host memory."""
        src, dst = self.src.numpy(), self.dst.numpy()
        for first_source, first_target, count in self.runs.tolist():
            dst[first_target : first_target + count] = src[first_source : first_source + count]


Copy = TokenCopy | PageCopy


class Device(Protocol):
    """One allocation on one device, made when the object is made and given up by `close`."""

    @property
    def kind(self) -> DeviceKind:
        """Its name in configuration and on the attach wire."""

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8, zero at first, shared with every process that maps it."""

    @property
    def lost(self) -> str | None:
        """Why the device can be used no more; None while it can. Host memory is never lost."""

    def export(self) -> Handle:
        """How another process maps the buffer."""

    def pin(self, host: torch.Tensor) -> None:
        """Make copies to and from `host` (flat uint8) run beside this process, until the device is closed.

        Host memory needs no pinning among itself. Raises DeviceMemoryError.
        """

    def add_peer(self, peer: "Device") -> None:
        """Let copies read `peer`'s memory, of a device of the same kind on the same node, from now on."""

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """Run `copies`, of which none may depend on another: in any order. Thread-safe.

        The future ends when the last byte is written, with the exception if one failed: then nothing of it is being
        written any more, unless the device is lost, which it says by DeviceLost. Copies handed in one after the other
        run in that order if they go the same way: from the host, to the host, or on the device.
        """

    def probe(self) -> Future[None]:
        """Whether it still answers: ends after all copies handed in so far, with DeviceLost where it does not."""

    def leave(self) -> None:
        """As `close`, while other processes have the memory open: it goes with the last of them, and with this one."""

    def close(self) -> None:
        """End the copies and give up the memory, which no other process may have open where it is a GPU's.

        A device whose copies run beside the caller takes none any more: RuntimeError, at once or in the future.
        """


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


def joined(parts: Sequence[Future[None]]) -> Future[None]:
    """A future that ends after all `parts`, with the first failed one's exception; at once if there are none."""
    whole: Future[None] = Future()
    whole.set_running_or_notify_cancel()  # nobody can take back what a device does
    lock = threading.Lock()
    waiting = len(parts)

    def ended(_: Future[None] | None) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            if waiting > 0:
                return
        errors = [error for part in parts if (error := part.exception()) is not None]
        if errors:
            whole.set_exception(errors[0])
        else:
            whole.set_result(None)

    for part in parts:
        part.add_done_callback(ended)
    if not parts:
        ended(None)
    return whole
