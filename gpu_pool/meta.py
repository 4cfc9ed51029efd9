"""A device of shapes without memory: pools of any size in tests and planning."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import torch

from radixd.gpu_pool.device import Copy, Device, run_now
from radixd.gpu_pool.handle import Handle


class MetaDevice:
    """Every tensor has its shape and strides and no bytes; a copy does nothing."""

    kind: Final = "meta"
    lost: Final = None

    def __init__(self, nbytes: int) -> None:
        self._buffer = torch.empty(nbytes, dtype=torch.uint8, device="meta")

    @property
    def buffer(self) -> torch.Tensor:
        """Flat uint8 on torch's `meta` device."""
        return self._buffer

    def export(self) -> Handle:
        """No descriptor: a process makes its own MetaDevice."""
        return Handle(self.kind, self._buffer.numel())

    def pin(self, host: torch.Tensor) -> None:
        """Nothing to do."""

    def add_peer(self, peer: Device) -> None:
        """Nothing to do."""

    def copy_async(self, copies: Sequence[Copy]) -> Future[None]:
        """An ended future."""
        return run_now([])

    def probe(self) -> Future[None]:
        """An ended future."""
        return run_now([])

    def leave(self) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """Nothing to give up."""
