"""The command that shows how the namespaces do, once or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from progressor.cli.options import ASKING, AsJson, with_settings
from progressor.cli.output import clock, note, print_json, stdout, visible
from progressor.cli.question import ask
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.storage import MOST_COUNTED, NamespaceStatus, Waiting

# In seconds: how often it is looked again.
_EVERY = 2.0
# Of a unit, before the next one says enough.
_ENOUGH = 120
_COLUMNS = (
    *("NAMESPACE", "CALLS", "TIMERS", "RUNNING", "STEPS/MIN", "STARTED/MIN", "BROKEN"),
    *("WORKERS", "NEXT TIMER"),
)


@with_settings(ASKING)
def status(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this one.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help=f"Look again every {_EVERY:g} s, until Ctrl-C.")
    ] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show what waits and runs in each namespace, what is broken, and who serves it.

    CALLS and TIMERS could run now and wait, the oldest for so long. RUNNING is of so many slots. What is
    more than 1,000 is not counted on: 1,000+. With --json --watch each look is one line.
    `progressor status --watch`
    """
    show = _print_json if json else _print_view
    if not watch:
        show(ask(settings, lambda client: client.status(namespace)))
    elif json or not stdout().is_terminal:
        ask(settings, lambda client: _again(client, namespace, show))
    else:
        with Live(console=stdout(), auto_refresh=False) as live:
            ask(
                settings,
                lambda client: _again(
                    client, namespace, lambda found: live.update(_view(found), refresh=True)
                ),
            )


async def _again(
    client: Client, namespace: str | None, show: Callable[[Sequence[NamespaceStatus]], None]
) -> None:
    while True:
        show(await client.status(namespace))
        await asyncio.sleep(_EVERY)


def status_plain(each: NamespaceStatus) -> dict[str, Any]:
    """All fields, for machines."""
    return {
        **asdict(each),
        "calls": each.calls._asdict(),
        "timers": each.timers._asdict(),
        "next_timers": list(each.next_timers),
    }


def _print_json(found: Sequence[NamespaceStatus]) -> None:
    print_json([status_plain(each) for each in found], machine=True)


def _print_view(found: Sequence[NamespaceStatus]) -> None:
    if found:
        stdout().print(_view(found))
    else:
        note("no namespace: `progressor worker APP` makes one known")


def _view(found: Sequence[NamespaceStatus]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in _COLUMNS:
        table.add_column(title, no_wrap=title != "NAMESPACE", overflow="fold")
    for each in found:
        slots = "" if each.slots is None else f" of {each.slots:,}"
        table.add_row(
            _name(each),
            _waiting(each.calls),
            _waiting(each.timers),
            Text(f"{each.running:,}{slots}"),
            Text(f"{each.steps:,}"),
            Text(count(each.started)),
            Text(count(each.broken), style="bold red" if each.broken else ""),
            Text(str(each.workers), style="" if each.workers else "yellow"),
            Text(clock(each.next_timers[0]) if each.next_timers else "none"),
        )
    return Group(table)


def _name(each: NamespaceStatus) -> Text:
    paused = ("  paused", "bold yellow") if each.paused else ""
    return Text.assemble((visible(each.name), "bold"), paused)


def _waiting(waiting: Waiting) -> Text:
    if not waiting.tasks:
        return Text("0")
    return Text(f"{count(waiting.tasks)} for {duration(waiting.age)}")


def count(number: int) -> str:
    """A count that stops at a bound."""
    return f"{MOST_COUNTED:,}+" if number > MOST_COUNTED else f"{number:,}"


def duration(age: timedelta) -> str:
    """How long, in the largest unit that says enough."""
    seconds = age.total_seconds()
    for unit, name in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < _ENOUGH * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"
