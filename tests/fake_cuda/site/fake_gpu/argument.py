"""Arguments as cuda-bindings takes them: which types pass, and what each becomes."""

import ctypes
import operator
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np

from fake_gpu.structs import Handle

E = TypeVar("E", bound=IntEnum)

SIZE_MAX = 2**64


def address(value: object) -> int:
    """A pointer: None, an int, a handle object, or an object with the buffer protocol, whose memory is meant."""
    if value is None:
        return 0
    if isinstance(value, np.generic):
        raise TypeError(f"a {type(value).__name__} passes for a buffer, not for an address: convert it by int()")
    if isinstance(value, (int, Handle)):
        return int(value)
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"Provided argument is of type {type(value)} but expected Type None, int or object with Buffer Protocol"
        ) from None
    if view.readonly:
        return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])
    return ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B")))


def handle(value: object) -> int:
    """A stream or an event: its object, an int, or None for the default stream."""
    if value is None or isinstance(value, (int, Handle)):
        return int(value or 0)
    raise TypeError("an integer is required")


def size_t(value: object) -> int:
    """A size in bytes, or a count."""
    number = operator.index(value)  # type: ignore[arg-type]
    if not 0 <= number < SIZE_MAX:
        raise OverflowError("can't convert negative value to size_t")
    return number


def integer(value: object) -> int:
    """A C int."""
    number = operator.index(value)  # type: ignore[arg-type]
    if not -(2**31) <= number < 2**32:
        raise OverflowError("value too large to convert to int")
    return number


def member(enum: type[E], value: object) -> E:
    """A member of an enum, or its number."""
    return enum(operator.index(value))  # type: ignore[arg-type]


def batch(values: object, count: int, name: str) -> Sequence[object]:
    """A tuple or a list of at least `count`."""
    if values is None:
        values = ()
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"Argument '{name}' is a {type(values).__name__}, not a tuple or a list")
    if len(values) < count:
        raise RuntimeError(f"List is too small: {len(values)} < {count}")
    return values


def integers(values: object, count: int, name: str) -> Sequence[int]:
    """A tuple or a list of Python's ints: numpy's are refused."""
    given = batch(values, count, name)
    if not all(isinstance(value, int) for value in given):
        raise TypeError(f"Argument '{name}' is not instance of type (expected tuple[int] or list[int]")
    return [size_t(value) for value in given]
