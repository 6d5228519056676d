"""The commands of the archive: list and verify its parts, and remove processes from them.

Rule: they need no database. What one removes is gone from every part that can be read; one that cannot is
named, and the status is 1.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from progressor.archive.archive import Archive, Found, Manifest
from progressor.cli.options import AsJson, NamespaceName, Yes, confirm, with_settings
from progressor.cli.output import clock, note, print_json, stderr, stdout, warning
from progressor.cli.tables import Listing
from progressor.deployment.settings import Settings
from progressor.errors import ArchiveDamaged, ArchiveUnavailable, InvalidRequest
from progressor.http.wire.models import plain
from progressor.texts import number_of, visible

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What retention has deleted: the parts of the archive at PROGRESSOR_ARCHIVE.",
    epilog="progressor archive verify billing.subscription",
)

Where = Annotated[str | None, typer.Option("--archive", metavar="PLACE", help="A directory or a URL.")]

# A part that is damaged, or that the disk or the store does not give or take.
_UNREAD = (ArchiveDamaged, ArchiveUnavailable, InvalidRequest)


def _archive(where: str | None, settings: Settings) -> Archive:
    if where is None and settings.archive is None:
        raise InvalidRequest("name the archive: --archive, or PROGRESSOR_ARCHIVE", field="archive")
    return Archive(where or (settings.archive.get_secret_value() if settings.archive else ""))


def _parts(archive: Archive, namespace: str) -> list[tuple[str, Manifest]]:
    with archive.reached(namespace):
        return list(archive.parts(namespace))


@app.command("list")
@with_settings({})
def list_(namespace: NamespaceName, *, at: Where = None, json: AsJson = False, settings: Settings) -> None:
    """List the parts of a namespace, oldest first: when each was written, and what it has."""
    listing = Listing("part", "written", "tasks", "events", "KiB")
    for name, manifest in _parts(_archive(at, settings), namespace):
        if json:
            print_json({"part": name, **plain(manifest.model_dump())})
            continue
        counts = f"{manifest.tasks:,}", f"{manifest.events:,}", f"{manifest.size / 1024:,.0f}"
        listing.add(name, clock(manifest.made_at), *counts)
    if not json:
        stdout().print(listing)


@app.command()
@with_settings({})
def verify(namespace: NamespaceName, *, at: Where = None, settings: Settings) -> None:
    """Read all parts of a namespace, and check them against their manifests.

    Exit status 1 if one is damaged, or if there is none.
    """
    parts = records = damaged = 0
    archive = _archive(at, settings)
    for name, manifest in _parts(archive, namespace):
        parts += 1
        try:
            with archive.reached(namespace):
                records += sum(1 for _ in archive.records(name, manifest))
        except _UNREAD as error:
            damaged += 1
            warning(f"{name}: {error}")
    note(f"{number_of(parts, 'part')} with {number_of(records, 'line')}, {damaged:,} damaged")
    if damaged or not parts:
        raise typer.Exit(1)


@app.command()
@with_settings({})
def remove(
    namespace: NamespaceName,
    process_ids: Annotated[list[str] | None, typer.Argument(metavar="[PROCESS_ID]...")] = None,
    *,
    receipt: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The receipt of `progressor remove --json`, whose processes these are; - for stdin.",
        ),
    ] = None,
    at: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Yes = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Remove processes from all parts of a namespace: each part that has one is written anew. Asks first.

    `progressor archive remove billing.subscription --receipt receipt.ndjson`

    Remove them from the database first, else the next walk archives what it still has of them. A command
    that was stopped can be repeated. Exit status 1 if a part is damaged: it stays as it is.
    """
    wanted = {*(process_ids or ()), *_of_receipt(receipt, namespace)}
    if not wanted:
        raise typer.BadParameter("name processes, or a --receipt of them", param_hint="PROCESS_ID")
    archive = _archive(at, settings)
    if not dry_run:
        confirm(
            f"Remove {number_of(len(wanted), 'process')} of {visible(namespace)} from the archive?", yes=yes
        )
    found, parts, damaged = _go_through(
        archive, namespace, archive.count if dry_run else archive.remove, wanted
    )
    if json:
        for process_id in sorted(wanted):
            gone = {"namespace": namespace, "process_id": process_id, "records": found[process_id]}
            print_json(gone)
    verb = "would be removed" if dry_run else "removed"
    many = sum(map(bool, found.values()))
    records, processes = number_of(found.total(), "record"), number_of(many, "process")
    note(f"{verb}: {records} of {processes}, from {number_of(parts, 'part')}")
    with archive.reached(namespace):
        strays = list(archive.strays(namespace))
    for name in strays:
        warning(f"{name} has no manifest and was not read: if no walk is writing it, remove it")
    if damaged:
        raise typer.Exit(1)


def _go_through(
    archive: Archive,
    namespace: str,
    act: Callable[[str, Manifest, Collection[str]], Found],
    wanted: Collection[str],
) -> tuple[Found, int, int]:
    """Do this with each part; return the records by process, in how many parts, and the damaged parts."""
    found, parts, damaged = Counter[str](), 0, 0
    # All at first: parts that are written meanwhile have none of them.
    all_parts = _parts(archive, namespace)
    console = stderr()
    for name, manifest in track(
        all_parts, "parts", console=console, transient=True, disable=not console.is_terminal
    ):
        try:
            with archive.reached(namespace):
                of_part = act(name, manifest, wanted)
        except _UNREAD as error:
            damaged += 1
            warning(f"{name}: {error}")
        else:
            parts += bool(of_part)
            found.update(of_part)
    return found, parts, damaged


def _of_receipt(receipt: str | None, namespace: str) -> Iterator[str]:
    """Yield the ids of the processes of a namespace in a receipt; BadParameter if it is none."""
    if receipt is None:
        return
    try:
        text = sys.stdin.read() if receipt == "-" else Path(receipt).read_text(encoding="utf-8")
        lines: list[Any] = [json.loads(line) for line in text.splitlines()]
        yield from [
            each["process_id"]
            for each in lines
            # What was not removed has no time of it.
            if each["namespace"] == namespace and each.get("removed_at", True)
        ]
    except OSError as error:
        raise typer.BadParameter(f"it cannot be read: {error}", param_hint="--receipt") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise typer.BadParameter(
            "it is no receipt: lines of JSON with namespace and process_id, as `progressor remove --json` "
            "prints them",
            param_hint="--receipt",
        ) from None
