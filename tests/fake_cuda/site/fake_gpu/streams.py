"""The streams of a process, by handle, and the default stream of each device."""

import threading
from collections.abc import Iterator

from fake_gpu.address_space import AddressSpace
from fake_gpu.device import Device
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.faults import Faults
from fake_gpu.stream import Stream
from fake_gpu.work import Range, Work

FIRST_HANDLE, HANDLE_STEP = 0x7000_0000_1000, 0x100


class Streams:
    """Makes, finds and ends streams."""

    def __init__(self, space: AddressSpace, faults: Faults) -> None:
        self._space = space
        self._faults = faults
        self._lock = threading.Lock()
        self._next = FIRST_HANDLE
        self._live: dict[int, Stream] = {}
        self._ended: dict[int, Stream] = {}
        self._default: dict[int, Stream] = {}

    def create(self, device: Device) -> Stream:
        """A stream on `device`."""
        with self._lock:
            stream = Stream(device, self._faults, self._next)
            self._live[stream.handle] = stream
            self._next += HANDLE_STEP
        return stream

    def find(self, handle: int, device: Device, call: str) -> Stream:
        """The stream of a handle; 0 is the default one of `device`."""
        with self._lock:
            if handle == 0:
                return self._default.setdefault(device.ordinal, Stream(device, self._faults, 0))
            stream = self._live.get(handle)
        if stream is None:
            what = "was destroyed" if handle in self._ended else "is no stream of this process"
            raise self._space.wrong(f"{call}: {handle:#x} {what}", cudaError_t.cudaErrorInvalidResourceHandle)
        return stream

    def submit(self, handle: int, device: Device, work: Work) -> Stream:
        """Enqueue on a stream whose device must be the current one."""
        stream = self.find(handle, device, work.call)
        if stream.device is not device:
            raise self._space.wrong(
                f"{work.call}: the stream belongs to device {stream.device.ordinal}, the current device is "
                f"{device.ordinal}",
                cudaError_t.cudaErrorInvalidResourceHandle,
            )
        stream.submit(work)
        return stream

    def destroy(self, handle: int, device: Device, call: str) -> None:
        """What is enqueued is executed all the same."""
        if handle == 0:
            raise Failed(cudaError_t.cudaErrorInvalidResourceHandle)
        stream = self.find(handle, device, call)
        with self._lock:
            self._ended[handle] = self._live.pop(handle)
        stream.end()

    def synchronize(self, device: Device) -> None:
        """Wait for all streams of a device."""
        for stream in self._all():
            if stream.device is device:
                stream.wait()

    def touching(self, span: Range) -> bool:
        """Whether any stream has yet to execute work on that memory."""
        start, end = span
        return any(first < end and start < last for stream in self._all() for first, last in stream.pending())

    def leaked(self) -> Iterator[str]:
        """Streams never destroyed, on devices that work."""
        for stream in list(self._live.values()):
            if stream.device.error is None:
                yield f"a stream of device {stream.device.ordinal} was never destroyed"

    def abandon(self) -> None:
        """End every thread."""
        for stream in self._all():
            stream.abandon()
        for stream in self._all():
            stream.join()

    def _all(self) -> list[Stream]:
        with self._lock:
            return [*self._live.values(), *self._ended.values(), *self._default.values()]
