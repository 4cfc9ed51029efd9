# ruff: noqa: N801, N815, N816
"""The enums and flags of CUDA 13.5 that the fake understands, with their real values."""

from enum import IntEnum


class cudaMemcpyKind(IntEnum):
    """Which way a copy goes."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


class cudaMemoryType(IntEnum):
    """What a pointer points to."""

    cudaMemoryTypeUnregistered = 0
    cudaMemoryTypeHost = 1
    cudaMemoryTypeDevice = 2
    cudaMemoryTypeManaged = 3


class cudaMemcpySrcAccessOrder(IntEnum):
    """When a batched copy may read its source."""

    cudaMemcpySrcAccessOrderInvalid = 0
    cudaMemcpySrcAccessOrderStream = 1
    cudaMemcpySrcAccessOrderDuringApiCall = 2
    cudaMemcpySrcAccessOrderAny = 3
    cudaMemcpySrcAccessOrderMax = 2147483647


class cudaMemcpyFlags(IntEnum):
    """Hints for a batched copy."""

    cudaMemcpyFlagDefault = 0
    cudaMemcpyFlagPreferOverlapWithCompute = 1


class cudaMemLocationType(IntEnum):
    """Where memory lies."""

    cudaMemLocationTypeInvalid = 0
    cudaMemLocationTypeDevice = 1
    cudaMemLocationTypeHost = 2
    cudaMemLocationTypeHostNuma = 3
    cudaMemLocationTypeHostNumaCurrent = 4
    cudaMemLocationTypeInvisible = 5
    cudaMemLocationTypeDeviceLocalityDomain = 6


class cudaComputeMode(IntEnum):
    """How many processes may use a device."""

    cudaComputeModeDefault = 0
    cudaComputeModeExclusive = 1
    cudaComputeModeProhibited = 2
    cudaComputeModeExclusiveProcess = 3


class cudaDeviceAttr(IntEnum):
    """The attributes of a device that the fake answers for."""

    cudaDevAttrMultiProcessorCount = 16
    cudaDevAttrIntegrated = 18
    cudaDevAttrCanMapHostMemory = 19
    cudaDevAttrComputeMode = 20
    cudaDevAttrPciBusId = 33
    cudaDevAttrPciDeviceId = 34
    cudaDevAttrAsyncEngineCount = 40
    cudaDevAttrUnifiedAddressing = 41
    cudaDevAttrPciDomainId = 50
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76
    cudaDevAttrStreamPrioritiesSupported = 78
    cudaDevAttrPageableMemoryAccess = 88
    cudaDevAttrCanUseHostPointerForRegisteredMem = 91
    cudaDevAttrHostRegisterSupported = 99
    cudaDevAttrHostRegisterReadOnlySupported = 113
    cudaDevAttrMemoryPoolsSupported = 115
    cudaDevAttrIpcEventSupport = 125
    cudaDevAttrMpsEnabled = 133
    cudaDevAttrHostNumaId = 134


cudaStreamDefault = 0
cudaStreamNonBlocking = 1
cudaStreamLegacy = 1
cudaStreamPerThread = 2
cudaEventDefault = 0
cudaEventBlockingSync = 1
cudaEventDisableTiming = 2
cudaEventInterprocess = 4
cudaEventRecordDefault = 0
cudaEventWaitDefault = 0
cudaHostRegisterDefault = 0
cudaHostRegisterPortable = 1
cudaHostRegisterMapped = 2
cudaHostRegisterIoMemory = 4
cudaHostRegisterReadOnly = 8
cudaIpcMemLazyEnablePeerAccess = 1
