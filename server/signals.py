"""Signals that end the daemon, caught while it runs."""

import asyncio
import signal
from types import TracebackType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """A context that catches SIGTERM and SIGINT on the running loop: the first asks to drain, the second to hurry."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _caught(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()
