"""The live schema is compared with what the migrations make; a migration that has landed stays as it is."""

from __future__ import annotations

from hashlib import sha256
from typing import LiteralString

import psycopg
import pytest

from progressor import Client, Engine, Namespace
from progressor.errors import SchemaMismatch
from progressor.loggers import message_of
from progressor.storage import migrations
from progressor.storage.catalog import entries, listing
from progressor.storage.doctor import examine
from progressor.storage.statements import STATEMENTS
from tests.docs.pages import ROOT

LANDED = {
    "0001_tables.py": "d2a98fe868154dff026fdda3780caa9fc26a845bcc5439424d15dc70912ca5b4",
    "0002_tokens.py": "e1753addbc14d834765d46023991485595f3a208353dd765beee9cdcc7888d27",
    "0003_bulks.py": "7898fac7f1db1fbb88a3f66c49bb8d5ffeb05c4fae71eb20c73925f6d7ea3654",
    "0004_steps.py": "448ae860f549c422412c0cb2eaf0907d73600d281d8501f4b4a5ba26669042db",
    "0005_mended.py": "5c000be92eab64a3e783602dc24c5a0c8e4e4b5c60c1b9c10f9e2e9ab50562c1",
    "0006_births.py": "f5d1a02c2d9bb02ea9e7bfd38698261ab841d3aaa7b8f03dec4641351d211632",
    "0007_pause_reason.py": "f24ccd43f1bb11175d18c88f570449f01632c82417f61c02440db2ce589f496f",
    "0008_kept_answers.py": "af642f83c3da34b6f31d8f3dab4417d9d4dc23776c4c1972cb62f339b2f3d591",
    "0009_bulk_redos.py": "1895121457021b4f234971ce7140ffbbdb8accdc99c618435d8a45b34a1a77bd",
    "0010_functions.py": "aeb6defbbf4f63cea58afb0b4e03c8afba9a44eb8404e7c5d32ddfda15ea0fe1",
    "0011_named_timers.py": "9f20e28deea15a8f7c2a351094936a03ba48a4280bcc2834779b041acfad06dc",
    "0012_expiry_and_priority.py": "6b4645a4bf043da65be327435ad747ded88cdb43cbeb0b1aa224875e0614c0ca",
    "0013_outbox.py": "901805ba9a7c1e7609a249f4b456e171a8ac6d730c1638e4ff0476208c88ef13",
    "0014_limits.py": "61fcf55458311f49e82410a0d1f017cd61835011ffe1b89e76c60477f12a40c1",
    "0015_retention.py": "bfba4a2f127918611f171b50011d405ce2d1be1f1735d236594c904d1c73aa7d",
    "0016_audit.py": "1440489405333fc189273b9f2f31589f15578cff94106b8cafabd6cd9efd3209",
    "0017_trace_contexts.py": "429bb838fdc50f4e342d7e02ed37d34e9a8e55c3e838d39809c0e495424e0d93",
    "0018_archive.py": "117b901bb3d0ec7ebaa48869e2a3189d7563863b3174da24c8ac53d49075167b",
    "0019_feed.py": "0681adbd1dd14f78ed5672a4cb20cab77da434c5a176e437dc7cbf38ec73f848",
    "0020_subscriptions.py": "89512c033050a4920d7bad666744f7c9159ad55948572395f8b752e9a199d4ce",
    "0021_samples.py": "30487d0d457920ebc13af3913455e30239be7ed5ce7a4a812c368ec0b6bf3f0e",
    "0022_sent_order.py": "e740f4f44b6dfda5e81b27eca8ffafbb37e758d17fd1136f6006acfebfccf63e",
}
LISTED = ROOT / "progressor" / "storage" / "catalog.txt"


def test_what_has_landed_is_never_edited() -> None:
    """Databases have run it and will not again: mend the schema with a migration of the next number."""
    folder = ROOT / "alembic" / "versions"
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.py")}
    edited = [name for name, digest in LANDED.items() if found.get(name) != digest]
    assert edited == [], f"{edited} have landed: take the change back, and write a new migration for it"
    new = {name: digest for name, digest in found.items() if name not in LANDED}
    assert new == {}, f"once it is done, list in LANDED: {new}"


