"""The commands for schedules: schedules, and below it pause, resume, trigger and backfill."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.text import Text

from progressor.cli.change import print_answer
from progressor.cli.options import ASKING, AsJson, NamespaceName, read_moment, with_settings
from progressor.cli.output import clock, note, print_json, stdout, visible
from progressor.cli.question import ask
from progressor.cli.tables import Listing
from progressor.client.client import Client
from progressor.client.results import Page
from progressor.deployment.settings import Settings
from progressor.errors import NamespaceNotFound, ProcessNotFound
from progressor.handlers.process import Process
from progressor.schedules import SCHEDULES, Declaration, ScheduleState, Span, backfill, pause, resume, trigger

_PAGE = 1_000
_JSON: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
Name = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="Name of the schedule in its namespace.")
]

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="List schedules, or pause, resume, trigger and backfill one.",
    epilog="progressor schedules backfill billing nightly 2026-10-01T00:00Z 2026-11-01T00:00Z",
)


@app.callback()
@with_settings(ASKING)
def schedules(
    context: typer.Context,
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only those that this namespace declares.")
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List schedules: when each is due next, what it sends, and what it did last."""
    if context.invoked_subcommand is not None:
        return
    found = ask(settings, lambda client: _found(client, namespace))
    if json:
        print_json([_plain(each) for each in found], machine=True)
    elif found:
        stdout().print(_listing(found))
    else:
        note("no schedule: `namespace.schedule(…)` declares one, and an engine that serves it begins it")
