"""The group of all commands: its order, its help, the commands that are loaded late, its errors.

Rule: a command raises ProgressorError and nothing else on purpose; here it becomes a line and a status.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command

from progressor.cli.failures import EXIT_STATUS, report
from progressor.cli.options import MACHINE
from progressor.cli.output import stdout
from progressor.deployment.settings import Settings
from progressor.errors import ProgressorError

RUN, ASK, LOOK, MAINTAIN = "Run", "Ask", "Look", "Maintain"

# Each is a function of its own name in a module of its own name: `progressor.cli.demo.demo`.
LATE = {"demo": RUN, "api": RUN, "bench": MAINTAIN}

EXAMPLES = (
    "progressor dev billing.app:namespaces",
    """progressor start billing.subscription acme '{"plan": "pro"}' --idempotency-key signup-17""",
    """progressor call billing.subscription acme pay '{"amount": 10}'""",
    "progressor trace billing.subscription acme",
    "progressor search --status error --json",
    "export PROGRESSOR_DATABASE_URL=postgresql://app@db/billing",
    "progressor migrate && progressor worker billing.app --metrics-port 9464",
)


class Commands(TyperGroup):
    """All commands; those of LATE are imported when they are asked for, and left out if not installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        late = [name for name in LATE if _is_there(name)]
        return ["demo"] * ("demo" in late) + super().list_commands(ctx) + [n for n in late if n != "demo"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in LATE and _is_there(cmd_name):
            return _late(cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ProgressorError as error:
            raise typer.Exit(report(error, machine=ctx.meta.get(MACHINE, False))) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        print_epilog()


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(f"progressor.cli.{name}") is not None


def _late(name: str) -> Any:
    function = getattr(importlib.import_module(f"progressor.cli.{name}"), name)
    alone = typer.Typer(add_completion=False)
    alone.command(name, rich_help_panel=LATE[name])(function)
    return get_command(alone)


def print_epilog() -> None:
    """Examples, exit statuses and settings, below the commands."""
    console = stdout()
    console.print(Text(" Examples", style="bold"))
    for example in EXAMPLES:
        console.print(Text(f"   {example}"), soft_wrap=True)
    console.print(Text("\n Exit status", style="bold"))
    console.print(_grid(EXIT_STATUS))
    console.print(
        Text("\n Settings", style="bold"),
        Text("(of the environment; a default in brackets; durations: seconds, ISO 8601 or hh:mm:ss)"),
    )
    console.print(_grid(_settings()))
    console.print()


def _settings() -> list[tuple[str, str]]:
    return [
        (
            variable.name,
            f"{variable.description} [{variable.default}]" if variable.default else variable.description,
        )
        for variable in Settings.variables()
    ]


def _grid(rows: Any) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(f"   {name}", text)
    return table
