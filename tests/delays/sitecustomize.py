"""Random delays in every Python process of a test run, to find what counts on timing: in tests, and in what they test.

    PYTHONPATH=tests/delays .venv/bin/pytest --no-cov tests/unit tests/contract

Python imports a module of this name as it starts. Processes, threads and work of thread pools begin late, and this
repository's functions pause as they are entered and left: often on threads, seldom on the main one, which has most
to do.
"""

import random
import sys
import threading
import time
from concurrent.futures import thread as pools
from pathlib import Path
from types import FrameType

ROOT = f"{Path(__file__).parents[2]}/"
INSTALLED = f"{ROOT}.venv/"
PAUSES_S = (0.0, 0.0005, 0.002, 0.01)
STARTS_S = (0.0, 0.0, 0.01, 0.05)
PROCESS_STARTS_S = (0.0, 0.0, 0.05, 0.3, 1.0)
OFTEN, SELDOM = 0.1, 0.001
chance = random.Random()  # not the one that tests seed


def pause_at(share: float) -> None:
    """Let the current thread pause in that share of the entries to and exits from this repository's functions."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "return") and chance.random() < share:
            file = frame.f_code.co_filename
            if file.startswith(ROOT) and not file.startswith(INSTALLED):
                time.sleep(chance.choice(PAUSES_S))

    sys.setprofile(profile)


class LateThread(threading.Thread):
    """A thread that begins late, and pauses often."""

    def run(self) -> None:
        """See Thread."""
        time.sleep(chance.choice(STARTS_S))
        pause_at(OFTEN)
        super().run()


class LateWorkItem(pools._WorkItem[object]):
    """Work of a thread pool that begins late."""

    def run(self, *context: object) -> None:
        """See _WorkItem."""
        time.sleep(chance.choice(STARTS_S))
        super().run(*context)


threading.Thread = LateThread  # type: ignore[misc]
pools._WorkItem = LateWorkItem  # type: ignore[misc, assignment]
sys.setswitchinterval(chance.choice((0.00005, 0.005, 0.02)))
time.sleep(chance.choice(PROCESS_STARTS_S))
pause_at(SELDOM)
