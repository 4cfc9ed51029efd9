"""Mapping shared pool memory into this process."""

import fcntl
import mmap
import os
import stat

import torch

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""What no holder may do to pool memory: change its size (a shrunk mapping kills its readers by SIGBUS)."""


class MappingError(Exception):
    """Another process's memory cannot be mapped here; the message says why. Nothing was mapped."""


def map_buffer(fd: int, nbytes: int) -> torch.Tensor:
    """Map a pool's sealed memfd: flat uint8 of `nbytes`, shared and writable. The tensor keeps the mapping alive.

    The caller still owns `fd` and may close it. Raises MappingError if `fd` is no memfd, is not sealed against
    shrinking and growing, or has another size.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size != nbytes or nbytes <= 0:
        raise MappingError(f"expected shared memory of {nbytes} bytes, got a file of {status.st_size}")
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise MappingError(f"expected a sealed memfd, got a file that carries no seals ({error.strerror})") from error
    if seals & SEALS != SEALS:
        raise MappingError(
            f"shared memory lacks seals against shrinking and growing (has {seals:#x}, needs {SEALS:#x})"
        )
    return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)
