"""One GPU as one process sees it: its ordinal here, and the error that has made it unusable here."""

from fake_gpu.enums import cudaComputeMode, cudaDeviceAttr
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.machine import Gpu, Machine
from fake_gpu.structs import cudaDeviceProp, cudaUUID_t

A = cudaDeviceAttr
MULTIPROCESSORS = 132


class Device:
    """`index` is its place in the machine, `ordinal` its number in this process."""

    def __init__(self, machine: Machine, index: int, ordinal: int) -> None:
        self._machine = machine
        self.index = index
        self.ordinal = ordinal
        self.sticky: cudaError_t | None = None
        self.peers: set[int] = set()

    @property
    def gpu(self) -> Gpu:
        """As the machine describes it."""
        return self._machine.state.gpus[self.index]

    @property
    def delay_s(self) -> float:
        """How late its streams execute."""
        return self._machine.state.delay_s

    @property
    def paused(self) -> bool:
        """Whether its streams stand still."""
        return self.index in self._machine.state.paused

    @property
    def error(self) -> cudaError_t | None:
        """Why every call fails, if it does."""
        lost = dict(self._machine.state.lost).get(self.index)
        return cudaError_t[lost] if lost else self.sticky

    def check(self) -> None:
        """Raises Failed with the error that has made it unusable."""
        error = self.error
        if error is not None:
            raise Failed(error)

    def attribute(self, attribute: cudaDeviceAttr) -> int:
        """Its value: a test's, or that of an H200 in its usual state."""
        values = {
            A.cudaDevAttrMultiProcessorCount: MULTIPROCESSORS,
            A.cudaDevAttrIntegrated: 0,
            A.cudaDevAttrCanMapHostMemory: 1,
            A.cudaDevAttrComputeMode: cudaComputeMode.cudaComputeModeDefault,
            A.cudaDevAttrPciBusId: self.gpu.pci_bus,
            A.cudaDevAttrPciDeviceId: 0,
            A.cudaDevAttrAsyncEngineCount: 3,
            A.cudaDevAttrUnifiedAddressing: 1,
            A.cudaDevAttrPciDomainId: 0,
            A.cudaDevAttrComputeCapabilityMajor: 9,
            A.cudaDevAttrComputeCapabilityMinor: 0,
            A.cudaDevAttrStreamPrioritiesSupported: 1,
            A.cudaDevAttrPageableMemoryAccess: 0,
            A.cudaDevAttrCanUseHostPointerForRegisteredMem: 1,
            A.cudaDevAttrHostRegisterSupported: 1,
            A.cudaDevAttrHostRegisterReadOnlySupported: 1,
            A.cudaDevAttrMemoryPoolsSupported: 1,
            A.cudaDevAttrIpcEventSupport: 1,
            A.cudaDevAttrMpsEnabled: 0,
            A.cudaDevAttrHostNumaId: 0,
        }
        return int(self.gpu.attributes.get(attribute.name, values[attribute]))

    def properties(self) -> cudaDeviceProp:
        """What cudaGetDeviceProperties fills in."""
        gpu = self.gpu
        return cudaDeviceProp(
            name=gpu.name.encode(),
            uuid=cudaUUID_t(bytes.fromhex(gpu.uuid)),
            totalGlobalMem=gpu.memory,
            multiProcessorCount=self.attribute(A.cudaDevAttrMultiProcessorCount),
            pciBusID=gpu.pci_bus,
            major=9,
            asyncEngineCount=self.attribute(A.cudaDevAttrAsyncEngineCount),
            unifiedAddressing=self.attribute(A.cudaDevAttrUnifiedAddressing),
            canUseHostPointerForRegisteredMem=self.attribute(A.cudaDevAttrCanUseHostPointerForRegisteredMem),
            hostRegisterSupported=self.attribute(A.cudaDevAttrHostRegisterSupported),
            mpsEnabled=self.attribute(A.cudaDevAttrMpsEnabled),
        )


def visible_devices(machine: Machine, visible: str | None) -> list[Device]:
    """What CUDA_VISIBLE_DEVICES leaves: numbers or beginnings of GPU-…, up to the first that names no GPU."""
    gpus = machine.state.gpus
    if visible is None:
        return [Device(machine, index, index) for index in range(len(gpus))]
    devices: list[Device] = []
    for name in visible.split(","):
        index = _index(gpus, name.strip())
        if index is None:
            break
        devices.append(Device(machine, index, len(devices)))
    return devices


def _index(gpus: tuple[Gpu, ...], name: str) -> int | None:
    if name.startswith("GPU-"):
        wanted = name.removeprefix("GPU-").replace("-", "")
        fitting = [index for index, gpu in enumerate(gpus) if gpu.uuid.startswith(wanted)]
        return fitting[0] if len(fitting) == 1 else None
    return int(name) if name.isdecimal() and int(name) < len(gpus) else None
