"""The thread that moves bytes, so that the event loop never waits for them."""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)

Work = Callable[[], None]
Done = Callable[[str], None]


class Copier:
    """Runs work in the order it was given; the outcome comes back to the loop on which the copier was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="radixd-copier", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done) -> None:
        """Run `work`, then call `done` on the loop: with "" if it returned, with what went wrong if it raised."""
        self._queue.put((work, done))

    def close(self) -> None:
        """Finish what was submitted; blocks until then."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            error = ""
            try:
                work()
            except Exception as problem:
                log.exception("a copy failed")
                error = f"{type(problem).__name__}: {problem}"
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:  # the loop is closed: nobody waits for copies any more
                return
