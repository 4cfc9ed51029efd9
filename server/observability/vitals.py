"""How the process itself fares: its event loop, and its garbage collector."""

import asyncio
import gc
import time
from typing import Literal

from radixd.server.cache.histogram import Histogram

BEAT_SECONDS = 0.05
WINDOW_SECONDS = 60.0
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
GENERATIONS = 3


class LoopBeat:
    """Asks for its turn on the running loop every BEAT_SECONDS, and counts how late it gets it."""

    def __init__(self) -> None:
        self.lag = Histogram(SECONDS)
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._window = self._due
        self._longest = self._longest_before = 0.0
        self._timer = self._loop.call_at(self._due, self._beat)

    @property
    def longest(self) -> float:
        """The longest lag of this window and the one before, in seconds; reading it changes nothing."""
        return max(self._longest, self._longest_before, self.overdue)

    @property
    def overdue(self) -> float:
        """How late the beat is right now, in seconds, read on any thread: what tells that the loop stands still."""
        return max(0.0, time.monotonic() - self._due)

    def close(self) -> None:
        """Beat no more."""
        self._timer.cancel()

    def _beat(self) -> None:
        now = self._loop.time()
        if now - self._window > WINDOW_SECONDS:
            self._window, self._longest_before, self._longest = now, self._longest, 0.0
        lag = now - self._due
        self.lag.observe(lag)
        self._longest = max(self._longest, lag)
        self._due = now + BEAT_SECONDS
        self._timer = self._loop.call_at(self._due, self._beat)


class GcPauses:
    """How long each garbage collection took, by generation; all threads stand still meanwhile."""

    def __init__(self) -> None:
        self.seconds = [Histogram(SECONDS) for _ in range(GENERATIONS)]
        self._began = 0.0
        gc.callbacks.append(self._collection)

    def close(self) -> None:
        """Count no more."""
        gc.callbacks.remove(self._collection)

    def _collection(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self.seconds[info["generation"]].observe(now - self._began)


class Vitals:
    """Both, on the running loop until closed."""

    def __init__(self) -> None:
        self.loop = LoopBeat()
        self.gc = GcPauses()

    def close(self) -> None:
        """Watch no more."""
        self.loop.close()
        self.gc.close()
