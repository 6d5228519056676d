"""The command migrate."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from progressor.storage import migrations
from tests.cli.conftest import Ended, run

Command = Callable[..., Ended]


def test_migrate_says_from_and_to(progressor: Command, empty_dsn: str) -> None:
    env = {"PROGRESSOR_DATABASE_URL": empty_dsn}
    head = migrations.head()
    checked = progressor("migrate", "--check", **env)
    assert (checked.status, "has no progressor tables" in checked.err) == (1, True)
    assert progressor("migrate", **env).out.endswith(f": empty → {head}\n")
    assert progressor("migrate", **env).out.endswith(f": nothing to do, it is at {head}\n")
    same = progressor("migrate", "--check", "--json", **env)
    assert (same.status, same.json["from"], same.json["to"]) == (0, head, head)
    back = progressor("migrate", "--revision", "base", "--json", **env)
    assert (back.json["from"], back.json["to"]) == (head, None)


def test_unknown_revision(progressor: Command, empty_dsn: str) -> None:
    wrong = progressor("migrate", "--revision", "x", PROGRESSOR_DATABASE_URL=empty_dsn)
    assert (wrong.status, "revision must be" in wrong.err) == (1, True)


def test_sql_makes_the_schema_of_this_release(empty_dsn: str) -> None:
    """What is printed is SQL and nothing else, and it needs no database."""
    printed = run("migrate", "--sql", PROGRESSOR_DATABASE_URL="postgresql://nobody@127.0.0.1:1/nowhere")
    assert printed.status == 0, printed.err
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(printed.out.encode())
    assert run("migrate", "--check", PROGRESSOR_DATABASE_URL=empty_dsn).status == 0
