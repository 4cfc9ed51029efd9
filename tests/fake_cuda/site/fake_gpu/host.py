"""Host memory that a process has registered: only that can be copied asynchronously."""

from collections.abc import Iterator

from fake_gpu import mapping
from fake_gpu.address_space import AddressSpace, Region
from fake_gpu.device import Device
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.streams import Streams


class HostMemory:
    """Registers and unregisters ranges."""

    def __init__(self, space: AddressSpace, streams: Streams, devices: list[Device]) -> None:
        self._space = space
        self._streams = streams
        self._devices = devices

    def register(self, address: int, size: int, flags: int, call: str) -> None:
        """Pin it; whole pages are pinned, so two ranges may not share one."""
        if size == 0 or not mapping.mapped(address, size):
            raise self._space.wrong(f"{call}: {size} bytes at {address:#x} are not all mapped")
        first = address // mapping.PAGE * mapping.PAGE
        others = self._space.overlaps(first, first + mapping.pages(address + size - first))
        if any(region.on_device for region in others):
            raise self._space.wrong(f"{call}: {address:#x} is device memory")
        if others:
            raise self._space.wrong(
                f"{call}: {size} bytes at {address:#x} overlap memory that is registered",
                cudaError_t.cudaErrorHostMemoryAlreadyRegistered,
            )
        self._space.add(Region(address, size, "host", flags=flags))

    def unregister(self, address: int, call: str) -> None:
        """By the address that was registered."""
        region = self._space.at(address)
        if region is None or region.on_device or region.start != address:
            raise self._space.wrong(
                f"{call}: {address:#x} is not the start of registered memory",
                cudaError_t.cudaErrorHostMemoryNotRegistered,
            )
        if self._streams.touching((region.start, region.end)):
            self._space.wrong(f"{call}: a stream still uses the memory at {address:#x}")
        if not mapping.mapped(region.start, region.size):
            self._space.wrong(f"{call}: the memory at {address:#x} was unmapped while it was registered")
        self._space.remove(region)

    def flags(self, address: int) -> int:
        """Of registered memory."""
        region = self._space.at(address)
        if region is None or region.on_device:
            raise Failed(cudaError_t.cudaErrorInvalidValue)
        return region.flags

    def leaked(self) -> Iterator[str]:
        """Ranges never unregistered, in a process whose devices all work."""
        if any(device.error is not None for device in self._devices):
            return
        for region in self._space.live:
            if not region.on_device:
                yield f"{region.size} bytes of host memory were never unregistered"
