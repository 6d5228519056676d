"""The command that looks after a database: migrate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from progressor.cli.failures import REFUSED
from progressor.cli.options import ASKING, AsJson, Embedded, Yes, confirm, refuse_to_guess, with_settings
from progressor.cli.output import print_json, stdout
from progressor.cli.values import read_delay
from progressor.deployment import logs
from progressor.deployment.database import Database, database
from progressor.deployment.settings import Settings
from progressor.storage import Difference, migrations
from progressor.texts import number_of


@with_settings(ASKING)
def migrate(
    *,
    revision: Annotated[
        str,
        typer.Option(
            help="head, base, or a revision; a downgrade drops the data of newer revisions, and asks first."
        ),
    ] = "head",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing; exit with 1 unless the schema is that of this release."
        ),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database; needs no database.")
    ] = False,
    sequences: Annotated[
        bool,
        typer.Option(
            "--sequences",
            help="After a copy by logical replication: set each sequence that is behind the numbers in the "
            "tables to the highest of them, and change nothing else.",
        ),
    ] = False,
    wait: Annotated[
        str,
        typer.Option(help="Time for further tries while others hold the tables: 10m, seconds, ISO 8601."),
    ] = "10m",
    yes: Yes = False,
    embedded: Embedded = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Bring the database's schema to the one of this release; safe to run from many places at once.

    All work on the tables waits for it, and it waits three seconds for those who hold them. Then it says
    who that is, and tries again after a pause.
    """
    tries = read_delay(wait, "--wait") or timedelta()
    if sql:
        if check or sequences or revision != "head":
            raise typer.BadParameter(
                "it is the SQL of this release for an empty database: leave out --check, --sequences and "
                "--revision",
                param_hint="--sql",
            )
        typer.echo(migrations.sql(schema=settings.database_schema), nl=False)
        return
    if sequences and (check or revision != "head"):
        raise typer.BadParameter(
            "it changes no table: leave out --check and --revision", param_hint="--sequences"
        )
    refuse_to_guess(settings, embedded=embedded)
    logs.set_up(level=settings.log_level, form=settings.log_format)
    with database(settings) as found:
        schema = settings.database_schema
        if sequences:
            _show_lifted(
                found, migrations.lift_sequences(found.dsn, schema=schema, patience=tries), json=json
            )
            return
        before: str | None
        after: str | None
        if check:
            before = after = migrations.check(found.dsn, schema=schema)
        else:
            _ask_before_going_down(found, revision, settings, yes=yes)
            before, after = migrations.upgrade(found.dsn, revision, schema=schema, patience=tries)
        # An older revision is there on purpose, and its tables are not known here. A newer one is compared
        # for what this release needs of it.
        compared = after is not None and revision in ("head", migrations.head())
        differences = migrations.compare(found.dsn, schema=schema) if compared else ()
    _show(found, before, after, differences, json=json)
    if any(not each.is_tuning for each in differences):
        raise typer.Exit(REFUSED)


def _show_lifted(found: Database, lifted: Sequence[migrations.Lifted], *, json: bool) -> None:
    if json:
        print_json({"database": found.shown, "sequences": [each._asdict() for each in lifted]})
        return
    if not lifted:
        stdout().print(f"{found.shown}: nothing to do, no sequence is behind", soft_wrap=True)
    for each in lifted:
        stdout().print(f"{found.shown}: {each.sequence} {each.before:,} → {each.after:,}", soft_wrap=True)


def _show(
    found: Database, before: str | None, after: str | None, differences: Sequence[Difference], *, json: bool
) -> None:
    if json:
        listed = [each._asdict() | {"is_tuning": each.is_tuning} for each in differences]
        report = {"from": before, "to": after, "database": found.shown, "differences": listed}
        print_json(report)
        return
    if before == after:
        stdout().print(f"{found.shown}: nothing to do, it is at {after}", soft_wrap=True)
    else:
        stdout().print(f"{found.shown}: {before or 'empty'} → {after or 'empty'}", soft_wrap=True)
    for each in differences:
        if each.is_tuning:
            stdout().print(f"  tuned: {each}", soft_wrap=True)
        else:
            stdout().print(f"  DIFFERS: {each}", soft_wrap=True)
            stdout().print(f"    wanted: {each.wanted or each.kind}", soft_wrap=True)


def _ask_before_going_down(found: Database, revision: str, settings: Settings, *, yes: bool) -> None:
    schema = settings.database_schema
    down = migrations.descent(found.dsn, revision, schema=schema)
    if down is None:
        return
    loses = "all tables and" if revision == "base" else "what the revisions above it hold of"
    lost = ", ".join(f"{what} ({count:,})" for count, what in down.drops)
    confirm(
        f"Going down from {down.before} to {revision} drops {loses} {number_of(down.processes, 'process')} "
        f"in schema {schema} of {found.shown}{lost and f', and with it: {lost}'}. Go on?",
        yes=yes,
    )
