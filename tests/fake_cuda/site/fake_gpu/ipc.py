"""Device memory of other processes: handles, and what is open here."""

import ctypes
from collections.abc import Iterator

from fake_gpu import mapping
from fake_gpu.address_space import AddressSpace, Region
from fake_gpu.allocation import Allocation, Ledger
from fake_gpu.device import Device
from fake_gpu.enums import cudaIpcMemLazyEnablePeerAccess
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.streams import Streams
from fake_gpu.structs import IPC_HANDLE_BYTES, cudaIpcMemHandle_t

MAGIC = b"fake-ipc:"


class Ipc:
    """Exports, opens and closes."""

    def __init__(self, space: AddressSpace, ledger: Ledger, streams: Streams, devices: list[Device]) -> None:
        self._space = space
        self._ledger = ledger
        self._streams = streams
        self._devices = devices

    def export(self, address: int, call: str) -> cudaIpcMemHandle_t:
        """The handle of an allocation of this process."""
        region = self._space.require_device(address, 1, call)
        if region.kind != "device" or region.start != address or region.allocation is None:
            raise self._space.wrong(f"{call}: {address:#x} is not the start of an allocation of this process")
        handle = cudaIpcMemHandle_t()
        raw = (MAGIC + region.allocation.folder.name.encode()).ljust(IPC_HANDLE_BYTES, b"\0")
        ctypes.memmove(handle.getPtr(), raw, IPC_HANDLE_BYTES)
        return handle

    def open(self, handle: cudaIpcMemHandle_t, flags: int, current: Device, call: str) -> int:
        """The address here. The same memory opened again is counted."""
        if flags != cudaIpcMemLazyEnablePeerAccess:
            raise self._space.wrong(f"{call}: flags must be cudaIpcMemLazyEnablePeerAccess, not {flags}")
        with self._ledger.locked():
            allocation = self._named(handle)
            opened = self._open(allocation)
            if opened is not None:
                opened.opens += 1
                return opened.start
            device = next((device for device in self._devices if device.index == allocation.gpu), None)
            if device is None:
                raise Failed(cudaError_t.cudaErrorInvalidDevice)
            device.check()
            allocation.hold("user")
            allocation.remember_user()
        if device is not current:
            self._space.wrong(f"{call}: the memory is on another device than the current one, {current.ordinal}")
        address = mapping.map_shared(allocation.file, allocation.size)
        self._space.add(Region(address, allocation.size, "opened", device, allocation))
        return address

    def close(self, address: int, call: str) -> None:
        """Once for each open; the last one unmaps."""
        region = self._space.at(address)
        if region is None or region.kind != "opened" or region.start != address or region.allocation is None:
            again = self._space.dead_at(address)
            raise self._space.wrong(f"{call}: {address:#x} {'was closed before' if again else 'was never opened'}")
        region.opens -= 1
        if region.opens:
            return
        if self._streams.touching((region.start, region.end)):
            self._space.wrong(f"{call}: a stream still uses the memory at {address:#x}")
        with self._ledger.locked():
            region.allocation.drop("user")
        self._space.remove(region)
        mapping.retire(region.start, region.size)

    def leaked(self) -> Iterator[str]:
        """Handles never closed, on devices that work."""
        for region in self._space.live:
            if region.kind == "opened" and region.device is not None and region.device.error is None:
                yield f"{region.size} bytes of another process on device {region.device.ordinal} were never closed"

    def _named(self, handle: cudaIpcMemHandle_t) -> Allocation:
        """What a handle names: memory of another process that is alive and has not freed it."""
        raw = ctypes.string_at(handle.getPtr(), IPC_HANDLE_BYTES)
        name = raw.removeprefix(MAGIC).rstrip(b"\0").decode() if raw.startswith(MAGIC) else "none"
        allocation = self._ledger.named(name)
        if allocation is None or not allocation.holders("owner"):
            raise Failed(cudaError_t.cudaErrorInvalidResourceHandle)
        if any(region.kind == "device" and region.allocation == allocation for region in self._space.live):
            raise Failed(cudaError_t.cudaErrorDeviceUninitialized)
        return allocation

    def _open(self, allocation: Allocation) -> Region | None:
        return next((region for region in self._space.live if region.allocation == allocation), None)
