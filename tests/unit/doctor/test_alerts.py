"""The doctor and the alerts of deploy/prometheus use the same words, and draw the same lines."""

import re
from pathlib import Path

import pytest
import yaml

from radixd.server.doctor import (
    capacity,
    decode,
    hits,
    host_tier,
    starvation,
    thresholds,
)
from radixd.server.observability.leases import IDLE_SECONDS

RULES = Path(__file__).parents[3] / "deploy" / "prometheus"
ALERTS = {
    rule["alert"].removeprefix("Radixd"): rule["expr"]
    for group in yaml.safe_load((RULES / "alerts.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
RECORDS = {
    rule["record"]: rule["expr"]
    for group in yaml.safe_load((RULES / "recording.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}


@pytest.mark.parametrize(
    ("alert", "numbers"),
    [
        (capacity.NAME, {thresholds.CAPACITY_SHARE}),
        (starvation.NAME, {thresholds.REFUSED_BY_GRANTED, 0}),
        (
            hits.NAME,
            {
                thresholds.HIT_SHARE,
                thresholds.SHORT_HIT_SHARE,
                thresholds.PAIRS_LEFT_BY_SAVED,
                thresholds.LONG_PROMPT_TOKENS,
            },
        ),
        (decode.NAME, {thresholds.DECODE_INDEX_BYTES}),
        ("LockHeldLong", {thresholds.OLD_LOCK_SECONDS, 0}),
        (host_tier.NAME, {thresholds.HOST_EVICTED_BY_IN, thresholds.HOST_PROMOTED_BY_IN, 0}),
    ],
)
def test_lines_are_the_same(alert: str, numbers: set[float]) -> None:
    assert compared_with(ALERTS[alert]) == numbers


def test_a_short_hit_is_as_short_in_the_rules() -> None:
    assert f'le="{thresholds.SHORT_HIT_TOKENS:.1f}"' in RECORDS["radixd:short_hits:ratio10m"]


def test_silence_is_as_long_in_the_metrics() -> None:
    assert thresholds.IDLE_SECONDS == IDLE_SECONDS


@pytest.mark.parametrize(
    "name",
    ["RetiredPagesStuck", "PoolBroken", "GpuSilent", "LedgerMismatch", "LoopStalls", "CopyOverdue", "CopiesFail"],
)
def test_what_has_no_line_has_the_same_name(name: str) -> None:
    assert name in ALERTS


def compared_with(expression: str) -> set[float]:
    """The numbers that stand beside a comparison or a multiplication."""
    return {float(number) for number in re.findall(r"(?:[<>]=?|!=) *(\d[\d.e]*)(?![\w\]])", expression)}
