"""GPU memory that torch did not allocate, as a tensor of torch."""

from collections.abc import Mapping

import torch


class DeviceBytes:
    """`nbytes` of memory of a GPU at `address`. A tensor made of it keeps this object as long as any view of it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes

    @property
    def __cuda_array_interface__(self) -> Mapping[str, object]:
        """See Numba's documentation of version 3 of the interface."""
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    def tensor(self, ordinal: int) -> torch.Tensor:
        """Flat uint8 on cuda:`ordinal`, no copy. Raises RuntimeError where torch cannot use the GPU."""
        try:
            return torch.as_tensor(self, device=f"cuda:{ordinal}")
        except (AssertionError, RuntimeError) as error:
            raise RuntimeError(
                f"torch {torch.__version__} cannot use the GPU ({error}): install a CUDA build"
            ) from error
