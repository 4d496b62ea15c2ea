"""Dashboard and alerts: they ask for what is exported by us, and the alerts come when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from prometheus_client import CollectorRegistry

from tenure.metrics import Metrics
from tenure.service.metrics import RemoteLeaseCounts, ServiceCounts
from tenure.service.remote.leases import LeaseTotals

HERE = Path(__file__).parent.parent.parent / "deploy" / "observability"
ALERTS = yaml.safe_load((HERE / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((HERE / "dashboard.json").read_text())
FROM_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus puts on what it reads, and that a histogram has by itself."""
SAMPLES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def exported() -> dict[str, set[str]]:
    """The labels of each sample that there can be, by its name."""
    metrics = Metrics(registry=CollectorRegistry())
    try:
        nothing = Mock(totals=LeaseTotals(0, 0), ended={})
        families = [*metrics.collect(), *ServiceCounts().collect(), *RemoteLeaseCounts(nothing).collect()]
    finally:
        metrics.close()
    return {family.name + ending: {*family._labelnames} for family in families for ending in SAMPLES[family.type]}


def _questions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, by where it stands."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", target["expr"]


QUESTIONS = list(_questions())


def resolved(expression: str) -> str:
    """As Grafana would send it."""
    return expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$resource", ".*")


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=HERE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_that_are_asked_for_are_exported() -> None:
    """A renamed metric breaks this test, and not a dashboard in silence."""
    known = exported()
    asked = {name for _, expression in QUESTIONS for name in re.findall(r"tenure_\w+", expression)}
    assert asked - set(known) == set()
    of_histograms = ("_bucket", "_sum", "_count")  # some of which nobody needs
    assert {name for name in known if not name.endswith(of_histograms)} - asked == set(), "exported, and shown nowhere"


@pytest.mark.parametrize(("where", "expression"), QUESTIONS, ids=[where for where, _ in QUESTIONS])
def test_labels_that_are_asked_for_are_there(where: str, expression: str) -> None:
    """Matchers and groupings name labels that every metric of the expression has."""
    known = exported()
    for name, matchers in re.findall(r"(tenure_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels - known[name] - FROM_PROMETHEUS == set(), f"{where}: {name}"
    groupings = {
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    for name in re.findall(r"tenure_\w+", expression):
        assert groupings - known[name] - FROM_PROMETHEUS == set(), f"{where}: {name}"


def test_alerts_come_when_they_should() -> None:
    """promtool's own test of the rules, with series made for it."""
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_is_tested_to_come() -> None:
    """An alert without a test that sees it fire may never fire."""
    tests = yaml.safe_load((HERE / "alerts_test.yaml").read_text())["tests"]
    firing = {
        name
        for test in tests
        for case in test["promql_expr_test"]
        if case["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', case["expr"])
    }
    assert {rule["alert"] for rule in RULES} == firing


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_alert_tells_whoever_is_woken_what_to_do(rule: dict[str, Any]) -> None:
    """A severity, a sentence and a runbook; a threshold made unreachable is noticed by promtool's tests."""
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"]["summary"].startswith("{{ $labels.")
    assert len(rule["annotations"]["runbook"]) > 60


def test_alerts_that_never_fire_fail_their_tests(tmp_path: Path) -> None:
    """The tests of the rules can fail: every alert asks for more than there is, and each one is missed."""
    (tmp_path / "alerts_test.yaml").write_text((HERE / "alerts_test.yaml").read_text())
    dead = [rule | {"expr": f"({rule['expr']}) > 1e9"} for rule in RULES]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "tenure", "rules": dead}]}))
    with pytest.raises(AssertionError) as caught:
        promtool("test", "rules", tmp_path / "alerts_test.yaml")
    missed = set(re.findall(r'expr: "ALERTS{alertname=\\"(\w+)', str(caught.value)))
    assert missed == {rule["alert"] for rule in RULES}


def test_questions_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    """Every expression is one that Prometheus reads."""
    rules = [
        {"record": f"dashboard:panel:{number}", "expr": resolved(expression)}
        for number, (_, expression) in enumerate(QUESTIONS)
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)


def test_dashboard_has_no_two_panels_in_one_place() -> None:
    """Ids are unique, panels lie within the grid and on nobody else, and say what they show."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]


def test_dashboard_runs_on_any_data_source() -> None:
    """Nothing names a data source of ours."""
    text = (HERE / "dashboard.json").read_text()
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"${datasource}", "tenure"}
