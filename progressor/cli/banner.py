"""The banner of `progressor dev` in a terminal: the addresses of its parts, and a first command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from progressor.cli.output import stderr
from progressor.deployment.database import Database
from progressor.deployment.monitor import Monitor
from progressor.handlers.namespace import Namespace
from progressor.handlers.schemas import schemas_of

_EXAMPLES = {"string": "…", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def banner(
    namespaces: Sequence[Namespace], found: Database, monitor: Monitor | None, facts: Mapping[str, object]
) -> None:
    """Show the database, the URLs, the namespaces and a first command, on stderr."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    rows.add_row("database", Text(found.shown))
    for name, value in facts.items():
        rows.add_row(name, Text(str(value)))
    if monitor is not None:
        rows.add_row("metrics", Text(f"{monitor.url}/metrics"))
        rows.add_row("health", Text(f"{monitor.url}/health"))
    rows.add_row("namespaces", Text(", ".join(namespace.name for namespace in namespaces)))
    rows.add_row("try", Text(_first_command(namespaces[0]), style="bold"))
    stderr().print(Panel(rows, title="Progressor", title_align="left", border_style="dim", expand=False))


def _first_command(namespace: Namespace) -> str:
    """Return a command that starts a process, with example arguments if their schema is known."""
    args = _example(schemas_of(namespace)["init"])
    return f"progressor start {namespace.name} first{args}"


def _example(schema: Any) -> str:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return ""
    values = {
        name: _EXAMPLES.get(schema["properties"].get(name, {}).get("type"), "…")
        for name in schema.get("required", ())
    }
    return f" '{json.dumps(values, ensure_ascii=False)}'" if values else ""
