"""The rules, their own tests, the runbook and the dashboard, beside one another and beside what a daemon shows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.conftest import Promtool
from tests.e2e.prometheus_server import ROOT, RULES
from tests.e2e.test_metrics import documented

RULE_FILES = ("recording.rules.yaml", "alerts.rules.yaml")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
GRAFANA = ROOT / "deploy" / "grafana"
SERIES = re.compile(r"\b(?:radixd|process)_\w+|\bradixd(?::\w+)+")
"""Families, or series of recording rules, in an expression."""


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", (RULES / "alerts.rules.yaml").read_text())


def recorded() -> set[str]:
    return set(re.findall(r"- record: (\S+)", (RULES / "recording.rules.yaml").read_text()))


def assert_known(text: str) -> None:
    """Every family is documented, every recorded series has its rule."""
    names = set(SERIES.findall(text))
    of_rules = {name for name in names if ":" in name}
    assert of_rules <= recorded()
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names - of_rules} <= set(documented())


def test_the_rules_are_sound(promtool: Promtool) -> None:
    checked = promtool("check", "rules", *RULE_FILES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_where_it_should_and_nothing_else_does(promtool: Promtool) -> None:
    tested = promtool("test", "rules", "alerts.test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_each_alert_has_a_test_and_a_paragraph() -> None:
    fired = re.findall(r'alertname="(\w+)", alertstate="firing"', (RULES / "alerts.test.yaml").read_text())
    assert set(fired) == set(alerts())
    paragraphs = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(paragraphs) == sorted(alerts())
    links = re.findall(r"runbook: docs/runbook.md#(\w+)", (RULES / "alerts.rules.yaml").read_text())
    assert links == [name.lower() for name in alerts()]


def test_each_paragraph_says_the_severity() -> None:
    rules = re.findall(r"- alert: (\w+).*?severity: (\w+)", (RULES / "alerts.rules.yaml").read_text(), re.DOTALL)
    assert [name for name, _ in rules] == alerts()
    assert sorted(re.findall(r"^### (\w+)\n\n\*\*Severity\*\* (\w+)\.", RUNBOOK, re.MULTILINE)) == sorted(rules)


def test_rules_use_what_there_is() -> None:
    for name in RULE_FILES:
        expressions = re.sub(
            r"^ *(#|- record:|summary:|description:|runbook:).*$",
            "",
            (RULES / name).read_text(),
            flags=re.MULTILINE,
        )
        assert_known(expressions)


def panels() -> Iterator[dict[str, object]]:
    for panel in json.loads((GRAFANA / "radixd.json").read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def test_the_dashboard_is_what_its_source_builds() -> None:
    built = subprocess.run((sys.executable, str(GRAFANA / "build.py")), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stdout == (GRAFANA / "radixd.json").read_text(), "python deploy/grafana/build.py > radixd.json"


def test_each_panel_asks_what_prometheus_can_answer(promtool: Promtool, tmp_path: Path) -> None:
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]  # type: ignore[attr-defined]
    assert len(expressions) > 40
    for expression in expressions:
        assert_known(expression)
    plain = [
        it.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$pool", ".*") for it in expressions
    ]
    rules = [{"record": f"panel:{index}", "expr": expression} for index, expression in enumerate(plain)]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_runbook_describes_each_panel() -> None:
    rows = RUNBOOK.split("## The dashboard")[1]
    for panel in panels():
        assert str(panel["title"]) in rows
