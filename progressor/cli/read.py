"""The commands that only read: get, history, trace, search."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import typer

from progressor.cli import views
from progressor.cli.failures import REFUSED
from progressor.cli.options import ASKING, AsJson, NamespaceName, ProcessId, Timeout, with_settings
from progressor.cli.output import note, note_sealed, print_json, stdout, warning
from progressor.cli.question import ask
from progressor.cli.statuses import status_option
from progressor.cli.values import read_duration, read_filter, read_moment
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.errors import ArchiveDamaged, ArchiveUnavailable, ProgressorError
from progressor.handlers.process import Process
from progressor.http.wire.models import plain, process_document, state_of
from progressor.inputs import HistoryRange
from progressor.monitoring import Mailbox

# Events shown to a person, for a history may be very long; machines get all unless they set a limit.
_SHOWN = 20


@with_settings(ASKING)
def get(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    offset: Annotated[int, typer.Option(min=0, help="Begin after this event id; 0: at the end.")] = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, show_default=f"all as JSON, else the last {_SHOWN}", help="The most events to show."
        ),
    ] = None,
    direction: Annotated[
        Literal["forward", "backward"], typer.Option(help="Oldest or newest events first.")
    ] = "forward",
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show a process: status, timer, mailbox, state, metadata, history.

    If the archive cannot be read, the history is what is left in the database, and the exit status 1.
    """
    seconds = read_duration(timeout, "--timeout")
    newest = not json and limit is None and not offset and direction == "forward"
    wanted = (
        HistoryRange(limit=_SHOWN, direction="backward")
        if newest
        else HistoryRange(offset, limit, direction)
    )

    async def look(client: Client) -> tuple[_HistoryRead, Mailbox]:
        found = await _read(client, namespace, process_id, wanted, seconds)
        return found, await client.mailbox(namespace, process_id)

    (process, failure), mailbox = ask(settings, look, values=True)
    if json:
        print_json(process_document(process) | {"mailbox": plain(mailbox)})
    else:
        events = process.history[::-1] if newest else process.history
        stdout().print(views.process_view(process, mailbox, events))
        note_sealed(state_of(process), *(each.payload for each in events))
    _warn(process, failure)


class _HistoryRead(NamedTuple):
    """A process with a range of its history; of what is left of that, if the archive has failed."""

    process: Process[Any]
    failure: ArchiveDamaged | ArchiveUnavailable | None = None


async def _read(
    client: Client, namespace: str, process_id: str, wanted: HistoryRange, seconds: timedelta | None = None
) -> _HistoryRead:
    get = partial(client.get, namespace, process_id, timeout=seconds)
    try:
        return _HistoryRead(await get(range=wanted))
    except (ArchiveDamaged, ArchiveUnavailable) as failure:
        there = await get(range=None)
        return _HistoryRead(await get(range=_left_of(there, wanted)), failure)


def _left_of(process: Process[Any], wanted: HistoryRange) -> HistoryRange:
    """Return the part of a range for which no archive is read."""
    if wanted.direction == "forward":
        return replace(wanted, offset=max(wanted.offset, process.first_event_id - 1))
    left = (wanted.offset or process.last_event_id + 1) - process.first_event_id
    return replace(wanted, limit=max(0, left if wanted.limit is None else min(wanted.limit, left)))


def _warn(process: Process[Any], failure: ProgressorError | None) -> None:
    """Warn of an archive that has failed, and exit with 1."""
    if failure is not None:
        warning(f"events before {process.first_event_id:,} are not shown: {failure}")
        raise typer.Exit(REFUSED)


@with_settings(ASKING)
def history(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    offset: Annotated[int, typer.Option(min=0, help="Begin after this event id.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="The most events to show.")] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show the events of a process, oldest first: those that are left, and those in the archive.

    PROGRESSOR_ARCHIVE says where the archive is; without it the history begins with what is left. So it
    does if the archive cannot be read, with the exit status 1.
    """
    wanted = HistoryRange(offset, limit)
    process, failure = ask(
        settings, lambda client: _read(client, namespace, process_id, wanted), values=True
    )
    if json:
        for event in process.history:
            print_json(plain(event))
    elif process.history:
        stdout().print(views.history_view(process.history))
        note_sealed(*(each.payload for each in process.history))
    _warn(process, failure)
    first = process.history[0].event_id if process.history else process.first_event_id
    if not offset and first > 1:
        note(f"events 1 to {first - 1:,} are deleted, and not in an archive that is known here")


@with_settings(ASKING)
def trace(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    after: Annotated[int, typer.Option(min=0, help="Only tasks after this task id.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="The most tasks to show.")] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="Show only this many of the newest tasks.")
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Show all tasks that a process ever had, and what came of each."""
    entries = ask(
        settings,
        lambda client: client.trace(namespace, process_id, after=after, limit=limit, last=last),
        values=True,
    )
    if json:
        print_json([plain(entry) for entry in entries])
    else:
        stdout().print(views.trace_view(entries))
        note_sealed(*(value for entry in entries for value in (entry.args, entry.response)))


@with_settings(ASKING)
def search(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    status: Annotated[str | None, status_option("--status", "-s")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value or a JSON object: only processes whose metadata has it; repeat it for more."
        ),
    ] = None,
    timer: Annotated[
        str | None,
        typer.Option(
            help="none, overdue or held; or the name of a timer (default: the one without a name)."
        ),
    ] = None,
    created_after: Annotated[str | None, typer.Option(help="ISO 8601.")] = None,
    created_before: Annotated[str | None, typer.Option(help="ISO 8601.")] = None,
    limit: Annotated[int, typer.Option(help="The most processes to show, up to 1000.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after the page that returned this cursor.")
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List processes, by namespace and creation; with overdue timers by namespace and due time."""
    wanted = read_filter(metadata, "--metadata")
    since = read_moment(created_after, "--created-after")
    until = read_moment(created_before, "--created-before")
    page = ask(
        settings,
        lambda client: client.search(
            namespace=namespace,
            status=status,
            metadata=wanted,
            timer=timer,
            created_after=since,
            created_before=until,
            limit=limit,
            cursor=cursor,
        ),
        values=True,
    )
    if json:
        items = [process_document(process, history=False) for process in page.items]
        print_json({"items": items, "cursor": page.cursor})
        return
    if page.items:
        stdout().print(views.search_view(page.items))
    elif page.cursor is None:
        note("no process found")
    if page.cursor is not None:
        # A search by the name of a timer, or for none, may end a page before it has seen all processes.
        may_end = timer in ("overdue", "held", None)
        note(f"there {'are' if may_end else 'may be'} more: --cursor {page.cursor}")
