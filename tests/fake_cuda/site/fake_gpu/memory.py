"""Device memory of a process: cudaMalloc, cudaFree, and what is free."""

import ctypes
from collections.abc import Iterator

from fake_gpu import holder, mapping
from fake_gpu.address_space import AddressSpace, Region
from fake_gpu.allocation import Ledger
from fake_gpu.device import Device
from fake_gpu.streams import Streams

GARBAGE, GARBAGE_BYTES = 0xA5, 64 << 20
"""What fresh device memory holds, as far as it costs little: nobody may take it for zeros."""


class Memory:
    """Makes and frees allocations."""

    def __init__(self, space: AddressSpace, ledger: Ledger, streams: Streams) -> None:
        self._space = space
        self._ledger = ledger
        self._streams = streams

    def info(self, device: Device) -> tuple[int, int]:
        """Bytes free, over all processes, and in all."""
        total = device.gpu.memory
        return total - self._ledger.used(device.index), total

    def allocate(self, device: Device, size: int) -> int:
        """The address of `size` bytes of garbage; 0 for none."""
        if size == 0:
            return 0
        allocation = self._ledger.allocate(device.index, size, device.gpu.memory)
        address = mapping.map_shared(allocation.file, size)
        ctypes.memset(address, GARBAGE, min(size, GARBAGE_BYTES))
        self._space.add(Region(address, size, "device", device, allocation))
        return address

    def free(self, address: int, call: str) -> None:
        """Wait for the device, as cudaFree does, and give it up."""
        if address == 0:
            return
        region = self._owned(address, call)
        assert region.device is not None
        assert region.allocation is not None
        region.device.check()
        self._streams.synchronize(region.device)
        with self._ledger.locked():
            users = region.allocation.holders("user")
            region.allocation.drop("owner")
        if users:
            pids = ", ".join(name.split(".")[0] for name in users)
            self._space.wrong(f"{call}: process {pids} still has {address:#x} open")
        self._space.remove(region)
        mapping.retire(region.start, region.size)

    def _owned(self, address: int, call: str) -> Region:
        region = self._space.at(address)
        if region is None:
            again = self._space.dead_at(address)
            raise self._space.wrong(f"{call}: {address:#x} {'was freed before' if again else 'was never allocated'}")
        if region.kind != "device" or region.start != address:
            raise self._space.wrong(f"{call}: {address:#x} is not the start of an allocation of this process")
        return region

    def leaked(self) -> Iterator[str]:
        """Allocations never freed, on devices that work. Who knows others to use one leaves it to its process's end."""
        for region in self._space.live:
            if region.allocation is not None and region.allocation.known_users():
                continue
            if region.kind == "device" and region.device is not None and region.device.error is None:
                yield f"{region.size} bytes of device {region.device.ordinal} were never freed"

    def abandon(self) -> None:
        """Unmap all, as the end of the process would."""
        for region in self._space.live:
            if region.on_device and region.allocation is not None:
                for file in region.allocation.folder.glob(f"*.{holder.own_name()}"):
                    file.unlink()
                mapping.retire(region.start, region.size)
