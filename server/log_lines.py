"""The daemon's log: one line an event, for people or for programs, and no more of them than a disk can bear."""

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]

IDS = ("pool", "session", "lease", "copy", "pid", "incident")
"""What an event may be about: given as `extra`, written as fields."""

MAX_LENGTH = 4_000
"""Characters of a message that are written."""

BURST = 50
"""Lines of one kind that may come at once; after them, one a second."""

MAX_KINDS = 1_000


def set_up_log(kind: LogFormat, stream: TextIO = sys.stderr) -> None:
    """Everything from INFO on goes to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class TextLines(logging.Formatter):
    """For people: when, how grave, what. A traceback follows in lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name for it
        """One line, whatever a message holds."""
        record.message = _printable(_message(record))
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """For programs: one object a line, with the ids that the event is about."""

    def format(self, record: logging.LogRecord) -> str:
        """time (UTC), level, logger, message; those of IDS that are given; exception, suppressed."""
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{whole}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:MAX_LENGTH],
        }
        line |= {name: value for name in IDS if (value := record.__dict__.get(name)) is not None}
        if suppressed := _suppressed(record):
            line["suppressed"] = suppressed
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@dataclass(slots=True)
class _Allowance:
    lines: float
    since: float
    suppressed: int = 0


class RateLimit(logging.Filter):
    """Lets BURST lines of a kind pass, then one a second. The next that passes says how many did not.

    A kind is a logger and a message before its arguments are put in.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._allowances: dict[tuple[str, str], _Allowance] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        now = self._clock()
        kind = (record.name, str(record.msg))
        if kind not in self._allowances and len(self._allowances) >= MAX_KINDS:
            self._allowances.clear()  # a message with its arguments in it, again and again
        allowance = self._allowances.setdefault(kind, _Allowance(BURST, now))
        allowance.lines = min(BURST, allowance.lines + now - allowance.since)
        allowance.since = now
        if allowance.lines < 1:
            allowance.suppressed += 1
            return False
        allowance.lines -= 1
        record.suppressed, allowance.suppressed = allowance.suppressed, 0
        return True


def _suppressed(record: logging.LogRecord) -> int:
    count: int = record.__dict__.get("suppressed", 0)
    return count


def _message(record: logging.LogRecord) -> str:
    suppressed = _suppressed(record)
    more = f" ({suppressed} more like it were left out)" if suppressed else ""
    return record.getMessage()[:MAX_LENGTH] + more


def _printable(text: str) -> str:
    """`text` with what would end the line or steer a terminal written as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
