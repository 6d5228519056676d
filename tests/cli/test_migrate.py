"""The command migrate."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from progressor.cli import options
from progressor.storage import migrations
from tests.cli.conftest import Ended, run
from tests.conftest import Databases
from tests.support import Tables

Command = Callable[..., Ended]


def test_migrate_says_from_and_to(progressor: Command, empty_dsn: str) -> None:
    """And that there is nothing to do when it is repeated; a check changes nothing."""
    env = {"PROGRESSOR_DATABASE_URL": empty_dsn}
    head = migrations.head()
    checked = progressor("migrate", "--check", **env)
    assert (checked.status, "has no progressor tables" in checked.err) == (1, True)
    assert progressor("migrate", **env).out.endswith(f": empty → {head}\n")
    assert progressor("migrate", **env).out.endswith(f": nothing to do, it is at {head}\n")
    same = progressor("migrate", "--check", "--json", **env)
    assert (same.status, same.json["from"], same.json["to"]) == (0, head, head)


def test_sequences_are_lifted(progressor: Command, dsn: str, tables: Tables) -> None:
    """What was behind is shown, once; with an option that changes tables it is refused."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "COLUMNS": "300"}
    lift = ("migrate", "--sequences")
    for option in (("--check",), ("--revision", "0021"), ("--sql",)):
        assert progressor(*lift, *option, **env).status == 2
    tables.execute("INSERT INTO groups OVERRIDING SYSTEM VALUE VALUES (4711, 1, 'a', 5)")
    lifted = progressor(*lift, **env)
    assert (lifted.status, lifted.out.endswith(": groups_group_no_seq 0 → 4,711\n")) == (0, True)
    assert progressor(*lift, **env).out.endswith(": nothing to do, no sequence is behind\n")
    tables.execute("SELECT setval('groups_group_no_seq', 4000)")
    listed = progressor(*lift, "--json", **env).json["sequences"]
    assert listed == [{"sequence": "groups_group_no_seq", "before": 4000, "after": 4711}]


def test_going_down_asks_first(
    progressor: Command, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what would be lost; without a terminal it needs --yes. Nothing is dropped without."""
    env = {"PROGRESSOR_DATABASE_URL": empty_dsn, "COLUMNS": "300"}
    head = migrations.head()
    down = ("migrate", "--revision", "base")
    assert progressor("migrate", **env).status == 0
    unasked = progressor(*down, **env)
    assert (unasked.status, "there is no terminal to ask in" in unasked.err) == (2, True)
    monkeypatch.setattr(options, "_is_terminal", lambda: True)
    refused = progressor(*down, stdin="n\n", **env)
    assert refused.status == 1
    assert f"from {head} to base drops all tables and 0 processes in schema progressor" in refused.err
    assert progressor("migrate", "--check", **env).status == 0
    assert progressor(*down, stdin="y\n", **env).status == 0
    assert progressor(*down, **env).out.endswith(": nothing to do, it is at None\n")
    assert progressor("migrate", **env).status == 0
    back = progressor(*down, "--yes", "--json", **env)
    assert (back.json["from"], back.json["to"]) == (head, None)


@pytest.mark.parametrize("command", [["migrate"], ["status"], ["doctor"], ["scanner"]])
def test_a_database_that_does_not_exist(
    progressor: Command, databases: Databases, command: list[str]
) -> None:
    """The command that makes it is named; to repeat this one would not help."""
    missing = progressor(*command, PROGRESSOR_DATABASE_URL=databases.dsn("no_such"), COLUMNS="300")
    # Of the doctor 1 says that something was found.
    assert missing.status == (2 if command == ["doctor"] else 1)
    assert "the database 'no_such' does not exist on " in missing.err
    assert "(`createdb no_such`) and run `progressor migrate`" in missing.err


@pytest.mark.parametrize("command", [["migrate"], ["worker", "shop"], ["scanner"], ["zombie-collector"]])
def test_what_is_deployed_does_not_guess_its_database(progressor: Command, command: list[str]) -> None:
    """A forgotten URL is an error, not an empty database on this machine."""
    forgotten = progressor(*command, PROGRESSOR_DATABSE_URL="postgresql://db/billing", COLUMNS="300")
    assert forgotten.status == 2
    assert "set PROGRESSOR_DATABASE_URL, or say --embedded" in forgotten.err
    assert "did you mean PROGRESSOR_DATABASE_URL?" in forgotten.err
    both = progressor(
        *command, "--embedded", PROGRESSOR_DATABASE_URL="postgresql://db/billing", COLUMNS="300"
    )
    assert (both.status, "give one of both" in both.err) == (2, True)


def test_unknown_revision(progressor: Command, empty_dsn: str) -> None:
    """Is a usage error."""
    wrong = progressor("migrate", "--revision", "x", PROGRESSOR_DATABASE_URL=empty_dsn)
    assert (wrong.status, "revision must be" in wrong.err) == (2, True)


def test_sql_makes_the_schema_of_this_release(empty_dsn: str) -> None:
    """What is printed is SQL and nothing else, and it needs no database."""
    printed = run("migrate", "--sql", PROGRESSOR_DATABASE_URL="postgresql://nobody@127.0.0.1:1/nowhere")
    assert printed.status == 0, printed.err
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(printed.out.encode())
    assert run("migrate", "--check", PROGRESSOR_DATABASE_URL=empty_dsn).status == 0


@pytest.mark.parametrize("more", [("--check",), ("--revision", "0012")])
def test_sql_is_of_this_release_alone(progressor: Command, more: tuple[str, ...]) -> None:
    """What it would not heed is refused."""
    refused = progressor("migrate", "--sql", *more)
    assert (refused.status, "leave out --check, --sequences and --revision" in refused.err) == (2, True)


def test_a_way_down_names_what_goes(progressor: Command, dsn: str) -> None:
    """In the question."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "COLUMNS": "500"}
    assert progressor("token", "create", "web", "--scope", "all", "-n", "*", **env).status == 0
    asked = progressor("migrate", "--revision", "0001", **env)
    assert asked.status == 2
    assert ", and with it: tokens (1), entries of the audit (1). Go on?" in asked.err


def test_what_differs_is_listed(progressor: Command, dsn: str) -> None:
    """Though the revision is the newest: with status 1, but for what an operator may have tuned."""
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE progressor.tasks SET (fillfactor = 80)")
    for asked in (("migrate", "--check"), ("migrate",)):
        tuned = progressor(*asked, **env)
        assert (tuned.status, tuned.err) == (0, "")
        assert "\n  tuned: storage parameter tasks.fillfactor is 80, not 50\n" in tuned.out
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP INDEX progressor.schedule_calls")
    for asked in (("migrate", "--check"), ("migrate",)):
        differs = progressor(*asked, **env)
        assert differs.status == 1
        assert "\n  DIFFERS: index schedule_calls is missing\n" in differs.out
        assert "\n    wanted: CREATE INDEX schedule_calls ON schedule USING btree" in differs.out
    listed = progressor("migrate", "--check", "--json", **env).json["differences"]
    assert [(each["name"], each["is_tuning"]) for each in listed] == [
        ("schedule_calls", False), ("tasks.fillfactor", True),
    ]  # fmt: skip
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE progressor.bulks DROP COLUMN still_since")
    missing = progressor("migrate", "--check", **env)
    assert (missing.status, "column bulks.still_since is missing" in missing.err) == (1, True)
