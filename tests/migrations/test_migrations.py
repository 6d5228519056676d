"""The migrations lead to the schema, from anywhere, whoever runs them and however often."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from alembic import autogenerate
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from progressor import SetTimer
from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable
from progressor.storage import migrations, schema_check
from progressor.storage.columns import process_status, task_status, task_type
from progressor.storage.operations import Storage
from progressor.storage.schema import metadata
from tests.support import NS, SECOND, change_timers, hold, init, save

_CATALOG = """
SELECT c.relname, c.relkind::text, c.reloptions::text, d.definition
FROM pg_class AS c
LEFT JOIN LATERAL (
    SELECT string_agg(
        concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attidentity, l.collname, pg_get_expr(f.adbin, f.adrelid)),
        ', ' ORDER BY a.attnum
    ) AS definition
    FROM pg_attribute AS a
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0
) AS d ON TRUE
WHERE c.relnamespace = to_regnamespace('progressor')
UNION ALL
SELECT conname, 'constraint', NULL, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = to_regnamespace('progressor')
UNION ALL
SELECT indexname, 'index', NULL, indexdef FROM pg_indexes WHERE schemaname = 'progressor'
UNION ALL
SELECT t.typname, 'enum', NULL, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
FROM pg_type AS t JOIN pg_enum AS e ON e.enumtypid = t.oid
WHERE t.typnamespace = to_regnamespace('progressor')
GROUP BY t.typname
UNION ALL
SELECT viewname, 'view', NULL, definition FROM pg_views WHERE schemaname = 'progressor'
ORDER BY 1, 2
"""


def _catalog(dsn: str) -> list[tuple[str, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(_CATALOG).fetchall()


def _tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('progressor')"
        ).fetchall()
    return {name for (name,) in rows if not name.startswith("alembic_version")}


def test_upgraded_database_is_the_schema(dsn: str) -> None:
    """Autogenerate finds nothing to do after an upgrade to head."""
    with migrations.connect(dsn) as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_schemas": True,
                "version_table_schema": "progressor",
            },
        )
        assert autogenerate.compare_metadata(context, metadata) == []


def test_check_constraints_are_those_of_the_schema(dsn: str, empty_dsn: str) -> None:
    """What autogenerate does not compare (checks, collations, identities) is the same too."""
    with migrations.connect(empty_dsn) as connection, connection.begin():
        connection.execute(text("CREATE SCHEMA progressor"))
        for enum in (process_status, task_type, task_status):
            enum.create(connection)
        metadata.create_all(connection)
    views = {name for name, kind, *_ in _catalog(dsn) if kind == "view"}
    migrated = [row for row in _catalog(dsn) if row[0] not in views and "alembic_version" not in row[0]]
    assert migrated == _catalog(empty_dsn)


def test_storage_parameters_are_those_of_the_schema(dsn: str) -> None:
    """fillfactor and autovacuum settings reach the database exactly as schema.py states them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = dict(
            connection.execute(
                "SELECT relname, coalesce(reloptions, '{}') FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = 'progressor'::regnamespace"
            ).fetchall()
        )
    for table in metadata.tables.values():
        stated = table.dialect_options["postgresql"]["with"] or {}
        assert set(found[table.name]) == {f"{key}={value}" for key, value in stated.items()}, table.name


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("running", "n, 1, n, 1, now(), 'call'"),
        ("schedule", "n, n, now(), 1, 'call', FALSE"),
        ("bulk_repairs", "1, n, n"),
    ],
    ids=["running", "schedule", "bulk_repairs"],
)
def test_no_empty_end_is_cut_off(dsn: str, table: str, row: str) -> None:
    """VACUUM, which would lock all others out for that, leaves a table that shrinks and grows as it is."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def size() -> int:
            found = connection.execute(f"SELECT pg_relation_size('progressor.{table}')".encode()).fetchone()
            assert found is not None
            return int(found[0])

        connection.execute(
            f"INSERT INTO progressor.{table} SELECT {row} FROM generate_series(1, 2000) AS n".encode()
        )
        full = size()
        connection.execute(f"DELETE FROM progressor.{table}".encode())
        connection.execute(f"VACUUM progressor.{table}".encode())
        assert size() == full > 0


def test_upgrade_reports_the_revisions(empty_dsn: str) -> None:
    """An upgrade says where the database was and where it is; a second one changes nothing."""
    assert migrations.upgrade(empty_dsn) == (None, migrations.head())
    before = _catalog(empty_dsn)
    assert migrations.upgrade(empty_dsn) == (migrations.head(), migrations.head())
    assert _catalog(empty_dsn) == before


def test_down_to_base_and_up_again(dsn: str) -> None:
    """Down to base nothing of ours is left; up again the schema is as it was."""
    before = _catalog(dsn)
    assert migrations.upgrade(dsn, "base") == (migrations.head(), None)
    assert _tables(dsn) == set()
    assert migrations.upgrade(dsn, "base") == (None, None)
    assert migrations.upgrade(dsn) == (None, migrations.head())
    assert _catalog(dsn) == before


def test_every_revision_is_reached_and_left(empty_dsn: str) -> None:
    """Each revision can be upgraded to one by one, and downgraded from one by one."""
    order = ["base", *schema_check.revisions()]
    for revision in order[1:]:
        assert migrations.upgrade(empty_dsn, revision)[1] == revision
    for revision in order[-2::-1]:
        expected = None if revision == "base" else revision
        assert migrations.upgrade(empty_dsn, revision)[1] == expected


_SENT = """
INSERT INTO progressor.outbox (
    process_no, task_id, n, created_at, due, task_type,
    namespace, process_id, name, idempotency_key, request_hash
)
SELECT 1, s.task_id, s.n, now(), now(), 'notify', 'a', 'b', s.name, s.name, ''
FROM (VALUES (8, 1, 'c'), (8, 0, 'b'), (7, 0, 'a')) AS s (task_id, n, name)
"""


_EVENT = """
INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
VALUES (%s, 1, 1, now(), '{}', '')
"""


def test_messages_that_wait_keep_their_order(empty_dsn: str) -> None:
    """Those that were sent before they had numbers stand before those that are sent after."""
    migrations.upgrade(empty_dsn, "0021")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(_SENT)
        migrations.upgrade(empty_dsn)
        connection.execute(
            "UPDATE progressor.outbox SET task_id = task_id + 10, idempotency_key = 'old' || name"
        )
        connection.execute(_SENT)
        rows = connection.execute("SELECT idempotency_key FROM progressor.outbox ORDER BY sent_no")
        assert [key for (key,) in rows] == ["olda", "oldb", "oldc", "c", "b", "a"]


def test_what_a_way_down_drops_is_told(empty_dsn: str) -> None:
    """Of what is there, and of those revisions alone that it leads below."""
    migrations.upgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(_SENT)
    down = {revision: migrations.descent(empty_dsn, revision) for revision in ("0013", "0012", "0001")}
    messages = ((3, "messages that are not delivered yet"),)
    drops = {revision: found and found.drops for revision, found in down.items()}
    assert drops == {"0013": (), "0012": messages, "0001": messages}


async def test_a_way_down_that_is_barred(dsn: str, storage: Storage) -> None:
    """Below 0011 a process has one timer: it is told which one has several, before anybody is asked."""
    step = await hold(storage, init("p1"))
    timers = (SetTimer(after=SECOND, name="a"), SetTimer(after=SECOND, name="b"))
    await save(storage, step, change_timers(*timers))
    assert migrations.descent(dsn, "0011") is not None
    with pytest.raises(InvalidRequest, match=rf"^1 process with several timers, such as {NS}/p1: before"):
        migrations.descent(dsn, "0010")


def test_events_that_only_the_feed_has_kept(empty_dsn: str) -> None:
    """Of a removed process they go with the feed: nobody would know of them any more."""
    migrations.upgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO progressor.feed_leftovers VALUES (7, now())")
        for process_no in (7, 8):
            connection.execute(_EVENT, [process_no])
        migrations.upgrade(empty_dsn, "0018")
        rows = connection.execute("SELECT process_no FROM progressor.events").fetchall()
    assert rows == [(8,)]


def test_unknown_target_is_refused(empty_dsn: str) -> None:
    """A revision that does not exist is named, and nothing is written."""
    with pytest.raises(InvalidRequest, match="9999") as caught:
        migrations.upgrade(empty_dsn, "9999")
    assert caught.value.field == "revision"
    assert _catalog(empty_dsn) == []


def test_four_at_once(empty_dsn: str) -> None:
    """Of processes that migrate at once one does the work, and the others find it done."""
    results: list[object] = []
    gate = threading.Barrier(4)

    def migrate() -> None:
        gate.wait(30)
        try:
            results.append(migrations.upgrade(empty_dsn))
        except Exception as error:  # noqa: BLE001 - compared below
            results.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    head = migrations.head()
    assert sorted(results, key=str) == [(head, head)] * 3 + [(None, head)]
    migrations.check(empty_dsn)


def test_sql_makes_the_same_schema(dsn: str, empty_dsn: str) -> None:
    """The printed SQL, run as psql would, leaves what an upgrade leaves: also for check()."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(migrations.sql())  # type: ignore[call-overload]
    assert _catalog(empty_dsn) == _catalog(dsn)
    migrations.check(empty_dsn)


