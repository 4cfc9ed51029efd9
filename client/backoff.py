"""How long to wait before the next try to reach a daemon."""

import random
import time
from collections.abc import Callable

from radixd.client.errors import RadixError, Refused

FIRST_SECONDS = 0.02
MOST_SECONDS = 1.0


class Backoff:
    """Doubling delays with jitter, capped low: the other end is a process on the same node that restarts in seconds."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + patience
        self._next = FIRST_SECONDS

    @property
    def exhausted(self) -> bool:
        """Whether the patience, in seconds since the first failure, is used up."""
        return self._clock() >= self._until

    def delay(self, error: RadixError) -> float:
        """Seconds to wait after `error`: what the daemon asked for, where it did."""
        asked = error.retry_after if isinstance(error, Refused) else None
        seconds, self._next = self._next, min(2 * self._next, MOST_SECONDS)
        # Half is jitter: many clients lose the same daemon in the same instant.
        return max(asked or 0.0, seconds) * random.uniform(0.5, 1.0)
