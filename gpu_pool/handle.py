"""What another process needs to map one device's memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cpu_async", "meta", "cuda"]

HOST_KINDS: Sequence[DeviceKind] = ("cpu", "cpu_async")
"""Kinds of devices whose memory is the host's, each buffer a memfd."""

IPC_HANDLE_BYTES = 64
"""Of a cudaIpcMemHandle_t."""


@dataclass(frozen=True)
class GpuHandle:
    """Memory on a GPU, for any other process of the node that sees the GPU.

    Attributes:
        uuid: the GPU's, as nvidia-smi -L prints it; ordinals differ between processes.
        ipc: a cudaIpcMemHandle_t's IPC_HANDLE_BYTES bytes.
        offset: where the buffer begins in the allocation that the handle names, bytes.
        pid: the exporter's, in its own PID namespace: CUDA opens no handle in a process of the same number.
    """

    uuid: str
    ipc: bytes
    offset: int
    pid: int


@dataclass(frozen=True)
class Handle:
    """One device's buffer of `nbytes`. `fd` is its memfd, `gpu` its place on a GPU; `meta` has no memory, and neither.

    A handle exported by a device borrows the device's descriptor, valid until its close; a handle received from
    another process owns its own.
    """

    kind: DeviceKind
    nbytes: int
    fd: int | None = None
    gpu: GpuHandle | None = None


def memory_kind(device_kind: str) -> str:
    """What devices of that kind lie in: one's pages can be copied to another's where it is the same."""
    return "host" if device_kind in HOST_KINDS else device_kind