def test_the_list_is_what_the_migrations_make(dsn: str) -> None:
    """On every version of PostgreSQL. If a migration changed it, write it anew with this text."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(STATEMENTS["catalog"].encode(), {"schema": "progressor"}).fetchall()
    assert listing(entries(rows, "progressor")) == LISTED.read_text(encoding="utf-8")


def test_a_migrated_database_differs_in_nothing(empty_dsn: str) -> None:
    """Nor in a schema of another name, beside tables and indexes of others."""
    migrations.upgrade(empty_dsn, schema="other")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE INDEX mine ON other.tasks (finished_time)")
        connection.execute("ALTER TABLE other.workers ADD COLUMN mine text")
        connection.execute("CREATE TABLE other.ours (tasks text)")
    assert migrations.compare(empty_dsn, schema="other") == ()
    assert migrations.check(empty_dsn, schema="other") == migrations.head()


NEEDED: dict[LiteralString, str] = {
    "ALTER TABLE bulks DROP COLUMN still_since": "column bulks.still_since is missing",
    "ALTER TABLE tasks ALTER COLUMN attempts_count SET NOT NULL": (
        "column tasks.attempts_count is integer NOT NULL, not integer"
    ),
    "DROP TABLE tokens CASCADE": "table tokens is missing",
    # A crash empties it, and a copy by logical replication leaves it out.
    "ALTER TABLE bulks SET UNLOGGED": "table bulks is unlogged, not logged",
    "ALTER TABLE running DROP CONSTRAINT running_pkey": "key running_pkey is missing",
    "DROP INDEX schedule_one_timer": "key schedule_one_timer is missing",
    "DROP INDEX schedule_one_timer; CREATE UNIQUE INDEX schedule_one_timer ON schedule (process_no)": (
        "is CREATE UNIQUE INDEX schedule_one_timer ON schedule USING btree (process_no), not CREATE"
    ),
    "ALTER TYPE task_type RENAME VALUE 'notify' TO 'note'": (
        "type task_type is init, call, note, repair, timeout, remove, not init, call, notify"
    ),
}
WARNED: dict[LiteralString, str] = {
    "DROP INDEX schedule_calls": "index schedule_calls is missing",
    "ALTER TABLE tasks DROP CONSTRAINT tasks_finished_time_check": (
        "constraint tasks_finished_time_check is missing"
    ),
    "DROP VIEW v_running": "view v_running is missing",
}


@pytest.mark.parametrize("damage", NEEDED)
async def test_what_is_needed_is_named_before_anything_starts(dsn: str, damage: LiteralString) -> None:
    """The check, a client, an engine and the doctor say the same, though the revision is the newest."""
    execute(dsn, damage)
    with pytest.raises(SchemaMismatch) as told:
        migrations.check(dsn)
    assert NEEDED[damage] in str(told.value)
    with pytest.raises(SchemaMismatch) as told:
        async with Client(dsn):
            pass
    assert NEEDED[damage] in str(told.value)
    with pytest.raises(SchemaMismatch):
        async with Engine(dsn, [Namespace("billing")]):
            pass
    assert any(NEEDED[damage] in found for found in guards(dsn))


@pytest.mark.parametrize("damage", WARNED)
def test_what_it_can_do_without_is_a_warning(
    dsn: str, damage: LiteralString, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts, and says in its log what is missing; so does the doctor."""
    execute(dsn, damage)
    assert migrations.check(dsn) == migrations.head()
    (line,) = [line for line in caplog.records if message_of(line) == "schema differs"]
    assert line.__dict__["difference"] == WARNED[damage]
    assert WARNED[damage] in guards(dsn)


def test_storage_parameters_are_an_operators(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """What was tuned is shown by the comparison, and is nothing that anybody warns of."""
    execute(dsn, "ALTER TABLE tasks SET (fillfactor = 80); ALTER TABLE running RESET (vacuum_truncate)")
    found = migrations.compare(dsn)
    assert [str(each) for each in found] == [
        "storage parameter running.vacuum_truncate is missing",
        "storage parameter tasks.fillfactor is 80, not 50",
    ]
    assert all(each.is_tuning for each in found)
    assert migrations.check(dsn) == migrations.head()
    assert (caplog.records, guards(dsn)) == ([], [])


def test_a_database_of_an_early_migration_is_mended(dsn: str) -> None:
    """One that ran 0001 and 0003 before these were edited has all that it lacked, and keeps its rows."""
    migrations.upgrade(dsn, "0004")
    execute(
        dsn,
        "ALTER TABLE bulks DROP COLUMN still_since; "
        "ALTER TABLE tasks ALTER COLUMN attempts_count SET DEFAULT 0, "
        "ALTER COLUMN attempts_count SET NOT NULL; "
        "ALTER TABLE schedule RESET (vacuum_truncate); "
        "ALTER TABLE running RESET (vacuum_truncate); ALTER TABLE bulk_repairs RESET (vacuum_truncate); "
        "INSERT INTO bulks (created_at, until_task, namespace, simple, request_hash, idempotency_key, "
        "bulk_hash, pace, paced_at, next_at) "
        "VALUES (now(), 1, 'n', TRUE, '', 'k', '', '1 s', now(), now())",
    )
    with pytest.raises(SchemaMismatch, match="run `progressor migrate`"):
        migrations.check(dsn)
    migrations.upgrade(dsn)
    assert migrations.compare(dsn) == ()
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute("SELECT still_since <= now() FROM progressor.bulks").fetchall()
    assert rows == [(True,)]


def execute(dsn: str, statements: LiteralString) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET search_path = progressor")
        connection.execute(statements)


def guards(dsn: str) -> list[str]:
    report = examine(dsn, quick=True)
    (invariant,) = [each for each in report.invariants if each.name == "schema_guards"]
    return [finding.found for finding in invariant.findings]
