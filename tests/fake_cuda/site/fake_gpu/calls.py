"""What every presented function does around its own work."""

import functools
from collections.abc import Callable
from typing import ParamSpec

from fake_gpu import process, torch_tensors
from fake_gpu.errors import Failed, cudaError_t

P = ParamSpec("P")
SUCCESS = cudaError_t.cudaSuccess


def presented(
    values: int = 0, on_current_device: bool = True
) -> Callable[[Callable[P, object]], Callable[P, tuple[object, ...]]]:
    """Turn a function that returns its value, or raises Failed, into one that returns CUDA's tuple.

    Args:
        values: how many values follow the error; each is None where it is not success.
        on_current_device: whether the call fails with the error of the thread's device.
    """

    def wrap(function: Callable[P, object]) -> Callable[P, tuple[object, ...]]:
        name = getattr(function, "__name__", "")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> tuple[object, ...]:
            found = None
            torch_tensors.patch_once()
            try:
                found = process.current()
                _check(found, name, on_current_device)
                value = function(*args, **kwargs)
            except Failed as failed:
                if found is not None:
                    found.thread.last_error = failed.code
                return (failed.code, *[None] * values)
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                if found is not None:
                    found.violations.found(f"{name}: {error}")
                raise
            if values == 0:
                return (SUCCESS,)
            return (SUCCESS, *value) if isinstance(value, tuple) else (SUCCESS, value)

        return call

    return wrap


def _check(found: process.Process | None, name: str, on_current_device: bool) -> None:
    if found is None:
        raise Failed(cudaError_t.cudaErrorInsufficientDriver)
    if not found.devices:
        raise Failed(cudaError_t.cudaErrorNoDevice)
    if on_current_device:
        found.device.check()
    found.faults.meet(name, found.device)
