"""One line an event, its ids as fields, and a storm that does not fill the disk."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from radixd.server.log_lines import BURST, MAX_KINDS, MAX_LENGTH, LogFormat, RateLimit, set_up_log

log = logging.getLogger("radixd.test")

SetUp = Callable[[LogFormat], io.StringIO]


@pytest.fixture
def set_up() -> Iterator[SetUp]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def begin(kind: LogFormat) -> io.StringIO:
        stream = io.StringIO()
        set_up_log(kind, stream)
        return stream

    yield begin
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_has_the_ids_as_fields(set_up: SetUp) -> None:
    stream = set_up("json")
    log.info("session %d opened by %r", 7, "a\nb", extra={"pool": "p", "session": 7})
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "INFO",
        "logger": "radixd.test",
        "message": "session 7 opened by 'a\\nb'",
        "pool": "p",
        "session": 7,
    }


def test_an_exception_stays_in_its_json_line(set_up: SetUp) -> None:
    stream = set_up("json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_what_a_client_says_neither_ends_a_line_nor_steers_a_terminal(set_up: SetUp, kind: LogFormat) -> None:
    stream = set_up(kind)
    log.warning("attach: %s", "x\n2026-01-01 CRITICAL forged\x1b[2J\u2028\u202e")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.isascii()
    assert "\x1b" not in written


def test_a_long_message_is_cut(set_up: SetUp) -> None:
    stream = set_up("text")
    log.error("%s", "x" * 10 * MAX_LENGTH)
    assert len(stream.getvalue()) < MAX_LENGTH + 100


def test_a_storm_is_counted_and_other_lines_pass(set_up: SetUp) -> None:
    now = 0.0
    limit = RateLimit(lambda: now)
    stream = set_up("text")
    (handler,) = logging.getLogger().handlers
    handler.filters[:] = [limit]
    for i in range(10_000):
        log.warning("attach: cannot accept a connection: %d", i)
    log.warning("another kind")
    lines = stream.getvalue().splitlines()
    assert len(lines) == BURST + 1
    assert lines[-1].endswith("another kind")
    now = 1.0
    log.warning("attach: cannot accept a connection: %d", 10_000)
    log.warning("attach: cannot accept a connection: %d", 10_001)
    lines = stream.getvalue().splitlines()[BURST + 1 :]
    assert len(lines) == 1
    assert lines[0].endswith(f"connection: 10000 ({10_000 - BURST} more like it were left out)")


def test_messages_with_their_arguments_in_them_take_no_memory_for_ever() -> None:
    limit = RateLimit()
    for i in range(3 * MAX_KINDS):
        limit.filter(logging.LogRecord("radixd", logging.INFO, "", 0, f"event {i}", (), None))
    assert len(limit._allowances) <= MAX_KINDS
