"""Lists of sources and targets, checked as a whole before any byte moves."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


class MoveError(ValueError):
    """A list of slots or pages was refused as a whole; no byte has changed."""


@dataclass(frozen=True)
class IdRange:
    """The ids [first, end) and what a message calls them: "source slots"."""

    name: str
    first: int
    end: int

    def check(self, ids: npt.ArrayLike) -> Ids:
        """`ids` as an own flat int64 array. Raises MoveError, naming those outside."""
        given = np.asarray(ids)
        if given.size == 0:
            return np.empty(0, dtype=np.int64)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise MoveError(f"{self.name} must be a flat list of integers, got {given.dtype} of shape {given.shape}")
        outside = (given < self.first) | (given >= self.end)
        if outside.any():
            raise MoveError(f"{self.name} {listed(given[outside])} are outside [{self.first}, {self.end - 1}]")
        return given.astype(np.int64)


def checked_pairs(
    sources: npt.ArrayLike, source_range: IdRange, targets: npt.ArrayLike, target_range: IdRange
) -> tuple[Ids, Ids]:
    """Both lists as own int64 arrays of one length, each in its range, no target twice. Raises MoveError."""
    src, dst = source_range.check(sources), target_range.check(targets)
    if src.size != dst.size:
        raise MoveError(f"{src.size} {source_range.name} for {dst.size} {target_range.name}: they must pair up")
    distinct, counts = np.unique(dst, return_counts=True)
    if distinct.size != dst.size:
        raise MoveError(f"{target_range.name} {listed(distinct[counts > 1])} are named more than once")
    return src, dst


def listed(ids: npt.NDArray[np.generic]) -> str:
    """The first few ids for a message."""
    shown = ", ".join(str(i) for i in ids[:8])
    return shown if ids.size <= 8 else f"{shown} and {ids.size - 8} more"
