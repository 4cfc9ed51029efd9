"""Events: marks in a stream that are reached when the stream gets there."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fake_gpu.address_space import AddressSpace
from fake_gpu.device import Device
from fake_gpu.enums import cudaEventDisableTiming
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.stream import POLL_S, Stream
from fake_gpu.streams import Streams
from fake_gpu.work import Range

FIRST_HANDLE, HANDLE_STEP = 0x7100_0000_1000, 0x100
BAD = cudaError_t.cudaErrorInvalidResourceHandle


@dataclass(eq=False)
class Mark:
    """One recording."""

    call: str
    reached: threading.Event = field(default_factory=threading.Event)
    at_s: float = 0.0

    def ranges(self) -> Sequence[Range]:
        """None."""
        return ()

    def run(self) -> None:
        """The stream is here."""
        self.at_s = time.monotonic()
        self.reached.set()


@dataclass(frozen=True)
class WaitFor:
    """A stream's wait for a mark in another one, given up where the other device fails."""

    call: str
    mark: Mark
    recorded_on: Stream

    def ranges(self) -> Sequence[Range]:
        """None."""
        return ()

    def run(self) -> None:
        """Hold the stream up."""
        while not self.mark.reached.wait(POLL_S):
            if self.recorded_on.abandoned or self.recorded_on.device.error is not None:
                return


@dataclass(eq=False)
class Event:
    """Its latest recording counts."""

    device: Device
    timed: bool
    mark: Mark | None = None
    stream: Stream | None = None


class Events:
    """The events of a process, by handle."""

    def __init__(self, space: AddressSpace, streams: Streams) -> None:
        self._space = space
        self._streams = streams
        self._lock = threading.Lock()
        self._next = FIRST_HANDLE
        self._live: dict[int, Event] = {}
        self._ended: set[int] = set()

    def create(self, device: Device, flags: int) -> int:
        """A handle."""
        with self._lock:
            handle = self._next
            self._live[handle] = Event(device, not flags & cudaEventDisableTiming)
            self._next += HANDLE_STEP
        return handle

    def find(self, handle: int, call: str) -> Event:
        """The event of a handle."""
        event = self._live.get(handle)
        if event is None:
            what = "was destroyed" if handle in self._ended else "is no event of this process"
            raise self._space.wrong(f"{call}: {handle:#x} {what}", BAD)
        return event

    def record(self, handle: int, stream: int, device: Device, call: str) -> None:
        """Put its mark behind what the stream has to do."""
        event = self.find(handle, call)
        if event.device is not self._streams.find(stream, device, call).device:
            raise self._space.wrong(f"{call}: the event and the stream belong to different devices", BAD)
        mark = Mark(call)
        event.stream = self._streams.submit(stream, device, mark)
        event.mark = mark

    def hold(self, handle: int, stream: int, device: Device, call: str) -> None:
        """Let a stream, of any device, wait for its mark."""
        event = self.find(handle, call)
        if event.mark is not None and event.stream is not None:
            self._streams.find(stream, device, call).submit(WaitFor(call, event.mark, event.stream))

    def reached(self, handle: int, call: str) -> bool:
        """Whether its mark has been executed, or none was recorded. Raises Failed if its device has failed."""
        event = self.find(handle, call)
        event.device.check()
        return event.mark is None or event.mark.reached.is_set()

    def wait(self, handle: int, call: str) -> None:
        """Until its mark has been executed."""
        event = self.find(handle, call)
        event.device.check()
        if event.mark is not None and event.stream is not None:
            event.stream.wait_for(event.mark.reached.is_set)

    def elapsed_ms(self, first: int, last: int, call: str) -> float:
        """Between two marks."""
        events = [self.find(handle, call) for handle in (first, last)]
        marks = [event.mark for event in events if event.timed and event.mark is not None]
        if len(marks) < len(events):
            raise self._space.wrong(f"{call}: an event was never recorded, or takes no time", BAD)
        if not all(mark.reached.is_set() for mark in marks):
            raise Failed(cudaError_t.cudaErrorNotReady)
        return (marks[1].at_s - marks[0].at_s) * 1e3

    def destroy(self, handle: int, call: str) -> None:
        """Its mark, if not yet reached, is executed all the same."""
        self.find(handle, call)
        with self._lock:
            del self._live[handle]
            self._ended.add(handle)

    def leaked(self) -> Iterator[str]:
        """Events never destroyed, on devices that work."""
        for event in list(self._live.values()):
            if event.device.error is None:
                yield f"an event of device {event.device.ordinal} was never destroyed"
