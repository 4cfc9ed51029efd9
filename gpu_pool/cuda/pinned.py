"""Host memory that GPUs reach by themselves: registered with CUDA, so that copies run beside the process."""

import ctypes
import errno
import mmap
import os
from contextlib import ExitStack

import torch

from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do
from radixd.gpu_pool.device import DeviceMemoryError

CHUNK_BYTES = 2**30
"""Registrations begin at its multiples: one of a whole tier would keep the kernel in a single call for minutes."""

MADV_POPULATE_WRITE = 23
"""Linux 5.14; mmap has no name for it yet."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class PinnedMemory:
    """`host` (flat uint8, one mapping), registered for all GPUs of the process until `close`.

    A GPU must be current. Raises DeviceMemoryError, and nothing stays registered.
    """

    def __init__(self, host: torch.Tensor) -> None:
        self._host = host  # whatever its owner does: unmapped, it could not be unregistered
        start, end = host.data_ptr(), host.data_ptr() + host.numel()
        borders = range((start // CHUNK_BYTES + 1) * CHUNK_BYTES, end, CHUNK_BYTES)
        with ExitStack() as undo:
            for first, last in zip((start, *borders), (*borders, end), strict=True):
                try:
                    _populate(first, last - first)
                    do(cudart.cudaHostRegister, first, last - first, cudart.cudaHostRegisterPortable)
                except (CudaError, OSError) as error:
                    raise DeviceMemoryError(
                        f"{end - start} bytes of host memory cannot be pinned for copies to and from the GPUs "
                        f"({error}): a host tier in files must lie on tmpfs or hugetlbfs, and the locked-memory limit "
                        "(ulimit -l) must allow it"
                    ) from error
                undo.callback(do, cudart.cudaHostUnregister, first)
            self._registered = undo.pop_all()

    def close(self) -> None:
        """Unregister; no copy may use it any more. Once only. Raises CudaError."""
        self._registered.close()


def _populate(start: int, nbytes: int) -> None:
    """Let the kernel map all pages in one go: CUDA would fault them in one by one. Raises OSError."""
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    if _libc.madvise(first, start + nbytes - first, MADV_POPULATE_WRITE):
        code = ctypes.get_errno()
        if code != errno.EINVAL:  # before Linux 5.14: only slower
            raise OSError(code, os.strerror(code))
