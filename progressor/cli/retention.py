"""The commands for what has ended: retention show, set, unset, estimate, run.

Rule: `set` and `run` begin a walk, and what a walk deletes is gone. `estimate` deletes nothing.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from progressor.cli.options import ACTING, ASKING, AsJson, NamespaceName, Yes, confirm, with_settings
from progressor.cli.output import clock, note, print_json, stderr, stdout
from progressor.cli.question import ask, run_here
from progressor.cli.tables import facts_table
from progressor.cli.values import read_duration
from progressor.client.client import Client
from progressor.config import Retention
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import Standalone, retention_sweeper_apart
from progressor.http.wire.models import plain
from progressor.monitoring import KnownRetention, RetentionEstimate
from progressor.texts import duration, number_of, visible

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="How long a namespace keeps ended tasks and events.",
    epilog="progressor retention set billing.subscription --tasks 90d --events 1000",
)

# Seconds between two looks at a walk.
_LOOKS = 0.5

Tasks = Annotated[str | None, typer.Option(help="Time for which ended tasks are kept: 90d, 12h, ISO 8601.")]
Keys = Annotated[str | None, typer.Option(help="Time for those with an idempotency key, if longer.")]
Events = Annotated[
    str | None, typer.Option(help="Time for which events are kept, or how many of each process: 1000.")
]
Archived = Annotated[
    bool,
    typer.Option(
        "--archive/--no-archive", help="Write what is deleted to the archive first (PROGRESSOR_ARCHIVE)."
    ),
]


@app.command()
@with_settings(ASKING)
def show(namespace: NamespaceName, *, json: AsJson = False, settings: Settings) -> None:
    """Show for how long a namespace keeps what has ended, and the last walk that deleted the rest."""
    _print(ask(settings, lambda client: client.retention(namespace)), machine=json)


@app.command("set")
@with_settings(ACTING)
def set_(
    namespace: NamespaceName,
    *,
    tasks: Tasks = None,
    keys: Keys = None,
    events: Events = None,
    archived: Archived = False,
    yes: Yes = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Keep what has ended for these times, whatever the code says; what is left out is kept for ever.

    It first shows what would be deleted, and asks.
    `progressor retention set billing.subscription --tasks 90d`
    """
    wanted = _read(tasks, keys, events, archive=archived)

    async def change(client: Client) -> KnownRetention:
        await client.set_retention(namespace, wanted)
        return await client.retention(namespace)

    if not yes and not wanted.is_for_ever:
        found = ask(settings, lambda client: client.estimate_retention(namespace, wanted))
        stderr().print(_estimate_view(found))
        confirm(f"keep so much of {visible(namespace)}, and delete the rest?", yes=yes)
    _print(ask(settings, change), machine=json)


@app.command()
@with_settings(ACTING)
def unset(namespace: NamespaceName, *, json: AsJson = False, settings: Settings) -> None:
    """Keep what has ended for as long as the code of the namespace says."""

    async def change(client: Client) -> KnownRetention:
        await client.set_retention(namespace, None)
        return await client.retention(namespace)

    _print(ask(settings, change), machine=json)


