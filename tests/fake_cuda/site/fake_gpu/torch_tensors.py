"""The half of torch that needs a CUDA build: views of device memory, and its work on CUDA's streams.

On a real machine `torch.as_tensor` wraps what has a `__cuda_array_interface__`, and work under `torch.cuda.stream` is
enqueued on a stream. Here the tensor is a CPU tensor over the same bytes, and the stream is waited for, its delay too,
before torch works in place. Applied at the first call of the fake runtime after torch is there; all else stays torch's.
"""

import ctypes
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from fake_gpu import process
from fake_gpu.errors import Failed
from fake_gpu.work import Nothing

_patched = False


def patch_once() -> None:
    """If torch is there and whole."""
    global _patched
    torch = sys.modules.get("torch")
    if not _patched and torch is not None and hasattr(torch, "cuda") and hasattr(torch, "compile"):
        _patched = True
        _patch(torch)


class ExternalStream:
    """torch.cuda.ExternalStream over a stream of the fake."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        self.cuda_stream = stream_ptr
        self.device = device

    def synchronize(self) -> None:
        """Wait for it."""
        with _errors():
            found = _process()
            found.streams.find(self.cuda_stream, found.device, "ExternalStream.synchronize").wait()


def _patch(torch: ModuleType) -> None:
    as_tensor = torch.as_tensor

    def as_tensor_or_view(data: Any, dtype: Any = None, device: Any = None) -> Any:
        if not hasattr(data, "__cuda_array_interface__"):
            return as_tensor(data, dtype=dtype, device=device)
        with _errors():
            return _view(torch, data, device)

    torch.as_tensor = as_tensor_or_view  # type: ignore[attr-defined]
    torch.cuda.ExternalStream = ExternalStream
    torch.cuda.stream = _stream
    torch.cuda.device = _device


def _view(torch: ModuleType, data: Any, device: Any) -> Any:
    found = _process()
    interface = data.__cuda_array_interface__
    address, _ = interface["data"]
    kind = interface["typestr"]
    dtype = {"|u1": torch.uint8, "|i1": torch.int8, "<i4": torch.int32, "<i8": torch.int64}[kind]
    if interface.get("strides") is not None:
        raise TypeError("the fake wraps contiguous memory alone")
    size = math.prod(interface["shape"]) * dtype.itemsize
    region = found.space.require_device(address, size, "torch.as_tensor")
    ordinal = region.device.ordinal if region.device is not None else -1
    if device is None or _ordinal(torch, device, found) != ordinal:
        raise found.space.wrong(f"torch.as_tensor: device {device}, but {address:#x} is on device {ordinal}")
    owned: Any = type("DeviceMemory", (ctypes.c_char * size,), {})
    memory = owned.from_address(address)
    memory.owner = data  # as torch does, the view keeps what it was made of
    return torch.frombuffer(memory, dtype=dtype).view(interface["shape"])


@contextmanager
def _stream(stream: ExternalStream | None) -> Iterator[None]:
    if stream is None:
        yield
        return
    found = _process()
    before = found.thread.device
    with _errors():
        inner = found.streams.find(stream.cuda_stream, found.device, "torch.cuda.stream")
        if stream.device is not None and _ordinal(sys.modules["torch"], stream.device, found) != inner.device.ordinal:
            raise found.space.wrong(f"torch.cuda.stream: {stream.device}, but a stream of {inner.device.ordinal}")
        found.faults.meet("torch.cuda.stream", inner.device)
        inner.submit(Nothing("torch.cuda.stream"))
        inner.wait()
    found.thread.device = inner.device.ordinal
    try:
        yield
    finally:
        found.thread.device = before


@contextmanager
def _device(device: Any) -> Iterator[None]:
    found = _process()
    before = found.thread.device
    with _errors():
        found.thread.device = found.device_at(_ordinal(sys.modules["torch"], device, found)).ordinal
    try:
        yield
    finally:
        found.thread.device = before


def _ordinal(torch: ModuleType, device: Any, found: process.Process) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return found.thread.device if index is None else int(index)


def _process() -> process.Process:
    found = process.current()
    if found is None:
        raise RuntimeError("No CUDA GPUs are available")
    return found


@contextmanager
def _errors() -> Iterator[None]:
    """As torch raises them."""
    try:
        yield
    except Failed as failed:
        raise RuntimeError(f"CUDA error: {failed.code.name}") from failed
