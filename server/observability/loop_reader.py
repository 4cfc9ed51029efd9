"""Reading what the daemon's loop owns, from another thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

PATIENCE_SECONDS = 5.0
"""How long a read waits for its turn before the loop counts as stuck."""

T = TypeVar("T")


class LoopSilentError(Exception):
    """The daemon's loop has not answered in time."""


class LoopReader:
    """Carries reads to the loop that owns the caches, where each is one step, and their results back."""

    def __init__(self, owner: asyncio.AbstractEventLoop) -> None:
        self._owner = owner

    async def read(self, step: Callable[[], T]) -> T:
        """What `step` returns, on any other loop. Raises LoopSilentError, or what `step` raises."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._carried(step)), PATIENCE_SECONDS)
        except TimeoutError as error:
            raise _silent() from error

    def read_on_thread(self, step: Callable[[], T]) -> T:
        """The same on any thread, which waits; on the owner's own, `step` is called at once."""
        if _running_loop() is self._owner:
            return step()
        outcome = self._carried(step)
        try:
            return outcome.result(PATIENCE_SECONDS)
        except TimeoutError as error:
            outcome.cancel()
            raise _silent() from error

    def _carried(self, step: Callable[[], T]) -> Future[T]:
        outcome: Future[T] = Future()

        def run() -> None:
            if not outcome.set_running_or_notify_cancel():
                return  # nobody waits any more
            try:
                outcome.set_result(step())
            except Exception as error:
                outcome.set_exception(error)

        try:
            self._owner.call_soon_threadsafe(run)
        except RuntimeError as error:  # closed
            raise LoopSilentError("the daemon has ended") from error
        return outcome


def _silent() -> LoopSilentError:
    return LoopSilentError(f"the event loop has not answered for {PATIENCE_SECONDS:g} s")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
