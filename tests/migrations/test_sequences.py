"""Sequences behind the numbers in the tables, as a copy of rows alone leaves them: noticed, and lifted."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

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
    lifted = migrations.lift_sequences(dsn)
    assert lifted == [Lifted(name, 0, copied[name]) for name in sorted(_USED)]
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
    await start(storage, "p1", resume())
    await storage.remove(NS, "p1")
    tables.execute("SELECT setval('processes_process_no_seq', 1, FALSE)")
    with pytest.raises(SchemaMismatch, match="sequence processes_process_no_seq is at 0, but 1 is used"):
        migrations.check(dsn)
    assert Lifted("processes_process_no_seq", 0, 1) in migrations.lift_sequences(dsn)


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
