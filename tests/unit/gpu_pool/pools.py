"""The type of the `make_pool` fixture, and the kinds of devices with memory."""

from typing import Protocol

from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.memory import PoolMemory

KINDS: tuple[DeviceKind, ...] = ("cpu", "cpu_async", "cuda")


class MakePool(Protocol):
    def __call__(
        self,
        name: str = "tiny",
        kind: LayoutKind = "page_first",
        pages: int = 12,
        device: DeviceKind = "cpu",
        count: int = 1,
        stride_multiple: int = 1,
    ) -> PoolMemory: ...
