"""The thread that moves bytes, so that the event loop never waits for them."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from enum import IntEnum
from itertools import count
from queue import Empty, PriorityQueue

log = logging.getLogger(__name__)

Work = Callable[[], Future[None] | None]
"""Run on the copier's thread. What it only begins, it returns a future of."""
Done = Callable[[str], None]


class Urgency(IntEnum):
    """Which work goes first. Work of one urgency begins in the order it was given."""

    AWAITED = 0  # a lease waits for the bytes
    SAVING = 1
    IDLE = 2
    CLOSING = 3


class Copier:
    """Runs work on a thread of its own; the outcome comes back to the loop on which the copier was made."""

    def __init__(self, pool: str = "") -> None:
        """`pool` is whose copies they are, for the log."""
        self.before_failure: Callable[[], None] = lambda: None
        """Called on the loop before a failure is told: whoever is told may free or shorten something."""
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._queue: PriorityQueue[tuple[Urgency, int, Work, Done]] = PriorityQueue()
        self._serials = count()
        self._open: set[Future[None]] = set()  # begun, and not ended by their device yet
        self._thread = threading.Thread(target=self._run, name=f"copy-{pool}", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done, urgency: Urgency = Urgency.AWAITED) -> None:
        """Run `work`, then call `done` on the loop: with "" if it went well, with what went wrong if not."""
        self._queue.put((urgency, next(self._serials), work, done))

    def abandon(self, reason: str) -> None:
        """Call `done(reason)` for what has not begun, instead of beginning it. On the loop."""
        while True:
            try:
                _, _, _, done = self._queue.get_nowait()
            except Empty:
                return
            done(reason)

    def close(self, seconds: float | None = None) -> bool:
        """Finish what was submitted; blocks until then, at most for so long.

        False where something has not ended: it may still write, so its memory has to stay.
        """
        until = None if seconds is None else time.monotonic() + seconds
        self.submit(lambda: None, lambda _: None, Urgency.CLOSING)
        self._thread.join(seconds)
        left = None if until is None else max(0.0, until - time.monotonic())
        return not self._thread.is_alive() and not wait_for(set(self._open), left).not_done

    def _run(self) -> None:
        while True:
            urgency, _, work, done = self._queue.get()
            if urgency is Urgency.CLOSING:
                return
            try:
                begun = work()
            except Exception as problem:
                self._report(done, problem)
                continue
            if begun is None:
                self._report(done, None)
            else:
                self._open.add(begun)
                begun.add_done_callback(lambda it, done=done: self._end(it, done))  # type: ignore[misc]

    def _end(self, ended: Future[None], done: Done) -> None:
        self._open.discard(ended)
        self._report(done, ended.exception())

    def _report(self, done: Done, problem: BaseException | None) -> None:
        error = ""
        if problem is not None:
            log.error("pool %s: a copy failed", self._pool, exc_info=problem, extra={"pool": self._pool})
            error = f"{type(problem).__name__}: {problem}"
        try:
            self._loop.call_soon_threadsafe(self._tell, done, error)
        except RuntimeError:  # the loop is closed: nobody waits for copies any more
            pass

    def _tell(self, done: Done, error: str) -> None:
        if error:
            self.before_failure()
        done(error)
