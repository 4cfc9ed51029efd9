"""A pool's memory on a GPU as another process maps it: by the IPC handle that the daemon hands out."""

import ctypes
import logging
import os
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from radixd.gpu_pool.cuda.gpu import VISIBILITY, Gpu, is_under_mps, visible_gpus
from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do, get
from radixd.gpu_pool.cuda.tensor import DeviceBytes
from radixd.gpu_pool.device import DeviceMemoryError
from radixd.gpu_pool.handle import GpuHandle
from radixd.gpu_pool.mapping import MappingError

log = logging.getLogger(__name__)
T = TypeVar("T")

_for_good: list[object] = []
"""What mappings keep that could not be given up."""


class AttachedGpu:
    """One device of a pool, open in this process. Raises MappingError, naming what is likely set wrong.

    CUDA gives whoever opens a handle the right to write; nothing keeps a reader from it.
    """

    def __init__(self, handle: GpuHandle, nbytes: int, keep: object) -> None:
        """`keep` lives as long as the memory is mapped: what tells the daemon that it is."""
        if handle.pid == os.getpid():
            raise MappingError(
                f"the daemon has pid {handle.pid} and so has this process: CUDA opens no memory across equal pids. "
                "In containers give both one PID namespace: shareProcessNamespace: true in the pod, or hostPID "
                "(docker run --pid); an in-process daemon cannot be attached to"
            )
        self._gpu = _find(handle.uuid)
        try:
            if is_under_mps(self._gpu):
                raise MappingError(
                    f"GPU {handle.uuid} is shared by MPS in this process, whose kernels could write to the pool after "
                    "its end: stop nvidia-cuda-mps-control, or keep its pipe directory (CUDA_MPS_PIPE_DIRECTORY, "
                    "/tmp/nvidia-mps) from the engine"
                )
            base = _beside(lambda: _open(self._gpu, handle.ipc))
        except CudaError as error:
            raise MappingError(
                f"the pool's memory on GPU {handle.uuid} cannot be opened ({error}): the daemon must be alive, in the "
                "same IPC and PID namespaces (shareProcessNamespace or hostPID), on the same driver, and not under MPS"
            ) from error
        memory = DeviceBytes(base + handle.offset, nbytes)
        # Runs when the last tensor over the memory is gone: a mapping that went before would leave it dangling.
        self._unmapping = weakref.finalize(memory, _unmap, self._gpu, base, keep)
        self._unmapping.atexit = False  # the driver unmaps what a process leaves
        try:
            self._buffer = memory.tensor(self._gpu.ordinal)
        except RuntimeError as error:
            raise MappingError(str(error)) from error

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8 on the GPU."""
        return self._buffer

    def close(self) -> None:
        """Let go of the memory: waits for the GPU and unmaps, at once or when the last tensor over it is gone.

        A ResourceWarning says that there still are such tensors, in this process.
        """
        nbytes = self._buffer.numel()
        self._buffer = torch.empty(0, dtype=torch.uint8)
        if self._unmapping.alive:
            warnings.warn(
                f"tensors of an attached pool outlive its attachment: {nbytes} bytes of GPU {self._gpu.uuid} stay "
                "taken, also from the daemon's next start, until they are dropped",
                ResourceWarning,
                stacklevel=2,
            )


def _find(uuid: str) -> Gpu:
    try:
        visible = visible_gpus()
    except DeviceMemoryError as error:
        raise MappingError(f"the pool lies on GPU {uuid}: {error}") from error
    for gpu in visible:
        if gpu.uuid == uuid:
            return gpu
    names = ", ".join(gpu.uuid for gpu in visible) or "none"
    raise MappingError(
        f"the pool lies on GPU {uuid}, which this process does not see (visible: {names}): {VISIBILITY}, or map only "
        "your own rank's GPU with attach(ticket, ranks=[...])"
    )


def _open(gpu: Gpu, ipc: bytes) -> int:
    gpu.make_current()
    handle = cudart.cudaIpcMemHandle_t()
    ctypes.memmove(handle.getPtr(), ipc, len(ipc))
    return get(cudart.cudaIpcOpenMemHandle, handle, cudart.cudaIpcMemLazyEnablePeerAccess)


def _unmap(gpu: Gpu, base: int, keep: object) -> None:
    """On whichever thread drops the last tensor."""
    try:
        _beside(lambda: _close(gpu, base))
    except CudaError as error:
        _for_good.append(keep)
        log.warning("GPU %s: the pool cannot be unmapped before this process ends: %s", gpu.uuid, error)


def _close(gpu: Gpu, base: int) -> None:
    gpu.make_current()
    do(cudart.cudaDeviceSynchronize)
    do(cudart.cudaIpcCloseMemHandle, base)


def _beside(work: Callable[[], T]) -> T:
    """`work()` on a thread of its own: which GPU is current there is no matter to the engine that calls."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="radixd-attach") as thread:
        return thread.submit(work).result()
