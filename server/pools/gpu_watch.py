"""A sign of life from a pool's GPUs, asked for when nothing else would notice that they are gone."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from radixd.server.pools.copier import Copier

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0


class GpuWatch:
    """Belongs to the loop. Silence only makes a pool conspicuous: what it was asked to do may still happen."""

    def __init__(
        self,
        pool: str,
        ask: Callable[[], Future[None]],
        copier: Copier,
        deadline_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.silent = False
        """The last question has been open for longer than the deadline."""
        self._pool = pool
        self._ids = {"pool": pool}
        self._ask = ask
        self._copier = copier
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._asked = clock()
        self._open = False

    def tick(self) -> None:
        """Time has passed: ask again, or notice that no answer has come."""
        elapsed = self._clock() - self._asked
        if self._open:
            if elapsed > self._deadline_seconds and not self.silent:
                self.silent = True
                log.error("pool %s: its GPUs have not answered for %.0f s", self._pool, elapsed, extra=self._ids)
        elif elapsed >= PERIOD_SECONDS:
            self._open, self._asked = True, self._clock()
            self._copier.submit(self._ask, self._answered)

    def _answered(self, error: str) -> None:
        """Also with an error: what has become of the memory, the memory itself says."""
        self._open = False
        if self.silent:
            self.silent = False
            elapsed = self._clock() - self._asked
            log.warning("pool %s: its GPUs answer again, after %.0f s", self._pool, elapsed, extra=self._ids)
