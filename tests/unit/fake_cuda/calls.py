"""Calls of the runtime, and what they must return."""

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus

DEFAULT = cuda.cudaMemcpyKind.cudaMemcpyDefault


def ok(result: tuple[Any, ...]) -> Any:
    """The value of a call that must succeed."""
    assert result[0] == cuda.cudaError_t.cudaSuccess, result
    return result[1] if len(result) == 2 else result[1:]


def error(result: tuple[Any, ...]) -> str:
    """The name of a call's error; all its values are None."""
    assert result[0] != cuda.cudaError_t.cudaSuccess
    assert set(result[1:]) <= {None}
    return str(result[0].name)


def violated(gpus: FakeGpus, *words: str) -> None:
    """The one violation so far says all of `words`; it is forgiven."""
    (found,) = gpus.violations()
    assert all(word in found for word in words), found
    gpus.forgive()


def stream() -> Any:
    return ok(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))


def device_bytes(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


def host(count: int) -> npt.NDArray[np.uint8]:
    """Zeros in pages of their own."""
    return np.frombuffer(mmap.mmap(-1, count), dtype=np.uint8)


def address(array: npt.NDArray[np.uint8]) -> int:
    return int(array.ctypes.data)
