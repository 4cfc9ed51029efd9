"""The GPUs of this node, by UUID: ordinals change with CUDA_VISIBLE_DEVICES from one process to the next."""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do, get
from radixd.gpu_pool.device import DeviceMemoryError

OLD_DRIVER = "there is none, or it is one of CUDA 12: then pip install 'cuda-bindings<13'"
VISIBILITY = "check the driver, CUDA_VISIBLE_DEVICES and which devices the container was given"


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process sees.

    Attributes:
        uuid: as nvidia-smi -L prints it: "GPU-…".
        ordinal: its number in this process alone.
        name: the product's.
        total_bytes: its memory.
    """

    uuid: str
    ordinal: int
    name: str
    total_bytes: int

    def make_current(self) -> None:
        """Let this thread's further calls go to it, and make its context if need be. Raises CudaError."""
        do(cudart.cudaSetDevice, self.ordinal)

    def free_bytes(self) -> int:
        """Memory that nobody has taken, after this process's own context. Raises CudaError."""
        self.make_current()
        status, free, _ = cudart.cudaMemGetInfo()
        if status:
            raise CudaError(status, "cudaMemGetInfo")
        return free


def find_gpus(names: Sequence[str], count: int) -> tuple[Gpu, ...]:
    """The GPUs called `names`, in that order, or without names the first `count` that are visible.

    A name is a UUID or the beginning of one that fits no other GPU. Raises DeviceMemoryError for one that is not
    there, and for one whose memory could not be shared safely.
    """
    visible = visible_gpus()
    found = tuple(_named(name, visible) for name in names) or visible[:count]
    if len(found) != count:
        raise DeviceMemoryError(
            f"{count} GPUs are needed, {len(found)} are {'named' if names else 'visible'} ({_listed(visible)}): "
            + ("name one for each rank" if names else VISIBILITY)
        )
    if len(set(found)) != len(found):
        raise DeviceMemoryError(f"a GPU is named twice in {', '.join(names)}: each rank needs one of its own")
    for gpu in found:
        _check_sharing(gpu)
    return found


def visible_gpus() -> tuple[Gpu, ...]:
    """All GPUs that this process sees and that answer, by ordinal: one that has failed keeps nobody from the others.

    Raises DeviceMemoryError without a driver, and where none answers.
    """
    found = list[Gpu]()
    failure = ""  # its text alone: an exception that is kept keeps its callers' tensors too
    try:
        count = get(cudart.cudaGetDeviceCount)
    except CudaError as error:
        count, failure = 0, str(error)
        if error.code == cudart.cudaError_t.cudaErrorInsufficientDriver:
            failure += f", {OLD_DRIVER}"
    for ordinal in range(count):
        try:
            found.append(_gpu(ordinal))
        except CudaError as error:
            failure = failure or str(error)
    if failure and not found:
        raise DeviceMemoryError(f"no GPU can be used: {failure}: {VISIBILITY}")
    return tuple(found)


def is_under_mps(gpu: Gpu) -> bool:
    """Whether a server of MPS runs this process's kernels there. Raises CudaError."""
    try:
        return bool(get(cudart.cudaDeviceGetAttribute, cudart.cudaDeviceAttr.cudaDevAttrMpsEnabled, gpu.ordinal))
    except CudaError as error:
        if error.code != cudart.cudaError_t.cudaErrorInvalidValue:
            raise
        return "CUDA_MPS_PIPE_DIRECTORY" in os.environ  # the driver is older than the question


def _gpu(ordinal: int) -> Gpu:
    properties = get(cudart.cudaGetDeviceProperties, ordinal)
    return Gpu(
        uuid=f"GPU-{uuid.UUID(bytes=properties.uuid.bytes)}",
        ordinal=ordinal,
        name=properties.name.decode(),
        total_bytes=properties.totalGlobalMem,
    )


def _named(name: str, visible: Sequence[Gpu]) -> Gpu:
    fitting = [gpu for gpu in visible if name and gpu.uuid.startswith(name)]
    if len(fitting) != 1:
        problem = "fits several GPUs" if fitting else "is no GPU of this process"
        raise DeviceMemoryError(
            f"GPU {name!r} {problem} ({_listed(visible)}): use a UUID as nvidia-smi -L prints it, and {VISIBILITY}"
        )
    return fitting[0]


def _listed(gpus: Sequence[Gpu]) -> str:
    return "visible: " + (", ".join(gpu.uuid for gpu in gpus) or "none")


def _check_sharing(gpu: Gpu) -> None:
    """Raises DeviceMemoryError where other processes could not attach, or could outlive the proof of their end."""
    try:
        mode = get(cudart.cudaDeviceGetAttribute, cudart.cudaDeviceAttr.cudaDevAttrComputeMode, gpu.ordinal)
        mps = is_under_mps(gpu)
    except CudaError as error:
        raise DeviceMemoryError(f"GPU {gpu.uuid}: {error}") from error
    if mode != cudart.cudaComputeMode.cudaComputeModeDefault:
        raise DeviceMemoryError(
            f"GPU {gpu.uuid} is in compute mode {cudart.cudaComputeMode(mode).name}, so no second process can use it: "
            f"run nvidia-smi -i {gpu.uuid} -c DEFAULT"
        )
    if mps:
        raise DeviceMemoryError(
            f"GPU {gpu.uuid} is shared by MPS, under which a dead client's kernels may go on writing to the pool: "
            "stop nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY for radixd and its engines"
        )
