"""A pool's memory: one buffer on each device, all under one layout, copied in lockstep."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from radixd.gpu_pool.cpu import CpuDevice
from radixd.gpu_pool.cpu_async import CpuAsyncDevice
from radixd.gpu_pool.device import Copy, Device, joined
from radixd.gpu_pool.handle import DeviceKind, Handle
from radixd.gpu_pool.host import HostPool
from radixd.gpu_pool.layout import Layout
from radixd.gpu_pool.meta import MetaDevice
from radixd.gpu_pool.views import PoolViews, torch_views

if TYPE_CHECKING:
    from radixd.gpu_pool.cuda.gpu import Gpu


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
            kind: cuda: on the first `count` GPUs that this process sees; `on_gpus` takes chosen ones.
            name: what the memory is called in /proc/PID/maps; not on cuda.
            copy_delay_s: cpu_async only: how late its copies are.
        """
        if kind == "cuda":
            from radixd.gpu_pool.cuda.gpu import find_gpus

            return cls.on_gpus(layout, find_gpus((), count))
        return cls._opened(
            layout,
            [partial(_open_device, kind, layout.nbytes, f"{name}-{rank}", copy_delay_s) for rank in range(count)],
        )

    @classmethod
    def on_gpus(cls, layout: Layout, gpus: Sequence["Gpu"]) -> Self:
        """Allocate `layout.nbytes` on each of `gpus`, one a rank: raises DeviceMemoryError."""
        from radixd.gpu_pool.cuda.device import CudaDevice

        return cls._opened(layout, [partial(CudaDevice, layout.nbytes, gpu) for gpu in gpus])

    @classmethod
    def _opened(cls, layout: Layout, opening: Sequence[Callable[[], Device]]) -> Self:
        """All devices or none."""
        devices: list[Device] = []
        with ExitStack() as undo:
            for open_device in opening:
                devices.append(open_device())
                undo.callback(devices[-1].close)
            undo.pop_all()
        return cls(layout, devices)

    @property
    def lost(self) -> str | None:
        """Why one of its devices can be used no more, or None. No copy of the pool means anything from then on."""
        return next((device.lost for device in self.devices if device.lost is not None), None)

    def export(self) -> tuple[Handle, ...]:
        """What other processes need to map the memory, one handle a device."""
        return tuple(device.export() for device in self.devices)

    def pin(self, host: HostPool) -> None:
        """Make copies to and from `host` run beside this process, on every device; before the first of them.

        Ends with this pool's close, which must come before the host pool's. Raises DeviceMemoryError.
        """
        if self.devices:
            self.devices[0].pin(host.views.buffer)  # for all GPUs of the process at once

    def copy_async(self, plan: Callable[[PoolViews], Sequence[Copy]]) -> Future[None]:
        """Run the same plan on every device. The future ends when the last has ended. RuntimeError after `close`."""
        return joined([device.copy_async(plan(views)) for device, views in self._ranks()])

    def probe(self) -> Future[None]:
        """Whether all devices still answer: see Device. RuntimeError after `close`."""
        return joined([device.probe() for device, _ in self._ranks()])

    def close(self) -> None:
        """End all copies and give up the memory. Once only."""
        for device in self._let_go():
            device.close()

    def leave(self) -> None:
        """As `close`, while other processes have the memory open: it goes with the last of them, and with this one."""
        for device in self._let_go():
            device.leave()

    def _ranks(self) -> Iterable[tuple[Device, PoolViews]]:
        if not self.devices:
            raise RuntimeError("the pool's memory is closed: nothing can be copied any more")
        return zip(self.devices, self.views, strict=True)

    def _let_go(self) -> Sequence[Device]:
        """The devices in the order to end them: the first one keeps the host pinned for all."""
        devices, self.devices, self.views = self.devices[::-1], (), ()
        return devices

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
