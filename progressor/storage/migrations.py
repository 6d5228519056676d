"""Migrations: they bring a database's schema to the one of this release.

The migrations stand in `alembic/` at the top of the source tree and inside the wheel as
`progressor/alembic`. All of an upgrade is one transaction under one advisory lock, so any number of
processes may migrate at once: the first does the work, the others find it done. A try ends soon if others
hold the tables, and is repeated.

Rule: all tables of the engine stand in one schema, the version table too. Nothing else in the database,
such as other migrations and their versions, is read or touched.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Connection,
    Delete,
    column,
    create_engine,
    delete,
    event,
    func,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.loggers import Logger
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.first_connection import connect_at_start
from progressor.storage.schema_check import (
    OLDEST_RELEASE,
    check,
    check_revision,
    compare,
    fit_revision,
    folder,
    head,
    is_newer,
    noted_in,
    revision_of,
    revisions,
    translated,
)
from progressor.storage.statements import STATEMENTS, in_schema
from progressor.storage.table_locks import HoldersSeen, TablesHeld, end_with_client, is_held, lock_tables
from progressor.texts import number_of

__all__ = [
    "MIGRATION_LOCK",
    "check",
    "check_revision",
    "compare",
    "connect",
    "descent",
    "head",
    "Lifted",
    "lift_sequences",
    "oldest_served",
    "sql",
    "statement_of_oldest",
    "upgrade",
]

log = Logger("progressor.migrations")

T = TypeVar("T")

# Seconds between two tries.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
# Any constant will do; this one spells "prg".
MIGRATION_LOCK = 0x707267
# Marked as additive, but it replaces a key that the releases before it look for.
_REPLACES = ("0011",)
# What the way down below a revision drops and what may be missed: words, table and condition.
_DROPPED = {
    "0002": (("tokens", "tokens", None),),
    "0003": (("bulk repairs", "bulks", None),),
    "0008": (("answers of removed processes", "kept_answers", None),),
    "0013": (("messages that are not delivered yet", "outbox", None),),
    "0014": (("limits of groups", "groups", None),),
    "0015": (
        ("retentions that operators have set", "retention", "is_set"),
        ("notes of where shortened histories begin", "processes", "first_event_id > 1"),
    ),
    "0016": (("entries of the audit", "audit", None),),
    "0019": (("rows of the feed", "feed", None),),
    "0020": (("subscriptions with their checkpoints", "subscriptions", None),),
}


def _config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output)
    # The option is interpolated: a percent sign in the path stands for itself.
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config


def oldest_served(revision: str) -> str:
    """Return the oldest revision whose release can work with the tables of this one."""
    script = ScriptDirectory.from_config(_config())
    while True:
        migration = script.get_revision(revision)
        before = migration.down_revision
        is_additive = getattr(migration.module, "additive", False) and revision not in _REPLACES
        if not is_additive or not isinstance(before, str):
            return revision
        revision = before


def statement_of_oldest(revision: str, schema: str) -> str:
    """Return the SQL that notes, in a database at this revision, which releases can work with it."""
    return f"COMMENT ON TABLE \"{schema}\".alembic_version IS '{_says_oldest(revision)}'"


def _says_oldest(revision: str) -> str:
    return OLDEST_RELEASE.format(revision, oldest_served(revision))


def sql(*, schema: str = DEFAULT_SCHEMA) -> str:
    """Return the whole upgrade from an empty database, as SQL."""
    output = io.StringIO()
    config = _config(output)
    config.attributes["schema"] = schema
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def connect(dsn: str) -> Connection:
    """Return a SQLAlchemy connection to any DSN that psycopg takes.

    Each transaction states its settings.
    """

    def open_() -> psycopg.Connection[Any]:
        connection = connect_at_start(dsn, "progressor migrate")
        connection.autocommit = False
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = connection.deferrable = False
        return connection

    engine = create_engine("postgresql+psycopg://", creator=open_, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "begin")
    def _state_settings(connection: Connection) -> None:
        # Never for the session: a pooler may lend it to others.
        connection.exec_driver_sql(STATEMENTS["settings"], session_setup.UNBOUNDED_TRANSACTION)

    try:
        return engine.connect()
    except (DBAPIError, psycopg.Error) as error:
        raise translated(_cause(error), role=None, needs=sqlstates.TO_LOOK) from None


@contextmanager
def _connected(dsn: str, *, needs: str) -> Iterator[Connection]:
    """Yield a connection whose errors are translated: without SQL, and naming the privileges it needs.

    Errors on leaving are translated too: SQLAlchemy then rolls back, on a connection that may be lost.
    """
    role = None
    try:
        with connect(dsn) as connection:
            role = _driver(connection).info.user
            yield connection
    except (DBAPIError, psycopg.Error) as error:
        raise translated(_cause(error), role=role, needs=needs) from None


def _cause(error: DBAPIError | psycopg.Error) -> psycopg.Error:
    return cast("psycopg.Error", error.orig) if isinstance(error, DBAPIError) else error


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)


def upgrade(
    dsn: str,
    revision: str = "head",
    *,
    schema: str = DEFAULT_SCHEMA,
    patience: timedelta = timedelta(minutes=10),
) -> tuple[str | None, str | None]:
    """Migrate up, or down to an older revision or "base"; return the revisions before and after.

    Going down drops what the newer revisions hold. All work on the tables waits while they are changed, and
    while this waits for those that others hold: for three seconds, and then it pauses and tries again.
    StorageUnavailable, which names the holders, after `patience`.
    """
    order = _order(revision)
    return _when_free(dsn, partial(_migrate, revision=revision, order=order), schema, patience)


class Lifted(NamedTuple):
    """A sequence that was behind the numbers in the tables: where it was, and where it is now."""

    sequence: str
    before: int
    after: int


def lift_sequences(
    dsn: str, *, schema: str = DEFAULT_SCHEMA, patience: timedelta = timedelta(minutes=10)
) -> list[Lifted]:
    """Set each sequence that would give a number again to the highest that is used; return those.

    Where rows were copied without their sequences, as logical replication does, all are behind. This reads
    all tasks, and waits for the tables as `upgrade` does. SchemaMismatch if the revision is not that of
    this release.
    """
    return _when_free(dsn, _lift, schema, patience)


def _lift(connection: Connection, schema: str) -> list[Lifted]:
    driver = _driver(connection)
    end_with_client(driver)
    fit_revision(driver, schema)
    lock_tables(driver, schema)
    rows = driver.execute(in_schema(STATEMENTS["lift_sequences"], schema).encode())
    return [Lifted(name, last, now_at) for name, last, _, now_at in rows]


def _when_free(dsn: str, work: Callable[[Connection, str], T], schema: str, patience: timedelta) -> T:
    """Do this work in a transaction, again and again until nobody else holds the tables."""
    until, pause, seen = time.monotonic() + patience.total_seconds(), _FIRST_PAUSE, HoldersSeen()
    while True:
        try:
            with _connected(dsn, needs=sqlstates.TO_MIGRATE) as connection:
                return _unless_held(connection, work, schema, seen)
        except TablesHeld as held:
            if time.monotonic() + pause > until:
                raise StorageUnavailable(
                    f"nothing was migrated, others hold the tables: {held}. "
                    "End their transactions, or migrate later"
                ) from None
            log.warning(
                "tables are held by others, migrating again after a pause",
                extra={"holders": str(held), "seconds": pause},
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _unless_held(
    connection: Connection, work: Callable[[Connection, str], T], schema: str, seen: HoldersSeen
) -> T:
    """Do this work in a transaction; TablesHeld, which names the holders, if others have the tables."""
    try:
        with connection.begin():
            return work(connection, schema)
    except (DBAPIError, psycopg.Error) as error:
        if not is_held(_cause(error)):
            raise
    with connection.begin():
        raise TablesHeld(seen.longest(_driver(connection), schema))


def _migrate(
    connection: Connection, schema: str, *, revision: str, order: Sequence[str]
) -> tuple[str | None, str | None]:
    """Migrate in the transaction of this connection; return the revisions before and after."""
    driver = _driver(connection)
    end_with_client(driver)
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    before = revision_of(driver, schema)
    if is_newer(driver, before, schema, wanted=revision) or _is_there(driver, before, revision, schema):
        # Each start of a program may migrate first: mostly there is nothing to do, and no right is needed.
        return before, before
    lock_tables(driver, schema)
    if not inspect(connection).has_schema(schema):
        # Asked first: no right to create a schema is needed where it exists.
        connection.execute(CreateSchema(schema))
    config = _config()
    config.attributes.update(connection=connection, schema=schema)
    if order.index(revision) < order.index(before or "base"):
        if _crosses("0019", order, revision, before):
            # Nobody would know of these events any more, nor when they are to go.
            connection.execute(_of_leftovers(schema))
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)
    return before, revision_of(driver, schema)


def _is_there(driver: psycopg.Connection[Any], before: str | None, revision: str, schema: str) -> bool:
    wanted = head() if revision == "head" else revision
    return before == wanted and noted_in(driver, schema) == _says_oldest(wanted)


def _order(revision: str) -> list[str]:
    """Return all revisions that may be migrated to, oldest first; InvalidRequest for any other."""
    order = ["base", *(known := revisions()), "head"]
    if revision not in order:
        raise InvalidRequest(
            f"revision must be 'head', 'base' or one of {', '.join(known)}, not {revision!r}",
            field="revision",
        )
    return order


class Descent(NamedTuple):
    """A way down from the revision `before`, in a database of so many processes.

    `drops` is what it drops that may be missed, in words: how many, and what.
    """

    before: str
    processes: int
    drops: tuple[tuple[int, str], ...]


def descent(dsn: str, revision: str, *, schema: str = DEFAULT_SCHEMA) -> Descent | None:
    """Return the way down to this revision, and what it drops; None if it is no way down.

    InvalidRequest if it is barred: below 0011 a process has one timer.
    """
    order = _order(revision)
    with _connected(dsn, needs=sqlstates.TO_LOOK) as connection:
        before = revision_of(_driver(connection), schema)
        if is_newer(_driver(connection), before, schema, wanted=revision):
            return None
        if before is None or order.index(revision) >= order.index(before):
            return None
        if revision != "base" and _crosses("0011", order, revision, before):
            _refuse_several_timers(connection, schema)
        drops = tuple(
            (count, noun)
            for below, held in _DROPPED.items()
            if _crosses(below, order, revision, before)
            for noun, name, condition in held
            if (count := _count(connection, schema, name, condition))
        )
        return Descent(before, _count(connection, schema, "processes"), drops)


def _crosses(below: str, order: Sequence[str], revision: str, before: str | None) -> bool:
    """Return whether a way from one revision down to another leads below this one."""
    return order.index(revision) < order.index(below) <= order.index(before or "base")


def _count(connection: Connection, schema: str, name: str, condition: str | None = None) -> int:
    count = select(func.count()).select_from(table(name, schema=schema))
    found = connection.execute(count if condition is None else count.where(text(condition)))
    return int(found.scalar_one())


def _of_leftovers(schema: str) -> Delete:
    """Return the statement that deletes the events of removed processes, which the feed has kept."""
    leftovers = table("feed_leftovers", column("process_no"), schema=schema)
    events = table("events", column("process_no"), schema=schema)
    return delete(events).where(events.c.process_no.in_(select(leftovers.c.process_no)))


def _refuse_several_timers(connection: Connection, schema: str) -> None:
    processes = table("v_processes", *map(column, ("process_no", "namespace", "process_id")), schema=schema)
    timers = table("schedule", column("process_no"), column("timer"), schema=schema)
    several = (
        select(timers.c.process_no)
        .where(timers.c.timer.is_not(None))
        .group_by(timers.c.process_no)
        .having(func.count() > 1)
        .subquery()
    )
    found = connection.execute(
        select(processes.c.namespace, processes.c.process_id, func.count().over()).join_from(
            several, processes, processes.c.process_no == several.c.process_no
        )
    ).first()
    if found is not None:
        namespace, process_id, count = found
        raise InvalidRequest(
            f"{number_of(count, 'process')} with several timers, such as {namespace}/{process_id}: before "
            "revision 0011 a process has one; unset the others first, or stay at 0011",
            field="revision",
        )
