"""Copies counted: what went well, what failed, and what is late and still under way."""

import logging

import pytest

from radixd.server.pools.traffic import Traffic


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_copies_are_counted_by_kind_with_bytes_and_seconds() -> None:
    clock = Clock()
    traffic = Traffic("main", 30, clock)
    traffic.begin(1, "demote", 100)
    traffic.begin(2, "demote", 50)
    traffic.begin(3, "move", 7)
    assert traffic.in_flight == 3
    clock.now = 2.0
    traffic.end(1, "")
    traffic.end(2, "it broke")
    demoted = traffic.totals["demote"]
    assert (demoted.copies, demoted.failed, demoted.bytes, demoted.seconds, demoted.late) == (2, 1, 100, 4.0, 0)
    assert traffic.totals["move"].copies == 0
    assert traffic.in_flight == 1


def test_a_late_copy_is_told_once_and_stays_under_way(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    traffic = Traffic("main", 30, clock)
    traffic.begin(1, "restore", 100)
    clock.now = 30.0
    traffic.check_deadlines()
    assert traffic.overdue == 0
    clock.now = 31.0
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            traffic.check_deadlines()
    assert len(caplog.records) == 1
    assert "copy 1 (restore, 100 bytes) has not ended after 31 s" in caplog.text
    assert (traffic.in_flight, traffic.overdue, traffic.totals["restore"].late) == (1, 1, 1)
    traffic.end(1, "")
    assert (traffic.in_flight, traffic.overdue, traffic.totals["restore"].bytes) == (0, 0, 100)
