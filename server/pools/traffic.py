"""A pool's copies: those under way, and what all of them have come to."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

KINDS = ("move", "demote", "promote", "offload", "restore", "import")


@dataclass(slots=True)
class Totals:
    """Of copies of one kind. Every figure only rises."""

    copies: int = 0
    failed: int = 0
    late: int = 0  # beyond their deadline; most of them end well
    bytes: int = 0  # of those that went well
    seconds: float = 0.0  # from a copy's plan to its end


@dataclass(slots=True)
class _UnderWay:
    kind: str
    nbytes: int
    since: float
    late: bool = False


@dataclass(slots=True)
class Traffic:
    """Belongs to the loop. A deadline only makes a copy conspicuous: it may still write, so nothing is taken back."""

    pool: str
    deadline_seconds: float
    clock: Callable[[], float] = time.monotonic
    totals: dict[str, Totals] = field(default_factory=lambda: {kind: Totals() for kind in KINDS})
    _under_way: dict[int, _UnderWay] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Copies under way."""
        return len(self._under_way)

    @property
    def overdue(self) -> int:
        """Copies under way that are beyond their deadline."""
        return sum(copy.late for copy in self._under_way.values())

    def begin(self, copy_id: int, kind: str, nbytes: int) -> None:
        """A copy has been handed to the copier."""
        self._under_way[copy_id] = _UnderWay(kind, nbytes, self.clock())

    def end(self, copy_id: int, error: str) -> None:
        """It has ended, well (with "") or not."""
        copy = self._under_way.pop(copy_id)
        totals, seconds = self.totals[copy.kind], self.clock() - copy.since
        totals.copies += 1
        totals.seconds += seconds
        if error:
            totals.failed += 1
        else:
            totals.bytes += copy.nbytes
        if copy.late:
            log.warning(
                "pool %s: copy %d (%s) ended after %.0f s", self.pool, copy_id, copy.kind, seconds,
                extra={"pool": self.pool, "copy": copy_id},
            )  # fmt: skip

    def check_deadlines(self) -> None:
        """Counts and logs each copy that has become late."""
        now = self.clock()
        for copy_id, copy in self._under_way.items():
            if not copy.late and now - copy.since > self.deadline_seconds:
                copy.late = True
                self.totals[copy.kind].late += 1
                log.error(
                    "pool %s: copy %d (%s, %d bytes) has not ended after %.0f s; its pages stay pinned until it does",
                    self.pool, copy_id, copy.kind, copy.nbytes, now - copy.since,
                    extra={"pool": self.pool, "copy": copy_id},
                )  # fmt: skip
