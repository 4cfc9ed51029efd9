"""A journal's file: written in whole turns, read in one piece, made void in one call."""

import errno
import os
from pathlib import Path

from radixd.server.journal.header import GIVEN_UP, Header
from radixd.server.journal.record import Record, frame

_READ_BYTES = 64 << 20  # one read(2) ends at 2 GiB


class LogFile:
    """An append-only file that begins with `header`. What was at `path` before is gone. Raises OSError.

    Records gather in memory until `flush` hands them over in one write.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._seed = header.record_seed
        self._waiting = bytearray(header.encode())
        self._written = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    @property
    def size(self) -> int:
        """Bytes of the file and of what waits to be written."""
        return self._written + len(self._waiting)

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return len(self._waiting)

    def append(self, record: Record) -> int:
        """Takes a record; returns its offset in the file."""
        offset = self.size
        self._waiting += frame(record, self._seed)
        return offset

    def append_raw(self, records: bytes) -> None:
        """Takes records as they stand in another file of the same nonce."""
        self._waiting += records

    def flush(self) -> None:
        """Hands all to the kernel, where it outlives this process. Raises OSError: the file's end may be torn then."""
        while self._waiting:
            count = os.pwrite(self._fd, self._waiting, self._written)
            self._written += count
            del self._waiting[:count]

    def sync(self) -> None:
        """Has the kernel put the file on the disk, where it outlives the machine, and looks that it is found there.

        Raises OSError, also where somebody has removed or replaced it.
        """
        os.fdatasync(self._fd)
        if not os.path.samestat(os.fstat(self._fd), self.path.stat()):
            raise FileNotFoundError(errno.ENOENT, "it has been replaced by another file", str(self.path))

    def rename(self, path: Path) -> None:
        """Takes the place of the file at `path`, all at once. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def reader(self) -> "LogReader":
        """For what has been flushed so far, on any thread and whatever becomes of this object. Raises OSError."""
        return LogReader(os.dup(self._fd), self._written)

    def close(self) -> None:
        """What waits to be written is lost."""
        os.close(self._fd)

    def discard(self) -> None:
        """Closes the file and, where that is possible, removes it."""
        self.close()
        try:
            self.path.unlink()
        except OSError:
            pass  # a leftover beside the journal is never read


class LogReader:
    """The first `size` bytes of a log file, to be read once."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    def read(self, start: int = 0) -> bytes:
        """Bytes [start, size), or fewer where the file has shrunk. Raises OSError."""
        data = bytearray()
        try:
            while block := os.pread(self._fd, min(self.size - start - len(data), _READ_BYTES), start + len(data)):
                data += block
        finally:
            os.close(self._fd)
        return bytes(data)


def sync_directory(directory: Path) -> None:
    """Has the kernel put a directory's names on the disk: renames above all. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def void(path: Path, reason: str) -> bool:
    """Makes sure that no start-up adopts what the journal at `path` says; False where that cannot be done.

    The file is emptied, and says why if there is room; failing that, removed.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        try:
            path.unlink()
        except OSError:
            return False
        return True
    try:
        os.write(fd, GIVEN_UP + reason.encode())
        os.fsync(fd)
    except OSError:
        pass  # it is empty, which is what counts
    finally:
        os.close(fd)
    return True
