# ruff: noqa: N801, N802, N815
"""The struct and handle classes of cuda.bindings.runtime, as far as the fake fills or reads them."""

import ctypes
from dataclasses import dataclass, field

from fake_gpu.enums import cudaMemcpySrcAccessOrder, cudaMemLocationType, cudaMemoryType

IPC_HANDLE_BYTES = 64


class Handle:
    """An opaque pointer that int() reads."""

    def __init__(self, init_value: int = 0) -> None:
        self._value = init_value

    def __int__(self) -> int:
        return self._value

    def __index__(self) -> int:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._value:#x}>"


class cudaStream_t(Handle):
    """A stream."""


class cudaEvent_t(Handle):
    """An event."""


class cudaIpcMemHandle_t:
    """64 opaque bytes, which the real class too shows by their address alone."""

    def __init__(self, _ptr: int = 0) -> None:
        self._own = ctypes.create_string_buffer(IPC_HANDLE_BYTES)
        self._address = _ptr or ctypes.addressof(self._own)

    def getPtr(self) -> int:
        """Where the bytes lie; valid as long as this object."""
        return self._address


@dataclass
class cudaUUID_t:
    """16 bytes."""

    bytes: bytes = bytes(16)


@dataclass
class cudaDeviceProp:
    """What a device is."""

    name: bytes = b""
    uuid: cudaUUID_t = field(default_factory=cudaUUID_t)
    totalGlobalMem: int = 0
    multiProcessorCount: int = 0
    pciDomainID: int = 0
    pciBusID: int = 0
    pciDeviceID: int = 0
    major: int = 0
    minor: int = 0
    asyncEngineCount: int = 0
    unifiedAddressing: int = 0
    canUseHostPointerForRegisteredMem: int = 0
    hostRegisterSupported: int = 0
    integrated: int = 0
    mpsEnabled: int = 0


@dataclass
class cudaMemLocation:
    """A hint that the fake ignores, as a device does for memory that has a fixed place."""

    type: cudaMemLocationType = cudaMemLocationType.cudaMemLocationTypeInvalid
    id: int = 0


@dataclass
class cudaMemcpyAttributes:
    """How copies of a batch may read their sources. Fresh ones are invalid until srcAccessOrder is set."""

    srcAccessOrder: cudaMemcpySrcAccessOrder = cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderInvalid
    srcLocHint: cudaMemLocation = field(default_factory=cudaMemLocation)
    dstLocHint: cudaMemLocation = field(default_factory=cudaMemLocation)
    flags: int = 0


@dataclass
class cudaPointerAttributes:
    """What a pointer points to."""

    type: cudaMemoryType = cudaMemoryType.cudaMemoryTypeUnregistered
    device: int = 0
    devicePointer: int = 0
    hostPointer: int = 0
