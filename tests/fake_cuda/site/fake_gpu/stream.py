"""Streams: a thread each, which executes work in order, later."""

import threading
import time
from collections import deque
from collections.abc import Callable

from fake_gpu.device import Device
from fake_gpu.errors import Failed, cudaError_t
from fake_gpu.faults import Faults
from fake_gpu.work import Range, Work

POLL_S = 0.003
"""How often a paused or waiting stream looks at the machine's state."""


class Stream:
    """Work runs in order, each no sooner than the machine's delay after it was enqueued, never on a failed device."""

    def __init__(self, device: Device, faults: Faults, handle: int) -> None:
        self.device = device
        self.handle = handle
        self._faults = faults
        self._changed = threading.Condition()
        self._queue: deque[tuple[float, Work]] = deque()
        self._enqueued = 0
        self._executed = 0
        self._ending = False
        self._abandoned = False
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        """Enqueue. Raises Failed on a device that has failed."""
        self.device.check()
        with self._changed:
            self._queue.append((time.monotonic() + self.device.delay_s, work))
            self._enqueued += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._execute, name=f"fake-stream-{self.handle:#x}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    @property
    def abandoned(self) -> bool:
        """Whether it executes nothing any more."""
        return self._abandoned

    @property
    def idle(self) -> bool:
        """Whether all has been executed."""
        with self._changed:
            return self._executed == self._enqueued

    def pending(self) -> list[Range]:
        """Memory that work not yet executed will touch."""
        with self._changed:
            return [span for _, work in self._queue for span in work.ranges()]

    def wait(self) -> None:
        """Until all that is enqueued by now has been executed. Raises Failed if the device fails meanwhile."""
        with self._changed:
            target = self._enqueued
        self.wait_for(lambda: self._executed >= target)

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Until `done`, looked at as work is executed. Raises Failed if the device fails meanwhile."""
        with self._changed:
            while not (done() or self._abandoned):
                self.device.check()
                self._changed.wait(POLL_S)
        self.device.check()

    def end(self) -> None:
        """Take no more work; what is enqueued is executed."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Execute nothing more."""
        with self._changed:
            self._ending = self._abandoned = True
            self._changed.notify_all()

    def join(self) -> None:
        """Until the thread of an abandoned stream has ended."""
        if self._thread is not None:
            self._thread.join()

    def _execute(self) -> None:
        while True:
            with self._changed:
                while not (self._queue or self._ending):
                    self._changed.wait()
                if self._abandoned or not self._queue:
                    return
                due, work = self._queue[0]
            if not self._ready(due):
                return
            self._run(work)
            with self._changed:
                self._queue.popleft()
                self._executed += 1
                self._changed.notify_all()

    def _ready(self, due: float) -> bool:
        """Wait until the time has come and the GPU runs; whether to go on."""
        with self._changed:
            while not self._abandoned:
                late = due - time.monotonic()
                if self.device.error is not None or (late <= 0 and not self.device.paused):
                    return True
                self._changed.wait(POLL_S if late <= 0 else min(late, POLL_S))
        return False

    def _run(self, work: Work) -> None:
        if self.device.error is not None:
            return
        try:
            self._faults.meet("stream", self.device)
            work.run()
        except Failed as failed:
            unusable = failed.code == cudaError_t.cudaErrorInvalidValue
            self.device.sticky = cudaError_t.cudaErrorIllegalAddress if unusable else failed.code
