"""The command that watches a process: a line for each change, until it is removed or Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from progressor.cli.options import ASKING, AsJson, NamespaceName, ProcessId, with_settings
from progressor.cli.output import clock, note_sealed, print_json, stdout
from progressor.cli.question import ask
from progressor.client.client import Client
from progressor.client.results import ProcessChange
from progressor.deployment.settings import Settings
from progressor.http.wire.models import plain
from progressor.texts import short, visible

_STYLES = {"init": "yellow", "running": "green", "error": "bold red", "removed": "dim"}


@with_settings(ASKING)
def watch(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    after: Annotated[
        str | None, typer.Option(help="Go on behind the position of a change, as --json shows it.")
    ] = None,
    state: Annotated[bool, typer.Option("--state", help="Show the state in each change.")] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show a process as its steps are committed, until it is removed, or Ctrl-C."""

    async def follow(client: Client) -> None:
        async for change in client.watch(namespace, process_id, after=after, state=state):
            if json:
                print_json(plain(change))
            else:
                stdout().print(_view(change, shows_state=state))
                note_sealed(change.state, *(each.payload for each in change.events))

    ask(settings, follow, values=True)


def _view(change: ProcessChange, *, shows_state: bool) -> RenderableType:
    """Return a change for people: a line, and below it state, detail and events."""
    last = Text.assemble(
        (f"{change.status:<7}", _STYLES[change.status]), (f"  event {change.last_event_id}", "dim")
    )
    lines: list[RenderableType] = [last]
    if shows_state and change.state is not None:
        lines.append(Padding(Text(short(change.state, 200)), (0, 0, 0, 4)))
    if change.detail is not None:
        text = Text(visible(change.detail, keep_lines=True), style="red")
        lines.append(Padding(text, (0, 0, 0, 4)))
    for event in change.events:
        line = Text.assemble(
            (f"{event.event_id}  {clock(event.timestamp)}  ", "dim"),
            (visible(event.name or ""), "bold"),
            f"  {short(event.payload)}",
        )
        lines.append(Padding(line, (0, 0, 0, 4)))
    return Group(*lines)
