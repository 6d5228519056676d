"""All commands: each is imported when it is run, or when its help is shown."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer

RUN, ASK, LOOK, MAINTAIN = "Run", "Ask", "Look", "Maintain"

COMMANDS: Mapping[str, Mapping[str, str]] = {
    RUN: {
        "demo": "demo:demo",
        "dev": "serve:dev",
        "worker": "serve:worker",
        "scanner": "serve:scanner",
        "zombie-collector": "serve:zombie_collector",
        "api": "api:api",
        "web": "web:web",
        "sink": "sink:sink",
    },
    ASK: {
        "start": "change:start",
        "call": "change:call",
        "notify": "change:notify",
        "repair": "change:repair",
        "simple-repair": "change:simple_repair",
        "redo": "change:redo",
        "set-timer": "timers:set_timer",
        "unset-timer": "timers:unset_timer",
        "fire-timer": "timers:fire_timer",
        "stop-bulk": "bulk:stop_bulk",
        "put": "change:put",
        "remove": "many:remove",
        "import": "transfer:import_",
    },
    LOOK: {
        "get": "read:get",
        "watch": "watch:watch",
        "trace": "read:trace",
        "search": "read:search",
        "history": "read:history",
        "export": "transfer:export",
        "status": "status:status",
        "errors": "errors:errors",
        "workers": "oversee:workers",
        "groups": "limits:groups",
        "audit": "audit:audit",
        "schedules": "schedules:app",
        "subscriptions": "subscriptions:subscriptions_app",
        "parked": "subscriptions:parked_app",
        "bulk": "bulk:bulk",
        "bulks": "bulk:bulks",
    },
    MAINTAIN: {
        "pause": "oversee:pause",
        "resume": "oversee:resume",
        "retire": "oversee:retire",
        "set-group-limit": "limits:set_group_limit",
        "migrate": "maintain:migrate",
        "doctor": "doctor:doctor",
        "check-states": "check_states:check_states",
        "bench": "bench:bench",
        "reencode": "reencode:reencode",
        "retention": "retention:app",
        "archive": "archive:app",
        "token": "token:app",
    },
}
"""Every command by the panel of its help: its module in this folder, and its name there."""

_PLACES = {name: (panel, place) for panel, names in COMMANDS.items() for name, place in names.items()}
NAMES = tuple(_PLACES)
"""All names, in the order of the help."""


def load(name: str) -> Any:
    """Import the command of this name, and return it as a click command."""
    panel, place = _PLACES[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"progressor.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name)(found)
        found = alone
    command: Any = typer.main.get_command(found)
    command.name, command.rich_help_panel = name, panel
    flow(command)
    return command


def flow(command: Any) -> None:
    """Have the paragraphs of its help fill the terminal: typer breaks their lines where the source does."""
    if command.help is not None:  # `python -OO` drops docstrings.
        command.help = "\n\n".join(each.replace("\n", " ") for each in command.help.split("\n\n"))
    for part in getattr(command, "commands", {}).values():
        flow(part)
