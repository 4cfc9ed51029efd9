"""Host memory in a file, which a restarted daemon finds again: on tmpfs, hugetlbfs or a disk."""

import mmap
import os
from pathlib import Path

import torch

from radixd.gpu_pool.device import DeviceMemoryError
from radixd.gpu_pool.host_memory import allocate, check_fits


class HostFile:
    """`path`, made if it is missing, mapped and allocated whole: a hole that finds no room later would be a SIGBUS.

    What the file held stays. Whoever uses it keeps others from resizing it meanwhile, by a lock on its directory.
    Raises DeviceMemoryError if the directory cannot be written or has no room; a file made by this call is removed.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        try:
            made = not path.exists()
            check_fits({f"host pages in {path}": new_memory_bytes(path, nbytes)})
            # The bytes are what users said: nobody else may read them.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DeviceMemoryError(
                f"cannot keep host pages in {path} ({error.strerror}): make its directory writable or name another"
            ) from error
        earlier = os.fstat(self._fd).st_size
        try:
            self._buffer = _mapped(self._fd, nbytes)
        except OSError as error:
            os.ftruncate(self._fd, earlier)
            have = _room(self._fd)
            os.close(self._fd)
            if made:
                path.unlink()
            raise DeviceMemoryError(
                f"host pages in {path} need {nbytes} bytes, its file system has {have} for them ({error.strerror}): "
                "make the host tier smaller or make room"
            ) from error

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8."""
        return self._buffer

    def close(self) -> None:
        """Close the file; views that are still held keep the mapping until they go. Once only."""
        os.close(self._fd)
        self._buffer = torch.empty(0, dtype=torch.uint8)


def new_memory_bytes(path: Path, nbytes: int) -> int:
    """Host memory that a HostFile of `nbytes` takes beyond what `path` holds already. Raises OSError.

    On tmpfs all that is missing; elsewhere none: page cache makes room, and huge pages were set aside before.
    """
    if _file_system(path.parent) not in ("tmpfs", "ramfs"):
        return 0
    return max(0, nbytes - (path.stat().st_blocks * 512 if path.exists() else 0))


def _mapped(fd: int, nbytes: int) -> torch.Tensor:
    """`fd`, resized and allocated, as flat uint8 [nbytes]. Raises OSError."""
    block = os.fstatvfs(fd).f_bsize  # a huge page on hugetlbfs, which knows no other sizes
    size = -(-nbytes // block) * block
    os.ftruncate(fd, size)
    allocate(fd, size)
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)[:nbytes]


def _room(fd: int) -> int:
    """Bytes that a file may have: its own and those that are free to us."""
    free = os.fstatvfs(fd)
    return free.f_bavail * free.f_frsize + os.fstat(fd).st_blocks * 512


def _file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`, "" if the kernel lists it under another device number."""
    device = directory.stat().st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return kind.split()[0]
    return ""
