"""The attach handshake: what a process says to get a pool's memory, and what the daemon answers.

A client connects, sends one request (with its own pidfd beside it if it can make one) and reads one reply: one memfd
for each device in host memory, and in the body one IPC handle for each GPU. The connection then stays open, silent, as
long as the process may touch the pool: its end, with the process's, is what frees the pages. JSON on the wire, never
pickle.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from radixd.gpu_pool import fields, framing
from radixd.gpu_pool.fields import FieldError
from radixd.gpu_pool.framing import TIMEOUT_S, Frame, FrameError
from radixd.gpu_pool.handle import HOST_KINDS, IPC_HANDLE_BYTES, DeviceKind, GpuHandle, Handle
from radixd.gpu_pool.layout import Layout

VERSION = 2
MAX_UINT64 = 2**64 - 1
MAX_PID = 2**31 - 1
MAX_SECRET_HEX = 128
MAX_UUID_CHARS = 64
MAX_MESSAGE_CHARS = 4096
MAX_REQUEST_BYTES = 4096
MAX_REPLY_BYTES = 4 * 2**20

Role = Literal["scheduler", "worker"]
"""What the process is to its session. Both hold the session alive while they run."""

Decoded = TypeVar("Decoded")


class AttachRefused(Exception):
    """The daemon refused; `reason` is a name from the contract's ErrorReason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} ({reason})")
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class AttachRequest:
    """Who wants the memory, in which session's name. `pid` is a label: the kernel says who the peer is.

    `epoch` is the session's: ids begin anew with each daemon.
    """

    epoch: int
    session_id: int
    secret: bytes
    pid: int
    role: Role


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the daemon got it. `pidfd` is the daemon's to close; None if the client sent none."""

    request: AttachRequest
    pidfd: int | None


@dataclass(frozen=True)
class AttachReply:
    """The pool's memory: its epoch, its layout (with geometry and view table), one handle for each device."""

    epoch: int
    layout: Layout
    devices: tuple[Handle, ...]

    def close(self) -> None:
        """Close the descriptors; mappings made from them stay."""
        for device in self.devices:
            if device.fd is not None:
                os.close(device.fd)


def send_request(
    sock: socket.socket, request: AttachRequest, pidfd: int | None = None, timeout_s: float = TIMEOUT_S
) -> None:
    """Client, blocking socket: ask. `pidfd` of this process stays the caller's. Raises FrameError."""
    body = {
        "version": VERSION,
        "epoch": request.epoch,
        "session_id": request.session_id,
        "secret": request.secret.hex(),
        "pid": request.pid,
        "role": request.role,
    }
    framing.write_frame(sock, body, () if pidfd is None else (pidfd,), timeout_s)


def read_reply(sock: socket.socket, timeout_s: float = TIMEOUT_S) -> AttachReply:
    """Client, blocking socket: the answer, whose descriptors are the caller's to close.

    Raises AttachRefused if the daemon said no, FrameError if it said nothing that can be understood.
    """
    answer = _decoded(framing.read_frame(sock, timeout_s, MAX_REPLY_BYTES), _answer)
    if isinstance(answer, AttachRefused):
        raise answer
    return answer


def read_request(sock: socket.socket, timeout_s: float = TIMEOUT_S) -> ReceivedRequest:
    """Daemon, blocking socket: the question. Raises FrameError."""
    return _decoded(framing.read_frame(sock, timeout_s, MAX_REQUEST_BYTES), _request)


async def read_request_async(sock: socket.socket, timeout_s: float = TIMEOUT_S) -> ReceivedRequest:
    """`read_request` from a nonblocking socket on the running loop."""
    return _decoded(await framing.read_frame_async(sock, timeout_s, MAX_REQUEST_BYTES), _request)


def send_reply(sock: socket.socket, answer: AttachReply | AttachRefused, timeout_s: float = TIMEOUT_S) -> None:
    """Daemon, blocking socket: hand out the memory, or refuse. Descriptors stay the daemon's. Raises FrameError."""
    framing.write_frame(sock, *_encoded(answer), timeout_s)


async def send_reply_async(
    sock: socket.socket, answer: AttachReply | AttachRefused, timeout_s: float = TIMEOUT_S
) -> None:
    """`send_reply` to a nonblocking socket on the running loop."""
    await framing.write_frame_async(sock, *_encoded(answer), timeout_s)


def _decoded(frame: Frame, decode: Callable[[Frame], Decoded]) -> Decoded:
    """`decode(frame)`, closing the frame's descriptors if it fails."""
    try:
        return decode(frame)
    except ValueError as error:
        frame.close()
        raise FrameError(f"attach frame: {error}") from error


