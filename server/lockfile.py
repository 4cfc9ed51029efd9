"""One daemon a socket and a state directory: a lock that the kernel drops with its owner, however the owner dies."""

import fcntl
import os
from pathlib import Path


class AlreadyRunning(RuntimeError):
    """Another process holds the lock; the message names it."""


class LockFile:
    """An exclusive flock on `path`, held from `acquire` until `release` or the process's end.

    The file is never unlinked: a second daemon could otherwise lock the old inode while a third creates a new one. It
    is close-on-exec, so that no child keeps the lock of a dead parent.
    """

    def __init__(self, path: Path, flag: str) -> None:
        """`flag` is what another daemon chooses another place with."""
        self.path = path
        self._flag = flag
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock and write our pid into the file. Raises AlreadyRunning at once where another holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"another radixd (pid {owner}) holds {self.path}: stop it first, or give this one another {self._flag}"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
