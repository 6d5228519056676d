"""The commands on many broken processes: bulks, bulk, stop-bulk, and `repair --namespace`.

Rule: a bulk runs in the background, watched or not. Ctrl-C ends a watch, prints that the bulk goes on, and
does not touch it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from progressor.bulks import Bulk, BulkPreview, BulkStatus
from progressor.cli.bulk_checks import Filter, check_args, without_match
from progressor.cli.failures import REFUSED
from progressor.cli.options import ACTING, ASKING, AsJson, with_settings
from progressor.cli.output import clock, note, note_sealed, print_json, stderr, stdout
from progressor.cli.question import ask
from progressor.cli.tables import Listing, facts_table, print_found
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.errors import NamespaceNotFound, StorageUnavailable, Undecryptable
from progressor.http.wire.members import members_for
from progressor.http.wire.models import plain
from progressor.texts import duration, short, visible

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
# Seconds between two reads of a bulk that is watched.
_LOOKS = 0.5
# Bytes of args that are read to be shown, and the characters of them that people see.
_MOST_ARGS, _SHORT_ARGS = 65_536, 200

BulkId = Annotated[int, typer.Argument(metavar="BULK", help="Number of the bulk.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch", "--wait", help="Show its progress until it has ended; Ctrl-C leaves it running."
    ),
]


def read_rate(text: str) -> float:
    """Return the repairs per second of `50/s`, `90/m`, `100/h` or a number; BadParameter for others."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise typer.BadParameter("it must be like 50/s, 90/m or 100/h", param_hint="--rate")
    return float(found[1]) / _SECONDS[found[2]]


def preview(
    settings: Settings, namespace: str, args: Any, wanted: Filter, *, simple: bool, machine: bool
) -> None:
    """Print the broken processes that a bulk would repair, in groups."""

    async def look(client: Client) -> tuple[BulkPreview, str | None]:
        await check_args(client, namespace, args, simple=simple)
        found = await client.preview_repair_all(namespace, **wanted)
        return found, None if found.processes else await without_match(client, namespace, wanted)

    found, nothing = ask(settings, look, values=True)
    if machine:
        print_json(plain(found))
    else:
        if found.groups:
            stdout().print(_groups_view(found))
        stdout().print(_preview_line(found), soft_wrap=True)
    if nothing is not None:
        note(nothing)
    pattern = wanted["detail_like"]
    if not found.processes and pattern is not None and "%" not in pattern:
        note(f"the pattern is compared with the whole detail: '%{pattern}%' finds it anywhere in it")


def _preview_line(found: BulkPreview) -> str:
    many = f"at least {found.processes:,}" if found.has_more else f"{found.processes:,}"
    of = f"of the first {found.looked_at:,}" if found.has_more else f"of {found.looked_at:,}"
    return f"{many} {of} broken processes would be repaired; nothing was written"


def _groups_view(found: BulkPreview) -> Listing:
    titles = ("processes", "handler", "detail", "first broken", "last broken", "for example")
    listing = Listing(*titles, numbers=titles[:1])
    for group in found.groups:
        listing.add(
            f"{group.processes:,}",
            group.handler or "-",
            group.detail,
            clock(group.first_broken),
            clock(group.last_broken),
            ", ".join(group.examples),
        )
    return listing


def begin(
    settings: Settings,
    namespace: str,
    args: Any,
    wanted: Filter,
    how: dict[str, Any],
    *,
    watch: bool,
    machine: bool,
) -> None:
    """Make a bulk and print it, or watch it until it has ended."""

    async def make(client: Client) -> tuple[Bulk, str | None]:
        await check_args(client, namespace, args, simple=how["simple"])
        # Looked at before, for afterwards the bulk repairs what matches.
        nothing = await without_match(client, namespace, wanted)
        return await client.repair_all(namespace, args, **{**wanted, **how}), nothing

    made, nothing = ask(settings, make, values=True)
    number = made.bulk_id
    is_old = made.status is not BulkStatus.RUNNING
    if nothing is not None and not is_old and not made.begun:
        note(nothing)
    if is_old:
        note(
            f"bulk {number} was made with this key before: nothing is begun; another key makes another one"
        )
    if watch:
        if not is_old:
            note(f"bulk {number} is stored; Ctrl-C leaves it running")
        _watched(settings, number, machine=machine)
    elif machine:
        print_json(plain(made))
    elif is_old:
        stdout().print(f"bulk {number} of {visible(namespace)} is {made.status}", soft_wrap=True)
    else:
        stdout().print(f"bulk {number} repairs {visible(namespace)} in the background", soft_wrap=True)
        note(f"progressor bulk {number} --watch shows it, progressor stop-bulk {number} stops it")


