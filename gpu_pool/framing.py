"""Frames over a Unix stream socket: a bounded JSON body, and file descriptors beside it (SCM_RIGHTS).

On the wire: 4 bytes of magic, the body's length as little-endian uint32, the body in UTF-8. Descriptors travel with
the frame's first byte. Nothing is allocated on a peer's word beyond the reader's limit, and nothing waits beyond a
time limit.
"""

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from radixd.gpu_pool import fields

MAGIC = b"RXD1"
HEADER = struct.Struct("<4sI")
MAX_FDS = 64
TIMEOUT_S = 10.0


class FrameError(Exception):
    """The peer closed early, was too slow, or does not speak this protocol. The socket is of no further use."""


@dataclass(frozen=True)
class Frame:
    """A received body and the descriptors that came with it: the receiver's to close."""

    body: Mapping[str, object]
    fds: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)


def encode(body: Mapping[str, object]) -> bytes:
    """`body` as a frame's bytes."""
    encoded = json.dumps(body, separators=(",", ":")).encode()
    return HEADER.pack(MAGIC, len(encoded)) + encoded


def read_frame(sock: socket.socket, timeout_s: float, max_body_bytes: int) -> Frame:
    """Read one frame from a blocking socket, whose own timeout is kept. Raises FrameError."""
    with _Incoming(max_body_bytes) as incoming, _Deadline(sock, timeout_s) as deadline:
        while incoming.wanted:
            deadline.apply()
            incoming.receive(sock)
        return incoming.take()


def write_frame(sock: socket.socket, body: Mapping[str, object], fds: Sequence[int], timeout_s: float) -> None:
    """Write one frame to a blocking socket, whose own timeout is kept; `fds` stay the caller's. Raises FrameError."""
    outgoing = _Outgoing(encode(body), fds)
    with _Deadline(sock, timeout_s) as deadline:
        while outgoing.rest:
            deadline.apply()
            outgoing.send(sock)


async def read_frame_async(sock: socket.socket, timeout_s: float, max_body_bytes: int) -> Frame:
    """`read_frame` from a nonblocking socket on the running loop, which must not read it otherwise meanwhile."""
    loop = asyncio.get_running_loop()
    with _Incoming(max_body_bytes) as incoming:
        try:
            async with asyncio.timeout(timeout_s):
                while incoming.wanted:
                    try:
                        incoming.receive(sock)
                    except BlockingIOError:
                        await _ready(sock, loop.add_reader, loop.remove_reader)
        except TimeoutError as error:
            raise FrameError(f"the peer sent no whole frame within {timeout_s} s") from error
        return incoming.take()


async def write_frame_async(
    sock: socket.socket, body: Mapping[str, object], fds: Sequence[int], timeout_s: float
) -> None:
    """`write_frame` to a nonblocking socket on the running loop."""
    loop = asyncio.get_running_loop()
    outgoing = _Outgoing(encode(body), fds)
    try:
        async with asyncio.timeout(timeout_s):
            while outgoing.rest:
                try:
                    outgoing.send(sock)
                except BlockingIOError:
                    await _ready(sock, loop.add_writer, loop.remove_writer)
    except TimeoutError as error:
        raise FrameError(f"the peer took no whole frame within {timeout_s} s") from error


@dataclass
class _Incoming:
    """One frame as it arrives. Until it is taken, its descriptors are closed when the block is left."""

    max_body_bytes: int
    data: bytearray = field(default_factory=bytearray)
    fds: list[int] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        """Bytes still to read: first the header's, then the body's; 0 when whole. Raises FrameError on a bad header."""
        if len(self.data) < HEADER.size:
            return HEADER.size - len(self.data)
        magic: bytes
        length: int
        magic, length = HEADER.unpack_from(self.data)
        if magic != MAGIC:
            raise FrameError(f"the peer does not speak radixd's attach protocol: it began with {magic!r}")
        if length > self.max_body_bytes:
            raise FrameError(f"the peer announced a frame of {length} bytes, more than {self.max_body_bytes}")
        return HEADER.size + length - len(self.data)

    def receive(self, sock: socket.socket) -> None:
        """Take what one recvmsg gives."""
        try:
            data, ancillary, flags, _ = sock.recvmsg(
                min(self.wanted, 65536), socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, TimeoutError):
            raise
        except OSError as error:
            raise FrameError(f"the connection broke: {error.strerror}") from error
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.fds += memoryview(payload[: len(payload) // 4 * 4]).cast("i")
        if flags & socket.MSG_CTRUNC or len(self.fds) > MAX_FDS:
            raise FrameError(
                f"the peer sent more than {MAX_FDS} file descriptors, or more than this process may still open: then "
                "raise its limit (ulimit -n)"
            )
        if not data:
            raise FrameError(f"the peer closed the connection after {len(self.data)} bytes of a frame")
        self.data += data

    def take(self) -> Frame:
        """The whole frame, whose descriptors now belong to the caller."""
        try:
            body = fields.mapping(json.loads(bytes(self.data[HEADER.size :])), "the frame")
        except (ValueError, RecursionError) as error:
            raise FrameError(f"the peer's frame is no JSON object: {error}") from error
        fds, self.fds = tuple(self.fds), []
        return Frame(body, fds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self.fds:
            os.close(fd)


@dataclass
class _Outgoing:
    """One frame as it leaves; the descriptors go with the first byte and only once."""

    rest: bytes
    fds: Sequence[int]

    def send(self, sock: socket.socket) -> None:
        """Give what one sendmsg takes."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(self.fds)}i", *self.fds))]
        try:
            sent = sock.sendmsg([self.rest], rights if self.fds else [], socket.MSG_NOSIGNAL)
        except (BlockingIOError, TimeoutError):
            raise
        except OSError as error:
            raise FrameError(f"the connection broke: {error.strerror}") from error
        self.rest, self.fds = self.rest[sent:], ()


class _Deadline:
    """One time limit over all reads or writes of a frame on a blocking socket."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self._timeout_s = timeout_s
        self._kept = sock.gettimeout()
        self._end = time.monotonic() + timeout_s

    def apply(self) -> None:
        """Let the next call on the socket last no longer than what is left."""
        self._sock.settimeout(max(self._end - time.monotonic(), 1e-6))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.settimeout(self._kept)
        if isinstance(error, TimeoutError):
            raise FrameError(f"the peer did not finish a frame within {self._timeout_s} s") from error


async def _ready(
    sock: socket.socket,
    add: Callable[[socket.socket, Callable[[], None]], None],
    remove: Callable[[socket.socket], bool],
) -> None:
    """Wait until the loop finds `sock` ready."""
    ready = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(sock, wake)
    try:
        await ready
    finally:
        remove(sock)
