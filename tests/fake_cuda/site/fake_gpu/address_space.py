"""What each address of this process means to CUDA: device memory, registered host memory, or neither."""

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from fake_gpu.allocation import Allocation
from fake_gpu.checks import Violations
from fake_gpu.device import Device
from fake_gpu.errors import Failed, cudaError_t

Kind = Literal["device", "opened", "host"]


@dataclass(eq=False)
class Region:
    """Bytes start..end. `opened` is another process's memory, `opens` how often its handle is open here."""

    start: int
    size: int
    kind: Kind
    device: Device | None = None
    allocation: Allocation | None = None
    opens: int = 1
    flags: int = 0

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + self.size

    @property
    def on_device(self) -> bool:
        """Or registered host memory."""
        return self.kind != "host"


class AddressSpace:
    """All regions, never overlapping. Device addresses are never given out again, so the dead are remembered."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._lock = threading.RLock()
        self._live: list[Region] = []
        self._dead: list[Region] = []

    @property
    def live(self) -> list[Region]:
        """By address."""
        with self._lock:
            return list(self._live)

    def add(self, region: Region) -> None:
        """A new one."""
        with self._lock:
            self._live.insert(self._place(self._live, region.start), region)

    def remove(self, region: Region) -> None:
        """It is no more."""
        with self._lock:
            self._live.remove(region)
            if region.on_device:
                self._dead.insert(self._place(self._dead, region.start), region)

    def at(self, address: int) -> Region | None:
        """The live region that holds `address`."""
        with self._lock:
            return self._within(self._live, address)

    def dead_at(self, address: int) -> Region | None:
        """The device memory that once was at `address`."""
        with self._lock:
            return self._within(self._dead, address)

    def overlaps(self, start: int, end: int) -> list[Region]:
        """Live regions that share bytes with a range."""
        with self._lock:
            return [region for region in self._live if region.start < end and start < region.end]

    def require(self, address: int, size: int, call: str) -> Region | None:
        """The region of a whole range: None for host memory of which nothing is registered.

        A range may span host registrations that lie side by side. Anything else is a violation and raises Failed.
        """
        region = self.at(address)
        if region is None:
            if dead := self.dead_at(address):
                what = "freed" if dead.kind == "device" else "closed"
                raise self.wrong(f"{call}: {address:#x} is in device memory that was {what}")
            if self.overlaps(address, address + size):
                raise self.wrong(
                    f"{call}: {size} bytes at {address:#x} begin outside memory known to CUDA and end in it"
                )
            return None
        end = region.end
        while (
            end < address + size and (following := self.at(end)) is not None and following.kind == region.kind == "host"
        ):
            end = following.end
        if end < address + size:
            raise self.wrong(
                f"{call}: {size} bytes at {address:#x} end {address + size - end} bytes behind their memory"
            )
        return region

    def require_device(self, address: int, size: int, call: str) -> Region:
        """The device memory of a whole range."""
        region = self.require(address, size, call)
        if region is None or not region.on_device:
            raise self.wrong(f"{call}: {address:#x} is in no device memory of this process")
        return region

    def wrong(self, text: str, code: cudaError_t = cudaError_t.cudaErrorInvalidValue) -> Failed:
        """Record a violation; the error to raise."""
        self._violations.found(text)
        return Failed(code)

    @staticmethod
    def _place(regions: list[Region], address: int) -> int:
        return bisect_right(regions, address, key=lambda region: region.start)

    def _within(self, regions: list[Region], address: int) -> Region | None:
        place = self._place(regions, address)
        region = regions[place - 1] if place else None
        return region if region is not None and address < region.end else None
