"""The command remove: of one process, or of all that match.

Rule: it goes through the processes in the order of their creation, so that a command that was stopped can
be repeated. What is removed is gone; a receipt of it is printed as it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from progressor.cli.change import print_answer
from progressor.cli.options import ACTING, AsJson, NamespaceName, Yes, confirm, with_settings
from progressor.cli.output import print_json, stderr, stdout
from progressor.cli.question import ask
from progressor.cli.statuses import status_option
from progressor.cli.values import read_object
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.errors import ProcessNotFound
from progressor.handlers.process import Process
from progressor.model import Metadata
from progressor.texts import visible

# Processes of a page, and removals under way at once.
_PAGE, _AT_ONCE = 100, 16
# Process ids that a dry run shows.
_SHOWN = 20

MaybeProcess = Annotated[
    str | None, typer.Argument(metavar="[PROCESS_ID]", show_default=False, help="Only this process.")
]
WithMetadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        show_default=False,
        help="key=value or a JSON object: those whose metadata has it.",
    ),
]
OfStatus = Annotated[
    str | None, status_option("--status", "-s", show_default=False, help="Processes of this status.")
]


class _Wanted(NamedTuple):
    """The processes of a command."""

    namespace: str
    process_id: str | None
    metadata: Metadata | None
    status: str | None

    async def found(self, client: Client) -> AsyncIterator[list[Process[Any]]]:
        """Yield them, page by page, without their histories; raise ProcessNotFound for one that is not."""
        if self.process_id is not None:
            yield [await client.get(self.namespace, self.process_id, range=None)]
            return
        cursor = None
        while True:
            page = await client.search(
                namespace=self.namespace,
                status=self.status,
                metadata=self.metadata,
                limit=_PAGE,
                cursor=cursor,
            )
            yield page.items
            if (cursor := page.cursor) is None:
                return


@with_settings(ACTING)
def remove(
    namespace: NamespaceName,
    process_id: MaybeProcess = None,
    *,
    metadata: WithMetadata = None,
    status: OfStatus = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Yes = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Delete a process with its history and its tasks, whatever it does, or all that match. Asks first.

    `progressor remove billing.subscription --metadata customer=17 --dry-run`
    """
    if process_id is None and metadata is None and status is None:
        raise typer.BadParameter("name one, or say which: --metadata, --status", param_hint="PROCESS_ID")
    if process_id is not None and (metadata is not None or status is not None):
        raise typer.BadParameter("it is for many processes: leave out PROCESS_ID", param_hint="--metadata")
    wanted = _Wanted(namespace, process_id, read_object(metadata, "--metadata"), status)
    if dry_run:
        _show(ask(settings, lambda client: _look(client, wanted)), machine=json)
    elif process_id is not None:
        confirm(f"Delete {visible(namespace)}/{visible(process_id)} with its whole history?", yes=yes)
        ask(settings, lambda client: client.remove(namespace, process_id))
        print_answer(None, f"removed {namespace}/{process_id}", machine=json)
    else:
        if not yes:
            _show(ask(settings, lambda client: _look(client, wanted)), machine=False)
        confirm(f"Delete these processes of {visible(namespace)} with their whole histories?", yes=yes)
        removed, events = ask(settings, lambda client: _remove(client, wanted, quiet=json))
        if not json:
            many = f"removed {removed:,} processes of {namespace}, with {events:,} events"
            stdout().print(visible(many), soft_wrap=True)


class _Match(NamedTuple):
    """The processes that a dry run found: how many, with how many events, and the first of them."""

    processes: int
    events: int
    examples: list[str]


async def _look(client: Client, wanted: _Wanted) -> _Match:
    processes, events, examples = 0, 0, list[str]()
    async for page in wanted.found(client):
        processes += len(page)
        events += sum(_events_of(each) for each in page)
        examples += [each.process_id for each in page[: _SHOWN - len(examples)]]
    return _Match(processes, events, examples)


def _show(found: _Match, *, machine: bool) -> None:
    if machine:
        print_json(found._asdict(), machine=True)
        return
    stdout().print(f"{found.processes:,} processes match, with {found.events:,} events", soft_wrap=True)
    for each in found.examples:
        stdout().print(visible(f"  {each}"), soft_wrap=True)
    if found.processes > len(found.examples):
        stdout().print("  …")


async def _remove(client: Client, wanted: _Wanted, *, quiet: bool) -> tuple[int, int]:
    """Remove them; return how many there were, with how many events."""
    console = stderr()
    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} processes removed")
    removed = events = 0
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as shown:
        bar = shown.add_task("remove", total=None)
        async for page in wanted.found(client):
            for place in range(0, len(page), _AT_ONCE):
                some = page[place : place + _AT_ONCE]
                for receipt in filter(
                    None, await asyncio.gather(*(_removed(client, each) for each in some))
                ):
                    removed, events = removed + 1, events + receipt["events"]
                    if quiet:
                        print_json(receipt, machine=True)
                shown.update(bar, completed=removed)
    return removed, events


async def _removed(client: Client, process: Process[Any]) -> dict[str, Any] | None:
    """Remove a process; return the receipt, None if somebody else was faster."""
    try:
        await client.remove(process.namespace, process.process_id)
    except ProcessNotFound:
        return None
    return {
        "namespace": process.namespace,
        "process_id": process.process_id,
        "created_at": process.created_at,
        "events": _events_of(process),
        "removed_at": datetime.now(UTC),
    }


def _events_of(process: Process[Any]) -> int:
    return process.last_event_id - process.first_event_id + 1
