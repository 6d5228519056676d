"""The command that shows the load of the namespaces, once or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from progressor.cli.options import ASKING, AsJson, with_settings
from progressor.cli.output import clock, stdout
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.monitoring import Mailbox, NamespaceStatus, Waiting, WaitingRequests
from progressor.texts import count, duration, through, visible

# Seconds between two reads with --watch.
_EVERY = 2.0
_COLUMNS = (
    *("NAMESPACE", "WAITING", "THROUGH IN", "TIMERS", "RUNNING", "STEPS/MIN", "STARTED/MIN", "BROKEN"),
    *("WORKERS", "NEXT TIMER"),
)
# A mailbox is shown from so many requests on, or if its oldest request has waited for so long.
_DEEP = 10
_LONG = timedelta(seconds=10)


@with_settings(ASKING)
def status(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help=f"Refresh every {_EVERY:g} s, until Ctrl-C.")
    ] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show what waits, runs and is broken in each namespace, and how many workers serve it.

    WAITING: all requests that wait, and the wait of the oldest. THROUGH IN: the time they will take at the
    present pace. TIMERS: those that are due and wait. RUNNING: steps, and all slots. Below stand the
    deepest mailboxes. Counts stop at 1,000+. With --json --watch each look is one line.
    `progressor status --watch`
    """
    nothing = "no namespace: `progressor worker APP` makes one known"
    show = partial(print_found, view=_view, nothing=nothing, machine=json)
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


def _view(found: Sequence[NamespaceStatus]) -> RenderableType:
    namespaces = Listing(*_COLUMNS)
    for each in found:
        slots = "" if each.slots is None else f" of {each.slots:,}"
        namespaces.add(
            _name(each),
            waiting(each.waiting),
            through(each.through_in, at_least=each.waiting.at_least) if each.waiting.requests else "",
            _timers(each.timers),
            f"{each.running:,}{slots}",
            f"{each.steps:,}",
            count(each.started),
            Text(count(each.broken), style="bold red" if each.broken else ""),
            Text(str(each.workers), style="" if each.workers else "yellow"),
            clock(each.next_timers[0]) if each.next_timers else "none",
        )
    return Group(namespaces, *_mailboxes(found))


def _mailboxes(found: Sequence[NamespaceStatus]) -> Iterator[RenderableType]:
    """Yield a table of the mailboxes that are deep, or whose oldest request has waited for long."""
    deep = [
        (each, mailbox)
        for each in found
        for mailbox in each.waiting.deepest
        if mailbox.requests >= _DEEP or mailbox.age >= _LONG
    ]
    if deep:
        listing = Listing("PROCESS", "WAITING", "THROUGH IN")
        for each, mailbox in deep:
            name = Text(visible(f"{each.name}/{mailbox.process_id}"), style="bold")
            listing.add(name, waiting(mailbox), through(mailbox.through_in, at_least=mailbox.at_least))
        yield Text()
        yield listing


def _name(each: NamespaceStatus) -> Text:
    reason = "" if each.pause_reason is None else f": {visible(each.pause_reason)}"
    paused = (f"  paused{reason}", "bold yellow") if each.paused else ""
    return Text.assemble((visible(each.name), "bold"), paused)


def waiting(found: WaitingRequests | Mailbox) -> str:
    """Return the number of requests that wait, and the wait of the oldest, as text."""
    more = "+" if found.at_least else ""
    return f"{found.requests:,}{more} for {duration(found.age)}" if found.requests else "0"


def _timers(timers: Waiting) -> str:
    return f"{count(timers.tasks)} for {duration(timers.age)}" if timers.tasks else "0"
