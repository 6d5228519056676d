"""Sequences behind the numbers in the tables, as a copy of rows alone leaves them: noticed, and lifted."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from progressor.errors import SchemaMismatch, StorageUnavailable
from progressor.storage import migrations, table_locks
from progressor.storage.doctor import examine
from progressor.storage.migrations import Lifted
from progressor.storage.operations import Storage
from tests.support import NS, SECOND, Tables, events, hold, init, resume, set_timer, start

# Each with a number in its table: of messages, the feed and bulks there is none here.
_USED = ("processes_process_no_seq", "tasks_task_id_seq", "namespaces_namespace_no_seq")


@pytest.fixture
async def copied(dsn: str, storage: Storage, tables: Tables) -> dict[str, int]:
    """A database as a copy of rows alone is, and where its sequences were."""
    for place in range(3):
        await start(storage, f"p{place}", set_timer(60 * SECOND, events=events(1)))
    rows = tables.execute(
        "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'progressor'"
    )
    for row in rows:
        tables.execute("SELECT setval(%s, 1, FALSE)", f"progressor.{row['sequencename']}")
    return {row["sequencename"]: row["last_value"] for row in rows}


def test_nothing_starts_before_they_are_lifted(dsn: str, copied: dict[str, int]) -> None:
    """The error says what is wrong and what to do; lifted, all is as before the copy."""
    behind = (
        "sequence namespaces_namespace_no_seq is at 0, but 1 is used: .* `progressor migrate --sequences`$"
    )
    with pytest.raises(SchemaMismatch, match=behind):
        migrations.check(dsn)
    assert migrations.upgrade(dsn) == (migrations.head(), migrations.head())
    found = {each.name for each in examine(dsn).invariants if not each.holds}
    assert found == {"sequences_lead", "numbers_were_given"}
    # To see where an unused one is, the check has drawn a number of each.
    lifted = migrations.lift_sequences(dsn)
    behind = ("processes_process_no_seq", "tasks_task_id_seq")
    assert lifted == [Lifted(name, 1, copied[name]) for name in behind]
    assert migrations.lift_sequences(dsn) == []
    assert migrations.check(dsn) == migrations.head()
    assert examine(dsn).is_clean


async def test_numbers_are_new_again(copied: dict[str, int], dsn: str, storage: Storage) -> None:
    """Processes and tasks that begin after the lift have the numbers behind all others."""
    migrations.lift_sequences(dsn)
    new = await hold(storage, init("new"))
    assert (new.process.process_no, new.task.task_id) == (4, copied["tasks_task_id_seq"] + 1)


async def test_what_is_gone_counts_too(dsn: str, storage: Storage, tables: Tables) -> None:
    """Nothing starts where the number of a removed process would be given again."""
    for name in ("p1", "p2"):
        await start(storage, name, resume())
    await storage.remove(NS, "p2")
    tables.execute("SELECT setval('processes_process_no_seq', 1, FALSE)")
    with pytest.raises(SchemaMismatch, match="sequence processes_process_no_seq is at 0, but 2 is used"):
        migrations.check(dsn)
    assert Lifted("processes_process_no_seq", 1, 2) in migrations.lift_sequences(dsn)


def test_what_readers_of_the_feed_know_counts_too(dsn: str, tables: Tables) -> None:
    """Of a process that is gone, its rows in the feed are the last."""
    tables.execute(
        "INSERT INTO feed (appended_at, namespace, kinds, process_nos, process_ids, task_ids, "
        "last_event_ids, event_counts) VALUES (now(), %s, 'r', '{17}', '{p1}', '{4711}', '{0}', '{0}')",
        NS,
    )
    found = {each.name for each in examine(dsn).invariants if not each.holds}
    assert found == {"numbers_were_given"}
    assert migrations.lift_sequences(dsn) == [
        Lifted("processes_process_no_seq", 0, 17),
        Lifted("tasks_task_id_seq", 0, 4711),
    ]


def test_a_sequence_that_is_ahead_stays(dsn: str, copied: dict[str, int], tables: Tables) -> None:
    """Numbers that were drawn for nothing are not given again either."""
    tables.execute("SELECT setval('tasks_task_id_seq', 4711)")
    names = {each.sequence for each in migrations.lift_sequences(dsn)}
    assert names == {*_USED} - {"tasks_task_id_seq"}
    assert tables.execute("SELECT last_value FROM tasks_task_id_seq") == [{"last_value": 4711}]


def test_a_sequence_that_was_set_ahead_and_not_used(dsn: str, tables: Tables) -> None:
    """As `ALTER SEQUENCE … RESTART` leaves it: it is ahead, everything starts, and it is not set back."""
    tables.execute("INSERT INTO namespaces OVERRIDING SYSTEM VALUE VALUES (7, 'billing', FALSE, '{}')")
    tables.execute("ALTER SEQUENCE namespaces_namespace_no_seq RESTART WITH 4711")
    assert migrations.check(dsn) == migrations.head()
    tables.execute("ALTER SEQUENCE namespaces_namespace_no_seq RESTART WITH 4711")
    assert migrations.lift_sequences(dsn) == []
    assert tables.execute("SELECT nextval('namespaces_namespace_no_seq') AS next") == [{"next": 4712}]


async def test_the_least_rights_are_enough(dsn: str, copied: dict[str, int], tables: Tables) -> None:
    """Who may draw numbers of processes and tasks alone is refused as well."""
    role = f"prg_test_{uuid4().hex[:12]}"
    tables.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")  # type: ignore[arg-type]
    try:
        for right in (
            "USAGE ON SCHEMA progressor",
            "SELECT ON ALL TABLES IN SCHEMA progressor",
            "USAGE ON SEQUENCE processes_process_no_seq, tasks_task_id_seq",
        ):
            tables.execute(f"GRANT {right} TO {role}")  # type: ignore[arg-type]
        tables.execute("SELECT setval('namespaces_namespace_no_seq', 17)")
        with pytest.raises(
            SchemaMismatch, match="sequence processes_process_no_seq is at 0, but 3 is used"
        ):
            migrations.check(make_conninfo(dsn, user=role, password="x"))
    finally:
        migrations.lift_sequences(dsn)
        tables.execute(f"DROP OWNED BY {role} CASCADE")  # type: ignore[arg-type]
        tables.execute(f"DROP ROLE {role}")  # type: ignore[arg-type]


def test_lifted_while_nobody_works(
    dsn: str, copied: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others hold the tables nothing is lifted: they may draw numbers."""
    monkeypatch.setattr(table_locks, "_LOCK_TIMEOUT", "200ms")
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM progressor.processes")
        with pytest.raises(StorageUnavailable, match="others hold the tables"):
            migrations.lift_sequences(dsn, patience=timedelta())
    assert len(migrations.lift_sequences(dsn)) == len(_USED)


def test_in_another_schema(empty_dsn: str) -> None:
    """The sequences of the schema that is named, and of no other."""
    for schema in ("progressor", "Other one"):
        migrations.upgrade(empty_dsn, schema=schema)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        for schema in ("progressor", "Other one"):
            connection.execute(
                f'INSERT INTO "{schema}".namespaces OVERRIDING SYSTEM VALUE '
                "VALUES (7, 'billing', FALSE, '{}')".encode()
            )
    assert migrations.lift_sequences(empty_dsn, schema="Other one") == [
        Lifted("namespaces_namespace_no_seq", 0, 7)
    ]
    assert len(migrations.lift_sequences(empty_dsn)) == 1


def test_a_database_of_another_release(empty_dsn: str) -> None:
    """Its tables are not those that this release knows."""
    migrations.upgrade(empty_dsn, "0019")
    with pytest.raises(SchemaMismatch, match="is at revision 0019"):
        migrations.lift_sequences(empty_dsn)
