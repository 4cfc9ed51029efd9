"""Numbers on the command line."""

import argparse
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)

UINT32 = 2**32 - 1
UINT64 = 2**64 - 1


def whole(low: int, high: int = UINT64) -> Callable[[str], int]:
    """An argparse type: a whole number within [low, high]."""
    return _within(int, "a whole number", low, high)


def seconds(low: float, high: float = 3600) -> Callable[[str], float]:
    """An argparse type: seconds within [low, high]."""
    return _within(float, "seconds", low, high)


def _within(read: Callable[[str], Number], what: str, low: Number, high: Number) -> Callable[[str], Number]:
    def checked(text: str) -> Number:
        try:
            value = read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {what}, got {text[:64]!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is outside [{low}, {high}]")
        return value

    return checked


positive = whole(1)
count = whole(0)
