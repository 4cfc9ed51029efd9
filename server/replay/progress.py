"""What a run shows while it goes on."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from radixd.server.replay.counted import counted
from radixd.server.replay.fleet import Results

LINE_SECONDS = 5.0


class ProgressLine:
    """A bar on a terminal, else a line every LINE_SECONDS; on stderr, so that stdout holds the report alone."""

    def __init__(self, requests: int) -> None:
        self._bar = Progress(
            TextColumn("replay"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=requests)
        self._next_line = time.monotonic() + LINE_SECONDS

    def show(self, results: Results) -> None:
        """Called as often as you like."""
        ended, tally = len(results.outcomes), results.tally
        verified = f"{tally.bytes_verified / 1e9:,.1f} GB verified"
        text = f"{verified}, {tally.mismatches:,} mismatches, {counted(results.kills, 'kill')}"
        self._bar.update(self._task, completed=ended, description=text)
        if self._bar.disable and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            print(f"replay: {ended:,} of {results.requests:,} requests, {text}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
