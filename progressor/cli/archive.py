"""The commands of the archive: list and verify its parts. They need no database."""

from __future__ import annotations

from typing import Annotated

import typer

from progressor.archive.archive import Archive
from progressor.cli.options import AsJson, NamespaceName, with_settings
from progressor.cli.output import clock, note, print_json, stdout, warning
from progressor.cli.tables import Listing
from progressor.deployment.settings import Settings
from progressor.errors import ArchiveDamaged, InvalidRequest
from progressor.http.wire.models import plain

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What retention has deleted: the parts of the archive at PROGRESSOR_ARCHIVE.",
    epilog="progressor archive verify billing.subscription",
)

Where = Annotated[
    str | None,
    typer.Option("--archive", metavar="PLACE", show_default=False, help="A directory or a URL."),
]


def _archive(where: str | None, settings: Settings) -> Archive:
    if where is None and settings.archive is None:
        raise InvalidRequest("name the archive: --archive, or PROGRESSOR_ARCHIVE", field="archive")
    return Archive(where or (settings.archive.get_secret_value() if settings.archive else ""))


@app.command("list")
@with_settings({})
def list_(
    namespace: NamespaceName,
    *,
    at: Where = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List the parts of a namespace, oldest first: when each was written, and what it has."""
    listing = Listing("part", "written", "tasks", "events", "KiB")
    for name, manifest in _archive(at, settings).parts(namespace):
        if json:
            print_json({"part": name, **plain(manifest.model_dump())}, machine=True)
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
    for name, manifest in archive.parts(namespace):
        parts += 1
        try:
            records += sum(1 for _ in archive.records(name, manifest))
        except (ArchiveDamaged, InvalidRequest) as error:
            damaged += 1
            warning(f"{name}: {error}")
    note(f"{parts:,} parts with {records:,} lines, {damaged:,} damaged")
    if damaged or not parts:
        raise typer.Exit(1)
