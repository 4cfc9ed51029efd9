"""Where a scheduler process writes down what happened; it goes to the parent in small messages."""

import time
from collections.abc import Callable

from radixd.server.replay.tally import Outcome, Progress, Tally

REPORT_SECONDS = 0.1


class Journal:
    """Collects outcomes and counts, and sends them at most every REPORT_SECONDS."""

    def __init__(self, send: Callable[[Progress], None]) -> None:
        self._send = send
        self._outcomes: list[Outcome] = []
        self._sent = time.monotonic()
        self.tally = Tally()
        self.ended: set[int] = set()
        """Indices of the requests that are over."""

    def end(self, outcome: Outcome) -> None:
        """A request is over."""
        self._outcomes.append(outcome)
        self.ended.add(outcome.index)
        if time.monotonic() - self._sent >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        self._send(Progress(tuple(self._outcomes), self.tally))
        self._outcomes.clear()
        self.tally = Tally()
        self._sent = time.monotonic()
