"""Signals that end the daemon, caught while it runs."""

import asyncio
import signal
from collections.abc import Coroutine
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

    async def before_stop(self, work: Coroutine[None, None, None]) -> bool:
        """Await `work`; False where a signal comes first, which cancels it. Raises what it raises."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            return False
        task.result()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _caught(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()
