"""The command remove: of one process, or of all that match.

Rule: it goes through the processes in the order of their creation, so that a command that was stopped can
be repeated. What is removed is gone; its receipt is printed at the end of its page, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from progressor.cli.options import ACTING, AsJson, NamespaceName, Yes, confirm, with_settings
from progressor.cli.output import print_answer, print_json, stderr, stdout, warning
from progressor.cli.question import ask
from progressor.cli.statuses import status_option
from progressor.cli.values import read_filter
from progressor.client.client import Client
from progressor.client.results import Removal
from progressor.client.transfers.removing import receipt_of
from progressor.deployment.settings import Settings
from progressor.model import Metadata
from progressor.texts import number_of, visible

# Process ids that a dry run shows.
_SHOWN = 20

MaybeProcess = Annotated[str | None, typer.Argument(metavar="[PROCESS_ID]", help="Only this process.")]
WithMetadata = Annotated[
    list[str] | None,
    typer.Option(help="key=value or a JSON object: those whose metadata has it; repeat it for more."),
]
OfStatus = Annotated[str | None, status_option("--status", "-s", help="Processes of this status.")]


class _Wanted(NamedTuple):
    """The processes of a command."""

    namespace: str
    process_id: str | None
    metadata: Metadata | None
    status: str | None

    async def removals(self, client: Client, *, dry_run: bool) -> AsyncIterator[list[Removal]]:
        """Remove them, or only look; yield their receipts, page by page."""
        cursor = None
        while True:
            removing = asyncio.create_task(
                client.remove_processes(
                    self.namespace,
                    status=self.status,
                    metadata=self.metadata,
                    cursor=cursor,
                    dry_run=dry_run,
                )
            )
            stopped = None
            try:
                page = await asyncio.shield(removing)
            except asyncio.CancelledError as error:
                # Ctrl-C: the page comes to its end; a second one ends the command at once.
                stopped, page = error, await removing
            yield page.removals
            if stopped is not None:
                raise stopped
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
    wanted = _Wanted(namespace, process_id, read_filter(metadata, "--metadata"), status)
    if dry_run:
        found = ask(settings, lambda client: _look(client, wanted))
        if json:
            print_json(found._asdict())
        else:
            _show(found, stdout())
    elif process_id is not None:
        confirm(f"Delete {visible(namespace)}/{visible(process_id)} with its whole history?", yes=yes)
        receipt = ask(settings, lambda client: _remove_one(client, namespace, process_id))
        print_answer(receipt._asdict() if json else None, f"removed {namespace}/{process_id}", machine=json)
    else:
        if not yes:
            # Beside the receipts, which may go into a file.
            _show(ask(settings, lambda client: _look(client, wanted)), stderr() if json else stdout())
        confirm(f"Delete these processes of {visible(namespace)} with their whole histories?", yes=yes)
        done = ask(settings, lambda client: _remove(client, wanted, quiet=json))
        if not json:
            gone, events = number_of(done.processes, "process"), number_of(done.events, "event")
            stdout().print(visible(f"removed {gone} of {namespace}, with {events}"), soft_wrap=True)
        if done.failed:
            where = "in its receipt" if json else "above"
            warning(f"not removed: {number_of(done.failed, 'process')}; the error of each is {where}")
            raise typer.Exit(1)


class _Match(NamedTuple):
    """The processes that a dry run found: how many, with how many events, and the first of them."""

    processes: int
    events: int
    examples: list[str]


async def _look(client: Client, wanted: _Wanted) -> _Match:
    if wanted.process_id is not None:
        one = await client.get(wanted.namespace, wanted.process_id, range=None)
        return _Match(1, one.last_event_id - one.first_event_id + 1, [one.process_id])
    processes, events, examples = 0, 0, list[str]()
    async for page in wanted.removals(client, dry_run=True):
        processes += len(page)
        events += sum(each.events for each in page)
        examples += [each.process_id for each in page[: _SHOWN - len(examples)]]
    return _Match(processes, events, examples)


def _show(found: _Match, console: Console) -> None:
    verb = "matches" if found.processes == 1 else "match"
    processes, events = number_of(found.processes, "process"), number_of(found.events, "event")
    console.print(f"{processes} {verb}, with {events}", soft_wrap=True)
    for each in found.examples:
        console.print(visible(f"  {each}"), soft_wrap=True)
    if found.processes > len(found.examples):
        console.print("  …")


async def _remove_one(client: Client, namespace: str, process_id: str) -> Removal:
    """Remove a process; return its receipt, with what it had a moment before."""
    found = await client.reader.standing(namespace, process_id)
    await client.remove(namespace, process_id)
    return receipt_of(found, removed_at=datetime.now(UTC))


class _Done(NamedTuple):
    """The numbers of processes that are removed, of their events, and of those that are not removed."""

    processes: int = 0
    events: int = 0
    failed: int = 0

    def and_(self, receipt: Removal) -> _Done:
        if receipt.error is not None:
            return self._replace(failed=self.failed + 1)
        return self._replace(processes=self.processes + 1, events=self.events + receipt.events)


async def _remove(client: Client, wanted: _Wanted, *, quiet: bool) -> _Done:
    """Remove them, and print the receipts if `quiet`, or what is not removed."""
    console, done = stderr(), _Done()
    with progress("removed", quiet=quiet) as shown:
        async for page in wanted.removals(client, dry_run=False):
            for receipt in page:
                done = done.and_(receipt)
                if quiet:
                    print_json(receipt._asdict())
                elif receipt.error is not None:
                    console.print(visible(f"{receipt.process_id}: {receipt.error}"), soft_wrap=True)
            shown(done.processes)
    return done


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show how many processes are done, in a terminal, unless `quiet`."""
    console = stderr()
    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} processes " + what)
    is_shown = console.is_terminal and not quiet
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as shown:
        bar = shown.add_task(what, total=None)
        yield lambda many: shown.update(bar, completed=many)
