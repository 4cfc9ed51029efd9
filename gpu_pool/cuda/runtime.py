"""NVIDIA's runtime API, called so that a bad status is an exception: its name, its text, the call that met it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    from cuda.bindings import runtime as cudart
except ImportError as error:
    raise ImportError(
        "pools on GPUs need NVIDIA's bindings: install radixd with its extra `cuda` "
        "(in a clone: pip install -e '.[cuda]')"
    ) from error

__all__ = ["STICKY", "CudaError", "cudart", "do", "get"]

P = ParamSpec("P")
T = TypeVar("T")

STICKY = frozenset(
    {
        46,  # devices unavailable: the GPU is gone or reserved
        201,  # device uninitialised: its context is gone
        214,  # uncorrectable ECC error
        220,  # uncorrectable NVLink error
        226,  # contained error: memory of this process is lost
        700,  # illegal address
        702,  # launch timeout
        709,  # context is destroyed
        710,  # device-side assert
        714,  # hardware stack error
        715,  # illegal instruction
        716,  # misaligned address
        717,  # invalid address space
        718,  # invalid program counter
        719,  # launch failure
        721,  # tensor memory leak
        911,  # external device error
        999,  # unknown: what a GPU that fell off the bus answers
    }
)
"""Errors after which every further call on that GPU fails until the process ends (cudaError_t's documentation)."""


class CudaError(Exception):
    """A call of the runtime that failed, or that told of an earlier one's failure.

    Attributes:
        code: of cudaError_t.
        call: the function that answered with it.
        sticky: whether the GPU can be used no more by this process.
    """

    def __init__(self, status: cudart.cudaError_t, call: str) -> None:
        name, text = cudart.cudaGetErrorName(status)[1], cudart.cudaGetErrorString(status)[1]
        super().__init__(f"{call}: {name.decode()} ({text.decode()})")
        self.code = int(status)
        self.call = call
        self.sticky = self.code in STICKY


def do(call: Callable[P, tuple[cudart.cudaError_t]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a function that answers with a status alone. Raises CudaError."""
    status = call(*args, **kwargs)[0]
    if status:
        raise CudaError(status, call.__name__)


def get(call: Callable[P, tuple[cudart.cudaError_t, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that answers with a status and one value: the value. Raises CudaError."""
    status, value = call(*args, **kwargs)
    if status:
        raise CudaError(status, call.__name__)
    return value
