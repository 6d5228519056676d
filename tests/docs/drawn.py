"""The parts of the pages that are drawn from the code: `python -m tests.docs.drawn` writes them anew.

They stand between `<!-- begin: mark -->` and `<!-- end: mark -->`; a test holds them to the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from progressor import Client, errors, metrics
from progressor.config import ConnectionOptions, EngineOptions
from progressor.deployment.settings import Settings
from progressor.http.server.app import make_app
from progressor.http.server.operation import Operation
from progressor.http.wire import problems as wire_problems
from progressor.http.wire.problems import TABLE
from progressor.storage.doctor.checks import CHECKS
from progressor.storage.postgres.sqlstates import TABLE as REJECTIONS
from tests.deploy.manifests import rules
from tests.docs import architecture, state_machine
from tests.docs.pages import ROOT, read
from tests.docs.state_machine import table
from tests.open_access import OpenAccess

_UNITS: dict[Any, str] = {timedelta: "seconds", int: "count", bool: "true or false", Path: "path"}


def settings() -> str:
    """Every variable with its default, its unit and whose keyword it is in Python."""
    rows = []
    for variable in Settings.variables():
        field = variable.name.removeprefix("PROGRESSOR_").lower()
        annotation = Settings.model_fields[field].annotation
        unit = next((name for kind, name in _UNITS.items() if annotation in (kind, kind | None)), "text")
        if field == "metrics_port":
            unit = "port"
        elif field.endswith("_bytes"):
            unit = "bytes"
        keyword = "Client, Engine" if field in ConnectionOptions.model_fields else "Engine"
        owner = f"`{field}` of {keyword}" if field in EngineOptions.model_fields else "commands only"
        default = f"`{variable.default}`" if variable.default else "unset"
        rows.append([f"`{variable.name}`", default, unit, owner, variable.description])
    return table(["Variable", "Default", "Unit", "In Python", "What it says"], rows)


def all_metrics() -> str:
    """Every metric as a scraper sees it."""
    rows = []
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            kind = metric._type
            name = f"{metric._name}_total" if kind == "counter" else metric._name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"
            bounds = metric._kwargs.get("buckets", ())
            buckets = " ".join(f"{bound:g}" for bound in bounds) or "none"
            rows.append([f"`{name}`", kind, labels, buckets, metric._documentation])
    return table(["Metric", "Kind", "Labels", "Buckets", "What it says"], rows)


def invariants() -> str:
    return table(
        ["Invariant", "In words", "Reads"],
        [[f"`{check.name}`", check.rule.replace("|", "\\|"), check.reads] for check in CHECKS],
    )


def state_diagram() -> str:
    return f"```mermaid\n{state_machine.diagram()}```\n"


def error_tree() -> str:
    text = inspect.getdoc(errors) or ""
    tree, _, _ = text[text.index("ProgressorError\n") :].partition("\n\n")
    return f"```text\n{tree}\n```\n"


def refusals() -> str:
    """`TABLE` of the errors of PostgreSQL, in its order."""
    rows = [
        [f"`{line.state.ljust(5, 'x')}`", line.what, line.meaning, "yes" if line.ends_sessions else ""]
        for line in REJECTIONS
    ]
    return table(["SQLSTATE", "What", "The operation", "Ends sessions"], rows)


def problems() -> str:
    """The table of problems, and those that are about HTTP alone."""
    rows = [
        [f"`{kind.name}`", str(kind.status), f"`{error.__name__}`", kind.title]
        for error, kind in TABLE.items()
    ]
    of_http = [each for each in vars(wire_problems).values() if isinstance(each, wire_problems.Kind)]
    rows += [[f"`{kind.name}`", str(kind.status), "", kind.title] for kind in of_http]
    return table(["Type", "Status", "Error", "Title"], rows)


def alerts() -> str:
    """Every rule, as Prometheus reads it."""
    rows = [
        [
            f"[{rule['annotations']['summary']}](#{rule['annotations']['runbook_url'].partition('#')[2]})",
            f"`{rule['expr']}`",
            "" if rule["for"] == "0m" else rule["for"],
            rule["labels"]["severity"],
        ]
        for rule in rules()
    ]
    return table(["Alert", "Expression", "Lasts", "Severity"], rows)


def routes() -> str:
    """Every route with its scope."""
    app = make_app(Client("postgresql://"), access=OpenAccess())
    rows = [
        [f"`{method} {route.path}`", f"`{route.scope}`", route.summary]
        for route in app.routes
        if isinstance(route, Operation) and route.scope is not None
        for method in sorted(route.methods or ())
    ]
    return table(["Route", "Scope", "What it does"], rows)


DRAWN: dict[tuple[str, str], Callable[[], str]] = {
    ("CONTRIBUTING.md", "rooms"): architecture.listing,
    ("docs/reference/configuration.md", "settings"): settings,
    ("docs/reference/metrics.md", "metrics"): all_metrics,
    ("docs/reference/schema.md", "invariants"): invariants,
    ("docs/reference/http.md", "routes"): routes,
    ("docs/reference/http.md", "problems"): problems,
    ("docs/how-to/alerts.md", "alerts"): alerts,
    ("docs/reference/errors.md", "tree"): error_tree,
    ("docs/reference/errors.md", "postgresql"): refusals,
    ("docs/explanation/state-machine.md", "diagram"): state_diagram,
    ("docs/explanation/state-machine.md", "steps"): state_machine.steps,
    ("docs/explanation/state-machine.md", "rules"): state_machine.rules,
    ("docs/explanation/state-machine.md", "verbs"): state_machine.verbs,
    ("docs/explanation/state-machine.md", "effects"): state_machine.effects,
}


_RULE_BEGINS = """\
# The alerts of ../../prometheus/alerts.yml for the Prometheus Operator, drawn from there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: progressor
spec:
"""


def prometheus_rule() -> str:
    """The alerts as an object of Kubernetes."""
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    return _RULE_BEGINS + indent(text[text.index("groups:") :], "  ")


FILES: dict[Path, Callable[[], str]] = {
    ROOT / "deploy/kubernetes/monitoring/prometheus-rule.yaml": prometheus_rule,
    ROOT / "docs/explanation/architecture.svg": architecture.drawing,
}
"""Whole files that are drawn."""


def main() -> None:
    for path, draw in FILES.items():
        path.write_text(draw(), encoding="utf-8")
    for (page, mark), draw in DRAWN.items():
        begin, end = f"<!-- begin: {mark} -->\n", f"<!-- end: {mark} -->"
        part = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        before, after = part.split(read(page))
        (ROOT / page).write_text(before + begin + draw() + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
