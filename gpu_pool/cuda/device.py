"""A pool's memory on one GPU, and the copies to, from and on it."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Final

import torch

from radixd.gpu_pool.cuda.copies import enqueue_in_batches, enqueue_in_runs, enqueue_one_by_one, has_batches
from radixd.gpu_pool.cuda.gpu import Gpu
from radixd.gpu_pool.cuda.holders import named_holders
from radixd.gpu_pool.cuda.pinned import PinnedMemory
from radixd.gpu_pool.cuda.runtime import CudaError, cudart, do, get
from radixd.gpu_pool.cuda.stream import Enqueue, Lane
from radixd.gpu_pool.cuda.tensor import DeviceBytes
from radixd.gpu_pool.device import (
    Copy,
    Device,
    DeviceFull,
    DeviceLost,
    DeviceMemoryError,
    PageCopy,
    TokenCopy,
    joined,
)
from radixd.gpu_pool.handle import IPC_HANDLE_BYTES, GpuHandle, Handle

log = logging.getLogger(__name__)

GRANULE = 2 * 2**20
"""The driver puts smaller allocations together into one, which an IPC handle would then name as a whole."""

SCRATCH_BYTES = 64 * 2**20
"""Of the GPU, beside the pool, for a token move while it runs: torch's. Above 100,000 tokens one layer needs more."""


class CudaDevice:
    """One cudaMalloc of `nbytes` on `gpu`, zeroed, never resized, shared by IPC handle; three streams for its copies.

    Raises DeviceFull where others hold the memory, DeviceMemoryError where it can never be had.
    """

    kind: Final = "cuda"

    def __init__(self, nbytes: int, gpu: Gpu) -> None:
        self.gpu = gpu
        self.lost: str | None = None
        self._losing = threading.Lock()
        self._pinned: list[PinnedMemory] = []
        self._peers: list[range] = []
        self._unlinked: list[range] = []
        self._left = False
        with ExitStack() as undo:
            try:
                gpu.make_current()
                self._address = _allocate(nbytes, gpu)
                undo.callback(self._quietly, "freeing the pool", self._free)
                undo.callback(self._quietly, "unpinning host memory", self._unpin)
                do(cudart.cudaMemset, self._address, 0, nbytes)
                do(cudart.cudaDeviceSynchronize)
                self._ipc = _ipc_handle(self._address)
                self._lanes = {name: self._lane(name, undo) for name in ("to_host", "from_host", "on_device")}
                self._batched = self._ask_for_batches()
                self._buffer = DeviceBytes(self._address, nbytes).tensor(gpu.ordinal)
            except (CudaError, RuntimeError) as error:
                raise DeviceMemoryError(f"GPU {gpu.uuid}: {error}") from error
            self._undo = undo.pop_all()

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8 on the GPU. No view of it may be used after `close`."""
        return self._buffer

    def export(self) -> Handle:
        """The IPC handle: for other processes, never for this one."""
        nbytes = self._buffer.numel()
        return Handle(self.kind, nbytes, gpu=GpuHandle(self.gpu.uuid, self._ipc, 0, os.getpid()))

    def pin(self, host: torch.Tensor) -> None:
        """Register `host` with CUDA, for all GPUs of the process."""
        self.gpu.make_current()
        self._pinned.append(PinnedMemory(host))

    def add_peer(self, peer: Device) -> None:
        """Map the peer's memory, where the GPUs are linked; elsewhere the driver takes copies through the host."""
        assert isinstance(peer, CudaDevice), f"a {peer.kind} device is no GPU's peer"
        memory = range(peer._address, peer._address + peer.buffer.numel())
        if memory in self._peers:
            return
        if not all([peer._reach(self.gpu), self._reach(peer.gpu)]):
            self._unlinked.append(memory)
        self._peers.append(memory)

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """See Device: each copy goes to the lane of its direction."""
        return self._run((name, partial(self._enqueue, tuple(some))) for name, some in groupby(copies, self._direction))

    def probe(self) -> Future[None]:
        """See Device: asks all lanes."""
        return self._run((name, lambda _: None) for name in self._lanes)

    def leave(self) -> None:
        """As `close`, but the memory stays until this process ends: CUDA forbids freeing what others have open."""
        self._left = True
        self.close()

    def close(self) -> None:
        """Wait for the lanes, then give up streams, registrations and memory, in that order. Once only."""
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._undo.close()

    # --- copies

    def _run(self, work: Iterable[tuple[str, Enqueue]]) -> Future[None]:
        if self.lost is not None:
            refused: Future[None] = Future()
            refused.set_exception(DeviceLost(self.lost))
            return refused
        return joined([self._lanes[name].run(enqueue) for name, enqueue in work])

    def _reach(self, other: Gpu) -> bool:
        """Let this GPU read the other's memory; False where they are not linked."""
        try:
            return _enable_access(self.gpu, other)
        except CudaError as error:
            if error.sticky:
                raise self._lose(error) from error
            raise

    def _direction(self, copy: Copy) -> str:
        if isinstance(copy, TokenCopy):
            return "on_device"
        own = range(self._address, self._address + self._buffer.numel())
        if copy.dst.data_ptr() not in own:
            return "to_host"
        source = copy.src.data_ptr()
        return "on_device" if any(source in memory for memory in (own, *self._peers)) else "from_host"

    def _enqueue(self, copies: Sequence[Copy], stream: cudart.cudaStream_t) -> None:
        for pages, some in groupby(copies, lambda copy: isinstance(copy, PageCopy)):
            if pages:
                self._enqueue_pages([copy for copy in some if isinstance(copy, PageCopy)], stream)
            else:
                self._enqueue_tokens([copy for copy in some if isinstance(copy, TokenCopy)], stream)

    def _enqueue_pages(self, copies: Sequence[PageCopy], stream: cudart.cudaStream_t) -> None:
        if any(copy.src.data_ptr() in memory for memory in self._unlinked for copy in copies):
            enqueue_one_by_one(copies, stream)
        elif self._batched:
            enqueue_in_batches(copies, stream)
        else:
            enqueue_in_runs(copies, stream)

    def _enqueue_tokens(self, copies: Sequence[TokenCopy], stream: cudart.cudaStream_t) -> None:
        """By torch's kernels on the lane's stream, in whose order torch reuses scratch and lists."""
        device = torch.device("cuda", self.gpu.ordinal)
        with torch.cuda.stream(torch.cuda.ExternalStream(int(stream), device=device)):  # type: ignore[no-untyped-call]
            for copy in copies:
                lists = [index.to(copy.rows.device, non_blocking=True) for index in (*copy.src, *copy.dst)]
                TokenCopy(copy.rows, (lists[0], lists[1]), (lists[2], lists[3])).run(SCRATCH_BYTES)

    # --- start and end

    def _lane(self, name: str, undo: ExitStack) -> Lane:
        lane = Lane(self.gpu, f"radixd-gpu{self.gpu.ordinal}-{name}", self._lose)
        undo.callback(self._quietly, f"closing its stream {name}", lane.close)
        return lane

    def _ask_for_batches(self) -> bool:
        """On page 0, which nothing is ever copied to or from."""
        answers: list[bool] = []
        asked = self._lanes["on_device"].run(lambda stream: answers.append(has_batches(stream, self._address)))
        try:
            asked.result()
        except DeviceLost as error:
            raise DeviceMemoryError(str(error)) from error
        return answers[0]

    def _free(self) -> None:
        if self._left:
            return
        self.gpu.make_current()
        do(cudart.cudaFree, self._address)

    def _unpin(self) -> None:
        self.gpu.make_current()
        while self._pinned:
            self._pinned.pop().close()

    def _lose(self, error: CudaError) -> DeviceLost:
        with self._losing:  # by one of its lanes alone
            if self.lost is None:
                self.lost = (
                    f"GPU {self.gpu.uuid} can be used no more by this process ({error}): restart it, and look for Xid "
                    "errors in dmesg and nvidia-smi -q if it happens again"
                )
                log.error("%s", self.lost)
        return DeviceLost(self.lost)

    def _quietly(self, what: str, end: Callable[[], None]) -> None:
        """A GPU that is lost gives nothing back, and the others must still be closed."""
        try:
            end()
        except CudaError as error:
            log.warning("GPU %s: %s failed: %s", self.gpu.uuid, what, error)


