"""The command that writes stored values anew with the active key of their namespace's codec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from progressor.acts import AuditVerb
from progressor.cli.apps import OneNamespace, chosen, load, name_of
from progressor.cli.options import ACTING, OF_APP, AsJson, with_settings
from progressor.cli.output import note, print_json, stderr, stdout
from progressor.cli.question import log_warnings, run_here
from progressor.config import ConnectionOptions
from progressor.deployment.settings import Settings
from progressor.node.node import Node
from progressor.schedules import SCHEDULES
from progressor.services.reencoder import KeyShare, Reencoded, Reencoder
from progressor.texts import number_of

_LEFT = 1


@with_settings({**OF_APP, **ACTING})
def reencode(
    *,
    namespace: OneNamespace = None,
    rate: Annotated[
        float, typer.Option(min=1, help="The most values that are written in a second.")
    ] = 1000.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the values by key, and write nothing.")
    ] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Write stored values anew with the active key of APP's keyrings: encrypted with another, or plain.

    It runs beside workers, and may be stopped and begun again at any time: what is done is only read.

    Exit status 0 if all is of the active key, 1 if values are left: run it again, or see the log.
    """
    namespaces = load(name_of(settings)).namespaces
    names = [each.name for each in chosen(namespaces, namespace)]
    log_warnings(settings)

    async def run(dsn: str) -> tuple[Reencoded, list[str]]:
        # It waits for no replies, so it needs no signals.
        without = {"signals": False, "listen_database_url": None}
        options = ConnectionOptions(**{**settings.connection_options(), **without})
        node = Node(dsn, options, ring=lambda *_: None)
        with stderr().status("") as shown:

            def progress(so_far: Reencoded) -> None:
                shown.update(_line(so_far))

            made = Reencoder(
                node.storage,
                namespaces,
                chosen=names,
                rate=None if dry_run else rate,
                progress=progress,
                act=lambda: node.act(AuditVerb.REENCODE),
            )
            try:
                storage = await node.connected()
                known = await storage.namespace_names()
                others = sorted(set(known) - {SCHEDULES, *(each.name for each in namespaces)})
                return await (made.count() if dry_run else made.run()), others
            finally:
                await node.stop()

    stays = "what is written stays written; the same command goes on with what is left"
    result, others = run_here(settings, run, interrupted=stays)
    if others and namespace is None:
        note(f"not looked at, because {name_of(settings)} does not have them: {', '.join(others)}")
    if json:
        print_json(_document(result, dry_run=dry_run) | {"not_looked_at": others})
    else:
        stdout().print(_view(result, dry_run=dry_run))
    if not dry_run and not result.is_whole:
        raise typer.Exit(_LEFT)


def _line(so_far: Reencoded) -> str:
    read = sum(share.values for share in so_far.found.values())
    return f"{so_far.table}: {number_of(read, 'value')} read, {so_far.written.values:,} written"


def _document(result: Reencoded, *, dry_run: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"found": _shares(result.found.values())}
    if not dry_run:
        written = asdict(result.written)
        del written["key"]
        document |= {
            "written": written,
            "unreadable": _shares(result.unreadable.values()),
            "left": result.left,
            "whole": result.is_whole,
        }
    return document


def _shares(shares: Iterable[KeyShare]) -> list[dict[str, Any]]:
    return [asdict(each) for each in sorted(shares, key=lambda each: each.key)]


def _view(result: Reencoded, *, dry_run: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    for share in sorted(result.found.values(), key=lambda each: each.key):
        table.add_row(f"found {share.key}", *_numbers(share))
    if dry_run:
        return table
    table.add_row("written", *_numbers(result.written))
    for share in sorted(result.unreadable.values(), key=lambda each: each.key):
        table.add_row(f"not readable: {share.key}", *_numbers(share), style="red")
    if result.left:
        table.add_row("left, because others held them", number_of(result.left, "row"), "", style="red")
    return table


def _numbers(share: KeyShare) -> tuple[str, str]:
    return number_of(share.values, "value"), number_of(share.bytes, "byte")
