"""Samples taken in turns, so that whatever the machine does hits every side alike."""

from collections.abc import Callable, Mapping
from statistics import median

Side = Callable[[int], list[int]]
"""Nanoseconds of that many runs of one side."""

TURN_NS = 2_000_000
MAX_REPEATS = 50


def take_turns(sides: Mapping[str, Side], rounds: int, turn_ns: int = TURN_NS) -> dict[str, list[int]]:
    """`rounds` turns for each side, in order A B A B; a turn is as many runs as fit turn_ns, by a first, unkept one."""
    repeats = {name: max(1, min(MAX_REPEATS, turn_ns // max(1, side(2)[1]))) for name, side in sides.items()}
    samples: dict[str, list[int]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            samples[name] += side(repeats[name])
    return samples


def medians(sides: Mapping[str, Side], rounds: int, turn_ns: int = TURN_NS) -> dict[str, float]:
    """Median nanoseconds of each side."""
    return {name: median(taken) for name, taken in take_turns(sides, rounds, turn_ns).items()}


def quantile(samples: list[int], fraction: float) -> float:
    """The sample below which `fraction` of them lie."""
    return sorted(samples)[min(len(samples) - 1, int(fraction * len(samples)))]
