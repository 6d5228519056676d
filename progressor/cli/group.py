"""The group of all commands: its help and its errors.

Rule: a command raises nothing but ProgressorError on purpose; here it becomes a line and a status.
"""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from progressor.cli import commands
from progressor.cli.failures import EXIT_STATUS, report
from progressor.cli.options import MACHINE
from progressor.cli.output import stdout
from progressor.cli.spelling import spelling_of
from progressor.deployment.settings import Settings
from progressor.errors import ProgressorError

EXAMPLES = (
    "progressor dev billing.app:namespaces",
    """progressor start billing.subscription acme '{"plan": "pro"}' --idempotency-key signup-17""",
    """progressor call billing.subscription acme pay '{"amount": 10}'""",
    "progressor trace billing.subscription acme",
    "progressor search --status error --json",
    "progressor status --watch",
    "progressor pause billing.subscription",
    "export PROGRESSOR_DATABASE_URL=postgresql://app@db/billing",
    "progressor migrate && progressor worker billing.app --processes 4 --metrics-port 9464",
)


class Commands(TyperGroup):
    """The group of all commands, which imports each when it is run or listed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click passes it
        return list(commands.NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in commands.NAMES and cmd_name not in self.commands:
            self.commands[cmd_name] = commands.load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in commands.NAMES:
            # The error suggests only names of commands that are loaded.
            for name in commands.NAMES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ProgressorError as error:
            spelling = spelling_of(self.commands[ctx.invoked_subcommand]) if ctx.invoked_subcommand else {}
            machine = ctx.meta.get(MACHINE, False)
            raise typer.Exit(report(error, machine=machine, spelling=spelling)) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands.flow(self)
        super().format_help(ctx, formatter)
        print_epilog()


def print_epilog() -> None:
    """Print examples, exit statuses and settings, below the commands."""
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
