"""Host memory as a device: a sealed memfd that any process may map, really allocated."""

import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import torch

from radixd.gpu_pool.device import Copy, Device, DeviceMemoryError, run_now
from radixd.gpu_pool.handle import Handle
from radixd.gpu_pool.host_memory import allocate, check_fits
from radixd.gpu_pool.mapping import SEALS, map_buffer


class CpuDevice:
    """Shared host memory; copies run on the calling thread, at once.

    Raises DeviceMemoryError if the machine or the cgroup has no room: touching memory that is not there would
    otherwise kill whoever touches it, long after start-up.
    """

    kind: Final = "cpu"
    lost: Final = None

    def __init__(self, nbytes: int, name: str = "radixd") -> None:
        check_fits({name: nbytes})
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, nbytes)
            allocate(self._fd, nbytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, SEALS)
            self._buffer = map_buffer(self._fd, nbytes)
        except OSError as error:
            os.close(self._fd)
            raise DeviceMemoryError(
                f"the kernel gave no {nbytes} bytes of shared memory ({error.strerror}): make the pool smaller"
            ) from error

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8."""
        return self._buffer

    def export(self) -> Handle:
        """The memfd."""
        return Handle(self.kind, self._buffer.numel(), self._fd)

    def pin(self, host: torch.Tensor) -> None:
        """Nothing to do."""

    def add_peer(self, peer: Device) -> None:
        """Nothing to do."""

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """Run `copies` now."""
        return run_now(copies)

    def probe(self) -> Future[None]:
        """An ended future: nothing is ever in flight."""
        return run_now([])

    def leave(self) -> None:
        """As `close`: a mapping outlives the descriptor."""
        self.close()

    def close(self) -> None:
        """Close the memfd; views that are still held keep the memory until they go. Once only."""
        os.close(self._fd)
        self._buffer = torch.empty(0, dtype=torch.uint8)