@app.command()
@with_settings(ASKING)
def estimate(
    namespace: NamespaceName,
    *,
    tasks: Tasks = None,
    keys: Keys = None,
    events: Events = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Estimate what these times would delete now, or those of the namespace; nothing is deleted.

    It reads a sample of the tables. `progressor retention estimate billing.subscription --tasks 90d`
    """
    wanted = None if tasks is keys is events is None else _read(tasks, keys, events)
    found = ask(settings, lambda client: client.estimate_retention(namespace, wanted))
    if json:
        print_json(plain(found))
    else:
        stdout().print(_estimate_view(found))


@app.command()
@with_settings(ACTING)
def run(namespace: NamespaceName, *, json: AsJson = False, settings: Settings) -> None:
    """Delete now what the namespace keeps no longer, and wait until it is done.

    This command does the work, or helps with it, at PROGRESSOR_RETENTION_RATE; a walk into an archive needs
    PROGRESSOR_ARCHIVE, here or at a zombie collector. Ctrl-C leaves the rest to the zombie collectors.
    """

    async def walk(dsn: str) -> KnownRetention:
        options = settings.connection_options()
        # First: else a sweeper that has just ended another walk sleeps before it looks again.
        async with Client(dsn, **options) as client:
            await client.begin_retention(namespace)
        options |= {"retention_rate": settings.retention_rate}
        async with Standalone(dsn, retention_sweeper_apart, **options) as service:
            has_archive = settings.archive is not None
            return await _until_ended(service.client, namespace, quiet=json, has_archive=has_archive)

    goes_on = f"the walk goes on: progressor retention show {namespace}"
    _print(run_here(settings, walk, interrupted=goes_on), machine=json)


async def _until_ended(client: Client, namespace: str, *, quiet: bool, has_archive: bool) -> KnownRetention:
    """Return the retention once its walk has ended; print at once for whom it waits, if not for us."""
    console, is_told = stderr(), has_archive
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            known = await client.retention(namespace)
            if known.ended_at is not None or known.retention.is_for_ever:
                return known
            waits_for = known.waits_for(datetime.now(UTC)) if known.archive and not is_told else None
            if waits_for is not None:
                is_told = True
                note(f"the walk waits for {waits_for}, and this command has none: Ctrl-C leaves it waiting")
            if console.is_terminal and not quiet:
                live.update(_view(known), refresh=True)
            await asyncio.sleep(_LOOKS)


def _read(tasks: str | None, keys: str | None, events: str | None, *, archive: bool = False) -> Retention:
    kept = int(events) if events is not None and events.isdecimal() else read_duration(events, "--events")
    times = {"tasks": read_duration(tasks, "--tasks"), "keys": read_duration(keys, "--keys")}
    return Retention(**times, events=kept, archive=archive)


def _print(known: KnownRetention, *, machine: bool) -> None:
    if machine:
        print_json(plain(known))
    else:
        stdout().print(_view(known))


def _view(known: KnownRetention) -> Table:
    events = duration(known.events_for) if known.events_for else "for ever"
    if known.events_last is not None:
        events = f"the newest {known.events_last:,} of each process"
    rows = facts_table()
    rows.add_row("namespace", Text(visible(known.namespace), style="bold"))
    rows.add_row("tasks", duration(known.tasks) if known.tasks else "for ever")
    if known.keys is not None:
        rows.add_row("with a key", duration(known.keys))
    rows.add_row("events", events)
    if known.fault is not None:
        rows.add_row("fault", Text(f"{visible(known.fault)}; everything is kept", style="red"))
    if known.archive:
        rows.add_row("archive", "what is deleted is archived first")
    rows.add_row("said by", "an operator" if known.is_set else "the code of the namespace")
    if known.began_at is not None:
        until = "now" if known.ended_at is None else clock(known.ended_at)
        rows.add_row("last walk", f"{clock(known.began_at)} to {until}")
        deleted = f"{number_of(known.tasks_deleted, 'task')}, {number_of(known.events_deleted, 'event')}"
        busy = f"; {known.passed_by:,} busy processes are left to the next walk" if known.passed_by else ""
        rows.add_row("deleted", deleted + busy)
    if known.next_at is not None and not known.is_walking and not known.retention.is_for_ever:
        rows.add_row("next walk", clock(known.next_at))
    waits_for = known.waits_for(datetime.now(UTC))
    if waits_for is not None:
        rows.add_row("waits for", Text(waits_for, style="yellow"))
    return rows


def _estimate_view(found: RetentionEstimate) -> Table:
    about = "" if found.is_exact else "about "
    rows = facts_table()
    for name, old, of, size in (
        ("tasks", found.old_tasks, found.tasks, found.old_task_bytes),
        ("events", found.old_events, found.events, found.old_event_bytes),
    ):
        rows.add_row(name, f"{about}{old:,} of {of:,} would be deleted, {size / (1 << 20):,.1f} MiB")
    return rows