def test_failed_upgrade_leaves_nothing(empty_dsn: str) -> None:
    """An upgrade that cannot be completed is rolled back as a whole."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA progressor")
        connection.execute("CREATE TABLE progressor.tasks (mine text)")
    before = _catalog(empty_dsn)
    with pytest.raises(Exception, match='"tasks" already exists'):
        migrations.upgrade(empty_dsn)
    assert _catalog(empty_dsn) == before


def test_check_passes_at_head(dsn: str) -> None:
    """The schema of this release is accepted."""
    migrations.check(dsn)


def test_check_without_tables(empty_dsn: str) -> None:
    """A database without tables is refused with the command that makes them."""
    with pytest.raises(SchemaMismatch, match=r"no progressor tables.*run `progressor migrate`"):
        migrations.check(empty_dsn)


@pytest.mark.parametrize("act", [migrations.check, migrations.upgrade])
def test_newer_revision(dsn: str, act: Callable[[str], object]) -> None:
    """A database of a newer release is refused, not touched, and the text says what to upgrade."""
    with migrations.connect(dsn) as connection, connection.begin():
        connection.execute(text("UPDATE progressor.alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaMismatch, match=r"revision 9999.*upgrade the progressor package"):
        act(dsn)


def test_unreachable_server() -> None:
    """No server: StorageUnavailable, with PostgreSQL's own words."""
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        migrations.check("postgresql://postgres@127.0.0.1:1/nowhere")


def test_key_value_dsn(dsn: str) -> None:
    """Any DSN that psycopg takes will do, also key=value."""
    with psycopg.connect(dsn) as connection:
        pairs = " ".join(f"{key}={value}" for key, value in connection.info.get_parameters().items())
    migrations.check(pairs)
