"""A process that may touch a pool, and the proof that it no longer can."""

import asyncio
import errno
import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SO_PEERPIDFD = 77
"""Linux 6.5; the socket module has no name for it yet."""

_UCRED = struct.Struct("3i")  # pid, uid, gid


class HolderError(Exception):
    """The peer cannot be watched; the message says what is missing."""


class Holder:
    """One attach connection and the pidfd of the process that opened it.

    Gone means both that the process has ended and that the connection is at EOF: a forked child inherits the
    connection with the mapping, so it outlives its parent's pidfd; and a process may close the connection and go on
    writing. Once released, EOF is enough. Owns both descriptors until it is gone or closed.
    """

    def __init__(self, session_id: int, role: str, connection: socket.socket, pidfd: int, pid: int) -> None:
        self.session_id = session_id
        self.role = role
        self.pid = pid
        """As this daemon's PID namespace names it; 0 from outside of it. A label: the pidfd is the proof."""
        self._connection = connection
        self._pidfd = pidfd
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting_for = {"exit", "eof"}

    def watch(self, gone: Callable[["Holder"], None]) -> None:
        """Call `gone` once, on the running loop, when the process and all that inherited its connection have ended."""
        self._loop = asyncio.get_running_loop()
        self._gone = gone
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._ended, "exit", self._pidfd)
        self._loop.add_reader(self._connection, self._read)

    def release(self) -> bool:
        """No page waits for the process's end any more: from now on EOF is the end. False where it has come already."""
        self._close_pidfd()
        self._waiting_for.discard("exit")
        if not self._waiting_for:
            self.close()
        return bool(self._waiting_for)

    def close(self) -> None:
        """Stop watching and close both descriptors."""
        self._close_pidfd()
        if self._loop is not None:
            self._loop.remove_reader(self._connection)
            self._loop = None
        self._connection.close()

    def _close_pidfd(self) -> None:
        if self._pidfd < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1

    def _read(self) -> None:
        try:
            if self._connection.recv(4096):
                return  # a client has nothing to say here; whatever it says is dropped
        except BlockingIOError:
            return
        except OSError:
            pass
        self._ended("eof", self._connection)

    def _ended(self, what: str, source: int | socket.socket) -> None:
        if self._loop is None:
            return
        self._loop.remove_reader(source)
        self._waiting_for.discard(what)
        if not self._waiting_for:
            self.close()
            self._gone(self)


def peer_pid(connection: socket.socket) -> int:
    """The pid that the kernel names for whoever connected; 0 if it lives outside this PID namespace."""
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid)


def open_pidfd(connection: socket.socket, offered: int | None) -> int:
    """A pidfd of whoever connected, the caller's to close. Raises HolderError.

    The kernel's own answer comes first. Without it (before Linux 6.5), the one that the client sent of itself, which
    works across PID namespaces; last, the pid that the kernel names, where that is in our namespace.
    `offered` is closed.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise HolderError(f"the kernel knows no process at the other end ({error.strerror})") from error
        return _pidfd_without_the_kernel(connection, offered)
    finally:
        if offered is not None:
            os.close(offered)


def _pidfd_without_the_kernel(connection: socket.socket, offered: int | None) -> int:
    if offered is not None:
        if not _is_pidfd(offered):
            raise HolderError("the descriptor that came with the request is no pidfd of a living process")
        return os.dup(offered)
    pid = peer_pid(connection)
    if not pid:
        raise HolderError(
            "this kernel has no SO_PEERPIDFD and the client lives in another PID namespace: "
            "let it send its own pidfd, or run on Linux 6.5 or later"
        )
    with suppress(OSError):
        return os.pidfd_open(pid)
    raise HolderError(f"process {pid} at the other end has ended")


def _is_pidfd(fd: int) -> bool:
    """Whether the kernel describes `fd` as a process."""
    return re.search(r"^Pid:\t(?!-1$)", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE) is not None
