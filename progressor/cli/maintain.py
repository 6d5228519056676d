"""The commands that look after a database: migrate."""

from __future__ import annotations

from typing import Annotated

import typer

from progressor.cli.options import ASKING, AsJson, Embedded, Yes, confirm, refuse_to_guess, with_settings
from progressor.cli.output import print_json, stdout
from progressor.deployment import logs
from progressor.deployment.database import Database, database
from progressor.deployment.settings import Settings
from progressor.storage import migrations


@with_settings(ASKING)
def migrate(
    *,
    revision: Annotated[
        str,
        typer.Option(
            help="head, base, or a revision; going down drops what newer ones hold, and asks first."
        ),
    ] = "head",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing; status 1 unless this release can work with the schema."
        ),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database, and need none.")
    ] = False,
    yes: Yes = False,
    embedded: Embedded = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Bring the database's schema to the one of this release; safe to run from many places at once."""
    if sql:
        typer.echo(migrations.sql(schema=settings.database_schema), nl=False)
        return
    refuse_to_guess(settings, embedded=embedded)
    logs.set_up(level=settings.log_level, form=settings.log_format)
    with database(settings) as found:
        schema = settings.database_schema
        before: str | None
        after: str | None
        if check:
            before = after = migrations.check(found.dsn, schema=schema)
        else:
            _ask_before_going_down(found, revision, settings, yes=yes)
            before, after = migrations.upgrade(found.dsn, revision, schema=schema)
    if json:
        print_json({"from": before, "to": after, "database": found.shown}, machine=True)
    elif before == after:
        stdout().print(f"{found.shown}: nothing to do, it is at {after}", soft_wrap=True)
    else:
        stdout().print(f"{found.shown}: {before or 'empty'} → {after or 'empty'}", soft_wrap=True)


def _ask_before_going_down(found: Database, revision: str, settings: Settings, *, yes: bool) -> None:
    schema = settings.database_schema
    down = migrations.descent(found.dsn, revision, schema=schema)
    if down is not None:
        loses = "all tables and" if revision == "base" else "what the revisions above it hold of"
        confirm(
            f"Going down from {down.before} to {revision} drops {loses} {down.processes:,} processes "
            f"in schema {schema} of {found.shown}. Go on?",
            yes=yes,
        )
