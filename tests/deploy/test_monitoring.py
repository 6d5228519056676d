"""Alerts and panels ask for metrics that there are, with labels that they have."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.metrics import MetricWrapperBase

from progressor import metrics
from tests.deploy.manifests import DEPLOY, dashboard, documents, panels, rules
from tests.docs.pages import ROOT
from tests.docs.test_links import _anchors

# Of Prometheus itself, and of the client library on Linux.
_OTHERS = {"up": {"job"}, "ALERTS": {"alertname", "alertstate"}}
_OTHERS |= {"process_cpu_seconds_total": set(), "process_resident_memory_bytes": set()}
# What the scraper puts on everything, a supervisor on gauges, and histograms on their buckets.
_ADDED = {"instance", "job", "child", "le"}
_TEXT = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(?:progressor_\w+|process_\w+|python_\w+|up|ALERTS)\b")


def _labels() -> dict[str, set[str]]:
    """The labels of every series that `/metrics` can have."""
    found = dict(_OTHERS)
    for each in vars(metrics).values():
        if isinstance(each, MetricWrapperBase):
            for family in each.describe():
                ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
                for end in ends.get(family.type, [""]):
                    found[family.name + end] = set(each._labelnames)
    return found


_LABELS = _labels()


def _expressions() -> list[tuple[str, str]]:
    alerts = [(rule["alert"], rule["expr"]) for rule in rules()]
    shown = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    board = dashboard()
    asked = [
        (each["name"], each["query"]["query"])
        for each in board["templating"]["list"]
        if each["type"] == "query"
    ]
    return [
        *alerts,
        *shown,
        *asked,
        *((each["name"], each["expr"]) for each in board["annotations"]["list"]),
    ]


@pytest.mark.parametrize(("place", "expression"), _expressions(), ids=lambda value: str(value)[:32])
def test_each_expression_asks_for_what_there_is(place: str, expression: str) -> None:
    """Its metrics are served, and so are the labels by which it chooses and groups."""
    bare = _TEXT.sub('""', expression)
    named = set(_METRIC.findall(bare))
    assert named, "an expression without a metric"
    assert named <= _LABELS.keys()
    labels = set(re.findall(r'(\w+)(?:=~|!~|!=|=)""', bare))
    for group in re.findall(r"\bby \(([^)]*)\)", bare):
        labels |= set(re.split(r",\s*", group))
    labels |= set(re.findall(r"label_values\(\w+, (\w+)\)", bare))
    assert labels <= _ADDED.union(*(_LABELS[name] for name in named))


def test_legends_name_labels_that_are_left() -> None:
    """A label that the expression adds up is not there to be shown."""
    for panel in panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = {
                word
                for group in re.findall(r"by \(([^)]*)\)", target["expr"])
                for word in group.split(", ")
            }
            assert shown <= kept, panel["title"]


def test_every_metric_of_trouble_has_a_panel() -> None:
    """What an alert asks for can be seen on the dashboard."""
    shown = {
        name for panel in panels() for each in panel["targets"] for name in _METRIC.findall(each["expr"])
    }
    asked = {name for rule in rules() for name in _METRIC.findall(rule["expr"])}
    unseen = {"progressor_unread_tasks_total", "progressor_zombies_refused_total", "up"}
    assert asked - shown <= unseen


def test_the_dashboard_is_in_order() -> None:
    """Each panel says what it shows, has a number of its own, and covers no other."""
    board = dashboard()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    covered: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & covered, panel["title"]
        covered |= cells
    assert all(panel["description"] and panel["targets"] for panel in panels())


def test_every_alert_leads_to_its_runbook() -> None:
    """A heading of the page, which there is; with how loud it is, and in words what is wrong."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        base, _, path = rule["annotations"]["runbook_url"].partition("/")
        assert base == "{{ $externalLabels.runbooks }}"
        page, _, anchor = path.partition("#")
        assert anchor in _anchors(ROOT / page), rule["alert"]
        text = rule["annotations"]["description"]
        # A number has a unit, and no more digits than somebody reads.
        for shown in re.findall(r"{{ (?!\$labels)(.*?) }}", text):
            assert shown.split()[0] in ("humanizeDuration", "humanizePercentage", "printf"), text
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert label in re.sub(r"[(),]", " ", rule["expr"]).split() or label in _ADDED


def test_whoever_has_to_know_is_told() -> None:
    """An alert wakes somebody up if customers wait or are refused, and only then."""
    pages = {
        rule["alert"].removeprefix("Progressor") for rule in rules() if rule["labels"]["severity"] == "page"
    }
    assert pages == {
        *("WorkWaits", "RequestsWait", "NoWorkers", "NoScanner", "NobodyCollects"),
        *("ManyBreak", "HttpErrors", "DatabaseAway", "RowsDamaged", "MessagesWait"),
    }


def test_the_operators_rules_are_the_alerts() -> None:
    """The PrometheusRule of Kubernetes has the same groups; `python -m tests.docs.drawn` writes it anew."""
    (rule,) = documents(DEPLOY / "kubernetes/monitoring/prometheus-rule.yaml")
    (alerts,) = documents(DEPLOY / "prometheus/alerts.yml")
    assert rule["spec"] == alerts
    assert rule["kind"] == "PrometheusRule"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "config", "prometheus.yml"],
        ["check", "config", "../systemd/prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ],
    ids=" ".join,
)
def test_promtool(words: list[str]) -> None:
    """Prometheus takes them, and each alert fires at its trouble and not without it."""
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool: apt-get install prometheus brings it")
    done = subprocess.run(
        [promtool, *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_by_promtool() -> None:
    """Both ways."""
    text = (DEPLOY / "prometheus/alerts_test.yml").read_text("utf-8")
    tried = re.findall(r'alertname="(\w+)"', text)
    assert sorted(tried) == sorted(2 * [rule["alert"] for rule in rules()])
