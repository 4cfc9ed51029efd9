"""The type of the `make_pool` fixture."""

from typing import Protocol

from radixd.gpu_pool.handle import DeviceKind
from radixd.gpu_pool.layout import LayoutKind
from radixd.gpu_pool.memory import PoolMemory


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