def _allocate(nbytes: int, gpu: Gpu) -> int:
    try:
        return get(cudart.cudaMalloc, -(-nbytes // GRANULE) * GRANULE)
    except CudaError as error:
        if error.code != cudart.cudaError_t.cudaErrorMemoryAllocation:
            raise
        if nbytes > gpu.total_bytes:
            raise DeviceMemoryError(
                f"GPU {gpu.uuid} has {gpu.total_bytes} bytes in all, {nbytes} are needed: make the pool smaller"
            ) from error
        raise DeviceFull(
            f"GPU {gpu.uuid} has {gpu.free_bytes()} of {gpu.total_bytes} bytes free, {nbytes} are needed: make the "
            f"pool smaller, or end what else uses the GPU; {named_holders()}"
        ) from error


def _ipc_handle(address: int) -> bytes:
    handle = get(cudart.cudaIpcGetMemHandle, address)  # its bytes live no longer than it
    return ctypes.string_at(handle.getPtr(), IPC_HANDLE_BYTES)


def _enable_access(ours: Gpu, theirs: Gpu) -> bool:
    """Let `ours` reach the memory of `theirs`; False where they are not linked."""
    if ours == theirs:
        return True
    if not get(cudart.cudaDeviceCanAccessPeer, ours.ordinal, theirs.ordinal):
        return False
    ours.make_current()
    try:
        do(cudart.cudaDeviceEnablePeerAccess, theirs.ordinal, 0)
    except CudaError as error:
        if error.code != cudart.cudaError_t.cudaErrorPeerAccessAlreadyEnabled:
            raise
    return True
