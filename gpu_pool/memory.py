"""A pool's memory: one buffer on each device, all under one layout, copied in lockstep."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.device import Copy, Device
from radixd.gpu_pool.handle import DeviceKind, Handle
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.meta import MetaDevice
from radixd.gpu_pool.views import PoolViews, torch_views


class PoolMemory:
    """Owns `devices`, one for each tensor-parallel rank: slot s is the same place on all of them."""

    def __init__(self, layout: Layout, devices: Sequence[Device]) -> None:
        self.layout = layout
        self.devices = tuple(devices)
        self.views: tuple[PoolViews, ...] = tuple(torch_views(device.buffer, layout) for device in devices)

    @classmethod
    def allocate(
        cls, layout: Layout, kind: DeviceKind, count: int = 1, name: str = "radixd", copy_delay_s: float = 0.002
    ) -> Self:
        """Allocate `layout.nbytes` on `count` devices of one kind, or on none: raises DeviceMemoryError.

        Args:
            name: what the memory is called in /proc/PID/maps.
            copy_delay_s: cpu_async only: how late its copies are.
        """
        devices: list[Device] = []
        with ExitStack() as undo:
            for rank in range(count):
                device = _open_device(kind, layout.nbytes, f"{name}-{rank}", copy_delay_s)
                undo.callback(device.close)
                devices.append(device)
            undo.pop_all()
        return cls(layout, devices)

    def export(self) -> tuple[Handle, ...]:
        """What other processes need to map the memory, one handle a device."""
        return tuple(device.export() for device in self.devices)

    def copy_async(self, plan: Callable[[PoolViews], Sequence[Copy]]) -> Future[None]:
        """Run the same plan on every device. The future ends when the last one has ended."""
        return _joined([device.copy_async(plan(views)) for device, views in zip(self.devices, self.views, strict=True)])

    def synchronize(self) -> None:
        """Wait until all copies handed in so far have ended, on every device."""
        for device in self.devices:
            device.synchronize()

    def close(self) -> None:
        """End all copies and give up the memory. Once only."""
        self.views = ()
        for device in self.devices:
            device.close()
        self.devices = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_device(kind: DeviceKind, nbytes: int, name: str, copy_delay_s: float) -> Device:
    if kind == "cpu":
        return CpuDevice(nbytes, name)
    if kind == "cpu_async":
        return CpuAsyncDevice(nbytes, name, copy_delay_s)
    return MetaDevice(nbytes)


def _joined(parts: Sequence[Future[None]]) -> Future[None]:
    """A future that ends after all `parts`, with the first failed one's exception."""
    whole: Future[None] = Future()
    lock = threading.Lock()
    waiting = len(parts)

    def ended(_: Future[None]) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            if waiting:
                return
        errors = [error for part in parts if (error := part.exception()) is not None]
        if errors:
            whole.set_exception(errors[0])
        else:
            whole.set_result(None)

    for part in parts:
        part.add_done_callback(ended)
    return whole
