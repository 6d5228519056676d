"""The command audit: what operators did, when, from where and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from progressor.acts import MOST_ENTRIES, AuditEntry, Way
from progressor.cli.options import ASKING, AsJson, with_settings
from progressor.cli.output import clock, note, print_json, stdout
from progressor.cli.question import ask
from progressor.cli.tables import Listing
from progressor.cli.values import read_since
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.http.wire.models import plain
from progressor.texts import visible


@with_settings(ASKING)
def audit(
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="Only this namespace.")
    ] = None,
    *,
    process_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only processes of this id.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only since this time (ISO 8601), or within this duration (PT1H, 3600)."),
    ] = None,
    verb: Annotated[
        str | None, typer.Option("--verb", metavar="VERB", help="Only this verb: pause, repair, remove, …")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most entries to show.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after the page that returned this cursor.")
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List what operators did, newest first: who, when, from where and why.

    With --json it prints an object on each line. `progressor audit billing.subscription --since PT1H`
    """
    begin = read_since(since)

    async def look(client: Client) -> tuple[list[AuditEntry], str | None]:
        found: list[AuditEntry] = []
        following = cursor
        while True:
            size = min(limit - len(found), MOST_ENTRIES)
            page = await client.audit(
                namespace, process_id=process_id, verb=verb, since=begin, limit=size, cursor=following
            )
            found += page.entries
            following = page.cursor
            if following is None or len(found) >= limit:
                return found, following

    entries, following = ask(settings, look)
    if json:
        for each in entries:
            print_json(plain(each))
    elif entries:
        stdout().print(_listing(entries))
    else:
        note("no operator did anything that was noted")
    if following is not None:
        note(f"there are more: --cursor {following}")


def _listing(entries: Sequence[AuditEntry]) -> Listing:
    listing = Listing("WHEN", "WHO", "VERB", "WHAT", "WHY", "FROM")
    for each in entries:
        listing.add(
            clock(each.acted_at),
            Text(visible(each.actor), style="bold"),
            each.verb,
            _what(each),
            each.reason or "",
            _place(each),
        )
    return listing


def _what(entry: AuditEntry) -> str:
    address = "/".join(filter(None, (entry.namespace, entry.process_id)))
    subject = ": ".join(filter(None, (entry.subject, entry.detail)))
    return " ".join(filter(None, (address, subject)))


def _place(entry: AuditEntry) -> str:
    """Return where an operator was: as the caller says, else the address that PostgreSQL saw."""
    place = entry.origin or entry.address or ""
    return place if entry.way == Way.PYTHON else " ".join(filter(None, (entry.way, place)))
