"""A migration waits for nobody for long, and nobody waits for it for long."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.storage import migrations, table_locks
from progressor.storage.table_locks import HoldersSeen

Connection = psycopg.Connection[Any]

_HERE = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
WAITING = f"SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND {_HERE}"
AGAIN = "tables are held by others, migrating again after a pause"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries and pauses are short."""
    monkeypatch.setattr(table_locks, "_LOCK_TIMEOUT", "200ms")
    monkeypatch.setattr(migrations, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(migrations, "_LONGEST_PAUSE", 0.1)


@pytest.fixture
def other(empty_dsn: str) -> Iterator[Connection]:
    """A session that works on the database meanwhile."""
    with psycopg.connect(empty_dsn, autocommit=True, application_name="pg_dump") as connection:
        yield connection


class Migrating:
    """A migration in a thread; `until(message)` waits for a line of its log."""

    def __init__(self, dsn: str, caplog: pytest.LogCaptureFixture, **options: Any) -> None:
        self.result: Any = None
        self._caplog = caplog
        caplog.set_level(logging.WARNING, logger="progressor.migrations")
        self._thread = threading.Thread(target=self._run, args=(dsn,), kwargs=options)
        self._thread.start()

    def _run(self, dsn: str, **options: Any) -> None:
        try:
            self.result = migrations.upgrade(dsn, **options)
        except Exception as error:  # noqa: BLE001 - compared by the tests
            self.result = error

    def until(self, message: str) -> logging.LogRecord:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for record in list(self._caplog.records):
                if message_of(record) == message:
                    return record
            time.sleep(0.01)
        raise AssertionError(f"not logged: {message}")

    def ended(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.result


@pytest.mark.usefixtures("soon")
def test_it_tries_again_until_the_tables_are_free(
    empty_dsn: str, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """It says who holds what; and between two tries everybody works."""
    migrations.upgrade(empty_dsn, "0021")
    with other.transaction():
        other.execute("SELECT FROM progressor.outbox")
        migrating = Migrating(empty_dsn, caplog)
        told = vars(migrating.until(AGAIN))
        assert f"pid {other.info.backend_pid} (pg_dump, " in told["holders"]
        assert told["holders"].endswith(": outbox")
        with psycopg.connect(empty_dsn) as third:
            third.execute("SET lock_timeout = '20s'")
            third.execute("INSERT INTO progressor.namespaces (name, options) VALUES ('n', '{}')")
    assert migrating.ended() == ("0021", migrations.head())


@pytest.mark.usefixtures("soon")
def test_the_time_of_a_try_is_that_of_all_tables(
    empty_dsn: str, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Not of each: whoever has the next one, as the last is given back, makes it no longer."""
    migrations.upgrade(empty_dsn, "0021")
    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(empty_dsn)) for _ in range(3)]
        for session, table in zip(sessions, ("processes", "running", "schedule"), strict=True):
            session.execute(f"SELECT FROM progressor.{table}".encode())
        migrating = Migrating(empty_dsn, caplog)
        _until(other, WAITING)
        for session in sessions:
            # Shorter than a try; all together are longer.
            time.sleep(0.15)
            session.rollback()
        migrating.until(AGAIN)
    assert migrating.ended() == ("0021", migrations.head())


def test_who_holds_them_longest_is_named_first(empty_dsn: str, other: Connection) -> None:
    """Also to a role that PostgreSQL does not tell since when transactions of others are open."""
    migrations.upgrade(empty_dsn)
    role = f"owner_{uuid4().hex}"
    other.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
    try:
        with ExitStack() as stack:
            *later, first = (stack.enter_context(psycopg.connect(empty_dsn)) for _ in range(8))
            owner = stack.enter_context(psycopg.connect(make_conninfo(empty_dsn, user=role, password="x")))
            seen = HoldersSeen()
            first.execute("SELECT FROM progressor.tasks")
            assert [(each.pid, each.since) for each in seen.longest(owner, "progressor")] == [
                (first.info.backend_pid, None)
            ]
            for each in later:
                each.execute("SELECT FROM progressor.processes")
            longest, *others = seen.longest(owner, "progressor")
            assert longest.pid == first.info.backend_pid
            assert longest.since is not None
            assert [each.since for each in others] == [None] * 4
    finally:
        other.execute(f"DROP ROLE {role}".encode())


def test_what_somebody_cancels_is_not_tried_again(empty_dsn: str) -> None:
    """An operator ends what holds up everybody: it does not come back by itself."""
    tries = []

    def work(connection: Any, _schema: str) -> None:
        tries.append(connection)
        connection.exec_driver_sql("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")

    with pytest.raises(StorageUnavailable, match="user request"):
        migrations._when_free(empty_dsn, work, "progressor", timedelta(minutes=1))
    assert len(tries) == 1


@pytest.mark.usefixtures("soon")
def test_it_gives_up_in_the_end(empty_dsn: str, other: Connection) -> None:
    """And names the holders; nothing was changed, and no lock is left."""
    migrations.upgrade(empty_dsn, "0021")
    with other.transaction():
        other.execute("LOCK TABLE progressor.tasks IN ACCESS SHARE MODE")
        with pytest.raises(
            StorageUnavailable, match=r"^nothing was migrated, others hold the tables: pid "
        ) as late:
            migrations.upgrade(empty_dsn, patience=timedelta(seconds=0.3))
        assert "open for " in str(late.value)
        assert ": tasks" in str(late.value)
        held = other.execute(
            f"SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND {_HERE}".encode()
        ).fetchone()
    assert held == (0,)
    assert migrations.upgrade(empty_dsn) == ("0021", migrations.head())


@pytest.mark.parametrize("before", ["0003", "0005", "0010", "0011", "0021"])
def test_who_holds_a_process_and_wants_its_other_rows_gets_them(
    before: str, empty_dsn: str, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """As steps do: no deadlock comes of it, whatever the order in which a migration changes the tables."""
    migrations.upgrade(empty_dsn, before)
    with other.transaction():
        other.execute("SELECT FROM progressor.processes FOR UPDATE")
        migrating = Migrating(empty_dsn, caplog)
        with psycopg.connect(empty_dsn, autocommit=True) as third:
            _until(third, WAITING)
        for name in ("running", "schedule", "tasks", "events"):
            other.execute(f"SELECT FROM progressor.{name} FOR UPDATE".encode())
    assert migrating.ended() == (before, migrations.head())


def test_a_migration_that_was_killed_holds_nobody_up(empty_dsn: str, other: Connection) -> None:
    """PostgreSQL ends its transaction while it still waits: for another migration, say."""
    with other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [migrations.MIGRATION_LOCK])
        code = f"from progressor.storage import migrations; migrations.upgrade({empty_dsn!r})"
        migrating = subprocess.Popen([sys.executable, "-c", code])
        waiting = f"SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND {_HERE}"
        _until(other, waiting)
        os.kill(migrating.pid, signal.SIGKILL)
        migrating.wait(30)
        _until(other, f"SELECT WHERE NOT EXISTS ({waiting})")


def test_where_nothing_is_to_be_done_no_right_is_needed(dsn: str) -> None:
    """Any program may migrate as it starts, by the role with which it works."""
    role, head = f"reader_{os.getpid()}", migrations.head()
    reading = make_conninfo(dsn, user=role, password="x")
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        owner.execute(f"GRANT USAGE ON SCHEMA progressor TO {role}".encode())
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA progressor TO {role}".encode())
        try:
            assert migrations.upgrade(reading) == (head, head)
        finally:
            owner.execute(f"DROP OWNED BY {role}".encode())
            owner.execute(f"DROP ROLE {role}".encode())


def _until(connection: Connection, query: str) -> None:
    end = time.monotonic() + 60
    while connection.execute(query.encode()).fetchone() is None:
        assert time.monotonic() < end, query
        connection.execute("SELECT pg_stat_clear_snapshot()")
        time.sleep(0.02)