def _request(frame: Frame) -> ReceivedRequest:
    body = frame.body
    fields.integer(body, "version", "", low=VERSION, high=VERSION)
    if len(frame.fds) > 1:
        raise FieldError(f"{len(frame.fds)} file descriptors: at most one is expected, the client's pidfd")
    request = AttachRequest(
        epoch=fields.integer(body, "epoch", "", high=MAX_UINT64),
        session_id=fields.integer(body, "session_id", "", high=MAX_UINT64),
        secret=bytes.fromhex(fields.text(body, "secret", "", limit=MAX_SECRET_HEX)),
        pid=fields.integer(body, "pid", "", high=MAX_PID),
        role=fields.choice(body, "role", "", get_args(Role)),
    )
    return ReceivedRequest(request, frame.fds[0] if frame.fds else None)


def _encoded(answer: AttachReply | AttachRefused) -> tuple[Mapping[str, object], Sequence[int]]:
    """The answer's body and descriptors."""
    if isinstance(answer, AttachRefused):
        error = {"reason": answer.reason, "message": answer.message[:MAX_MESSAGE_CHARS]}
        return {"version": VERSION, "error": error}, ()
    body = {
        "version": VERSION,
        "epoch": answer.epoch,
        "geometry_fingerprint": answer.layout.geometry.fingerprint.hex(),
        "layout": answer.layout.to_dict(),
        "devices": [_described(device) for device in answer.devices],
    }
    return body, [device.fd for device in answer.devices if device.fd is not None]


def _described(device: Handle) -> Mapping[str, object]:
    described: dict[str, object] = {"kind": device.kind, "nbytes": device.nbytes}
    if device.gpu is not None:
        gpu = device.gpu
        described["gpu"] = {"uuid": gpu.uuid, "ipc": gpu.ipc.hex(), "offset": gpu.offset, "pid": gpu.pid}
    return described


def _answer(frame: Frame) -> AttachReply | AttachRefused:
    body = frame.body
    fields.integer(body, "version", "", low=VERSION, high=VERSION)
    if "error" in body:
        error = fields.mapping(body["error"], "error")
        reason = fields.text(error, "reason", "error.")
        refused = AttachRefused(reason, fields.text(error, "message", "error.", MAX_MESSAGE_CHARS))
        frame.close()
        return refused
    layout = Layout.from_dict(fields.mapping(body.get("layout"), "layout"))
    fingerprint = fields.text(body, "geometry_fingerprint", "")
    if fingerprint != layout.geometry.fingerprint.hex():
        raise FieldError(f"geometry_fingerprint: {fingerprint} is not that of the layout sent with it")
    described = fields.sequence(body, "devices", "", limit=framing.MAX_FDS)
    fds = iter(frame.fds)
    devices = tuple(_device(item, f"devices[{i}]", layout, fds) for i, item in enumerate(described))
    with_fd = sum(device.kind in HOST_KINDS for device in devices)
    if len(frame.fds) != with_fd:
        raise FieldError(f"{len(frame.fds)} file descriptors for {with_fd} devices in host memory: one each is needed")
    return AttachReply(fields.integer(body, "epoch", "", high=MAX_UINT64), layout, devices)


def _device(item: object, where: str, layout: Layout, fds: Iterator[int]) -> Handle:
    device = fields.mapping(item, where)
    kind = fields.choice(device, "kind", f"{where}.", get_args(DeviceKind))
    nbytes = fields.integer(device, "nbytes", f"{where}.", low=layout.nbytes, high=layout.nbytes)
    if kind == "meta":
        return Handle(kind, nbytes)
    if kind == "cuda":
        return Handle(kind, nbytes, gpu=_gpu(fields.mapping(device.get("gpu"), f"{where}.gpu"), f"{where}.gpu."))
    return Handle(kind, nbytes, fd=next(fds, None))


def _gpu(gpu: Mapping[str, object], where: str) -> GpuHandle:
    ipc = bytes.fromhex(fields.text(gpu, "ipc", where, limit=2 * IPC_HANDLE_BYTES))
    if len(ipc) != IPC_HANDLE_BYTES:
        raise FieldError(f"{where}ipc: {len(ipc)} bytes, a CUDA IPC handle has {IPC_HANDLE_BYTES}")
    return GpuHandle(
        uuid=fields.text(gpu, "uuid", where, limit=MAX_UUID_CHARS),
        ipc=ipc,
        offset=fields.integer(gpu, "offset", where),
        pid=fields.integer(gpu, "pid", where, low=1, high=MAX_PID),
    )