@with_settings(ASKING)
def bulks(
    *,
    limit: Annotated[int, typer.Option(help="The most to show, up to 1000.")] = 20,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List the newest bulks: repairs of many processes."""
    found = ask(settings, lambda client: client.bulks(limit=limit))
    print_found(found, _list_view, "no bulk was ever made", machine=json)


@with_settings(ASKING)
def bulk(bulk_id: BulkId, *, watch: Watch = False, json: AsJson = False, settings: Settings) -> None:
    """Show a bulk: its progress, the ends of its repairs, and the number of processes that are left.

    With --watch the status is 1 unless every repair that was begun went well.
    """
    if watch:
        _watched(settings, bulk_id, machine=json)
    else:
        _show(*_ask(settings, lambda client: client.bulk(bulk_id)), machine=json)


@with_settings(ACTING)
def stop_bulk(bulk_id: BulkId, *, json: AsJson = False, settings: Settings) -> None:
    """Stop a bulk: it begins no more repairs. Those under way go on; those done stay done."""
    _show(*_ask(settings, lambda client: client.stop_bulk(bulk_id)), machine=json)


class _Args(NamedTuple):
    """The args that a bulk gives: None also if their bytes are too many to be shown."""

    value: Any = None
    size: int = 0

    @property
    def text(self) -> str:
        if self.value is None and self.size > _MOST_ARGS:
            return f"{self.size:,} bytes"
        return short(self.value, _SHORT_ARGS)


_NO_ARGS = _Args()


def _ask(settings: Settings, looks: Callable[[Client], Awaitable[Bulk]]) -> tuple[Bulk, _Args]:
    """Return the bulk that a client finds so, and its args."""

    async def look(client: Client) -> tuple[Bulk, _Args]:
        bulk = await looks(client)
        try:
            given = await client.reader.bulk_args(bulk.namespace, bulk.bulk_id, most=_MOST_ARGS)
        except (NamespaceNotFound, Undecryptable):
            # The namespace was retired since, or this client lacks the key: the bulk itself is shown.
            return bulk, _NO_ARGS
        return bulk, _Args(*given)

    return ask(settings, look, values=True)


def _show(bulk: Bulk, args: _Args, *, machine: bool) -> None:
    if machine:
        given = members_for("args", args.value) | {"args_bytes": args.size}
        print_json(plain(bulk) | given)
    else:
        stdout().print(_view(bulk, args))
        note_sealed(args.value)


def _watched(settings: Settings, bulk_id: int, *, machine: bool) -> None:
    """Watch a bulk to its end, then show it; status 1 if it was stopped, or a repair went wrong."""
    try:
        ended, args = _ask(settings, lambda client: _until_ended(client, bulk_id, quiet=machine))
    except KeyboardInterrupt:
        note(f"bulk {bulk_id} goes on: progressor bulk {bulk_id} --watch, progressor stop-bulk {bulk_id}")
        raise
    _show(ended, args, machine=machine)
    if ended.status is BulkStatus.STOPPED or ended.failed or ended.refused:
        raise typer.Exit(REFUSED)


async def _until_ended(client: Client, bulk_id: int, *, quiet: bool) -> Bulk:
    console = stderr()
    found: Bulk | None = None
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            shown: RenderableType
            try:
                found = await client.bulk(bulk_id)
                shown = _view(found)
            except StorageUnavailable:
                if found is None:
                    raise
                # A watch goes on through a fail-over.
                shown = Group(_view(found), Text("PostgreSQL is not available: looking again", "yellow"))
            else:
                if found.status.is_final:
                    return found
            if console.is_terminal and not quiet:
                live.update(shown, refresh=True)
            await asyncio.sleep(_LOOKS)


def _view(bulk: Bulk, args: _Args = _NO_ARGS) -> Table:
    table = facts_table("bold")
    for name, value in _lines(bulk, args):
        table.add_row(name, value)
    return table


def _lines(bulk: Bulk, args: _Args) -> list[tuple[str, Text]]:
    lines = [
        ("bulk", f"{bulk.bulk_id} of {bulk.namespace}, {bulk.status}"),
        ("wanted", _filter(bulk)),
        *([("args", args.text)] if args.size else []),
        ("broken before", clock(bulk.created_at)),
        ("looked at", f"{bulk.looked_at:,}, {bulk.passed_by:,} passed by"),
        ("begun", f"{bulk.begun:,}, {bulk.under_way:,} under way, at {bulk.rate:g}/s"),
        ("repaired", f"{bulk.repaired:,}"),
        ("refused", f"{bulk.refused:,}"),
        ("failed", f"{bulk.failed:,}"),
        ("removed", f"{bulk.removed:,}"),
        *([("redone", f"{bulk.redone:,}")] if bulk.redo else []),
    ]
    if bulk.status in (BulkStatus.STOPPING, BulkStatus.STOPPED):
        lines.append(("left", "what it has not begun stays broken"))
    elif bulk.left is not None:
        lines.append(("left", _left(bulk)))
    if bulk.last_error is not None:
        lines.append(("last error", short(bulk.last_error, 200)))
    if bulk.ended_at is not None:
        lines.append(("ended", clock(bulk.ended_at)))
    return [(name, Text(visible(value))) for name, value in lines]


def _left(bulk: Bulk) -> str:
    left = f"{bulk.left:,}" + (" or more" if bulk.has_more else "")
    if not bulk.left:
        return left
    return f"{left}, which takes {duration(timedelta(seconds=bulk.left / bulk.rate))} or more"


def _filter(bulk: Bulk) -> str:
    wanted = [] if bulk.detail_like is None else [f"detail like {bulk.detail_like!r}"]
    wanted += [] if bulk.handler is None else [f"broken by {bulk.handler}"]
    how = "without a handler" if bulk.simple else "by the repair handler"
    again = ", with redo" if bulk.redo else ""
    return f"{' and '.join(wanted) or 'all that are broken'}, {how}{again}"


def _list_view(found: Sequence[Bulk]) -> Listing:
    counted = ("begun", "repaired", "refused", "failed")
    listing = Listing("bulk", "namespace", "status", "wanted", "made", *counted, numbers=counted)
    for each in found:
        listing.add(
            Text(str(each.bulk_id), style="bold"),
            each.namespace,
            each.status.value,
            _filter(each),
            clock(each.created_at),
            *(f"{getattr(each, name):,}" for name in counted),
        )
    return listing
