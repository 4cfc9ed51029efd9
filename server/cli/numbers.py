"""Numbers on the command line."""

import argparse
from collections.abc import Callable

UINT32 = 2**32 - 1
UINT64 = 2**64 - 1


def whole(low: int, high: int = UINT64) -> Callable[[str], int]:
    """An argparse type: a whole number within [low, high]."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text[:64]!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is outside [{low}, {high}]")
        return value

    return read


def seconds(low: float, high: float = 3600.0) -> Callable[[str], float]:
    """An argparse type: seconds within [low, high]."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected seconds, got {text[:64]!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value:g} is outside [{low:g}, {high:g}]")
        return value

    return read


positive = whole(1)
count = whole(0)
