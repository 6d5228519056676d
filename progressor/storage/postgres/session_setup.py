"""Sessions at their start: each states what it relies on, whatever role, database or server have set.

Rule: every connection is opened here. A session that lasts states its settings once. Where a pooler lends
sessions out, each transaction states them and they end with it: nothing is left behind for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from progressor import outages
from progressor.errors import InvalidRequest, SchemaMismatch
from progressor.storage.postgres import sqlstates
from progressor.storage.postgres.dsn import parsed, with_defaults
from progressor.storage.statements import STATEMENTS, Params, Transaction

S = TypeVar("S")

Server = Literal["primary", "any"]

Look = Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]
"""A look at the server of a new connection; it raises if nobody may work with that."""

OLDEST_SERVER = 15
# Longer than any statement, lock or pause takes that is not stuck; a process that freezes between two round
# trips keeps its locks no longer.
_BOUNDS = {"statement_timeout": "60s", "lock_timeout": "10s", "idle_timeout": "15s"}
# For migrations and the doctor, which take longer the larger the tables are.
_NO_BOUNDS = dict.fromkeys(_BOUNDS, "0")
BOUNDED_SESSION: Params = {**_BOUNDS, "is_local": False}
BOUNDED_TRANSACTION: Params = {**_BOUNDS, "is_local": True}
UNBOUNDED_TRANSACTION: Params = {**_NO_BOUNDS, "is_local": True}

# For what is tried alone, again and again, for as long as another holds its lock: it pauses without a
# connection, so that all of these together leave most connections to others.
BRIEFLY: Transaction = {"wait_briefly": {"lock_timeout": "50ms"}}

BEGIN = STATEMENTS["begin"].encode()
SETTINGS = STATEMENTS["settings"].encode()

_ROUNDS = 5
# Seconds; a pooler that has no second session for us does not answer.
_SECOND_SESSION = 5.0


async def connect(
    dsn: str, name: str, *, keeps_state: bool, more: Transaction | None = None, look: Look | None = None
) -> psycopg.AsyncConnection[Any]:
    """Return a connection.

    If it keeps state, with the settings of a session and after `more` statements; after a `look` at its
    server.
    """
    with _descriptors_named():
        connection = await psycopg.AsyncConnection.connect(
            _conninfo(dsn, name, "primary"), autocommit=True, prepare_threshold=5 if keeps_state else None
        )
    try:
        _refuse_unfit(connection.info)
        if keeps_state:
            statements: Transaction = {
                "keepalives": {"is_local": False},
                "settings": BOUNDED_SESSION,
                **(more or {}),
            }
            async with connection.pipeline():
                for statement, params in statements.items():
                    await connection.execute(STATEMENTS[statement].encode(), params, prepare=False)
        if look is not None:
            await look(connection)
    except BaseException:
        # Only this function knows of the connection: unclosed, it would stay open.
        await connection.close()
        raise
    return connection


@asynccontextmanager
async def connected(
    dsn: str, name: str, *, keeps_state: bool
) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Yield a connection, and close it. psycopg's own block would first ask the server."""
    connection = await connect(dsn, name, keeps_state=keeps_state)
    try:
        yield connection
    finally:
        await connection.close()


async def made_on(connection: psycopg.AsyncConnection[Any], make: Callable[[], S]) -> S:
    """Return what this makes of a connection, which is closed if that fails.

    OperationalError, as of libpq, if no descriptor is left: it is tried again.
    """
    try:
        return make()
    except BaseException as error:
        await connection.close()
        if isinstance(error, OSError):
            raise psycopg.OperationalError(f"no session: {error.strerror}") from error
        raise


def connect_blocking(dsn: str, name: str, *, server: Server = "primary") -> psycopg.Connection[Any]:
    """Return a connection without settings: its user states them, for the session or a transaction."""
    with _descriptors_named():
        connection = psycopg.connect(_conninfo(dsn, name, server), autocommit=True, prepare_threshold=None)
    try:
        _refuse_unfit(connection.info)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _descriptors_named() -> Iterator[None]:
    """Raise an error that names the lack of file descriptors, if that is what failed."""
    try:
        yield
    except (psycopg.OperationalError, OSError) as error:
        if outages.descriptors_are_used_up():
            raise psycopg.OperationalError(outages.NO_DESCRIPTORS) from error
        raise


def _conninfo(dsn: str, name: str, server: Server) -> str:
    # An address may lead to a standby for a while: no session with it is opened, or it would be kept too
    # long.
    wanted = {"target_session_attrs": server, **parsed(with_defaults(dsn))}
    # Stated as a parameter of the connection, the encoding holds behind a pooler too.
    return make_conninfo("", **wanted | {"application_name": name, "client_encoding": "UTF8"})


def _refuse_unfit(info: psycopg.ConnectionInfo) -> None:
    """Raise SchemaMismatch for an old server, or an encoding other than UTF8; without asking the server."""
    if info.server_version < OLDEST_SERVER * 10_000:
        raise SchemaMismatch(
            f"the server is PostgreSQL {info.parameter_status('server_version')}, this release needs "
            f"{OLDEST_SERVER} or newer: upgrade the server"
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaMismatch(
            f"the database {info.dbname!r} has the encoding {encoding}, in which not every text can be "
            "kept: take one that was made with ENCODING 'UTF8'"
        )


async def refuse_lent_sessions(dsn: str, listens_at: str | None = None) -> None:
    """Raise InvalidRequest if a pooler lends out the sessions for listening, at `listens_at` if given."""
    try:
        lent = await _are_lent(listens_at or dsn)
    except psycopg.Error as error:
        raise sqlstates.translated(error, role=None, needs=sqlstates.TO_RUN) from None
    if lent:
        raise InvalidRequest(
            "a pooler lends the database's sessions out from transaction to transaction, so signals cannot "
            "work: set PROGRESSOR_LISTEN_DATABASE_URL (in Python listen_database_url) to a URL past the "
            "pooler, or to a pool in session mode; PROGRESSOR_SIGNALS=false does without, slowly",
            field="signals" if listens_at is None else "listen_database_url",
        )


async def _are_lent(dsn: str) -> bool:
    """Return whether two connections were given one process of the server, or one got another process."""
    async with connected(dsn, "progressor", keeps_state=False) as first:
        pid = await _pid(first)
        if pid == first.info.backend_pid:
            return False  # no pooler in between
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(_SECOND_SESSION),
                connected(dsn, "progressor", keeps_state=False) as second,
            ):
                for _ in range(_ROUNDS):
                    if await _pid(second) == pid or await _pid(first) != pid:
                        return True
    return False


async def _pid(connection: psycopg.AsyncConnection[Any]) -> int:
    cursor = await connection.execute("SELECT pg_backend_pid()")
    row = await cursor.fetchone()
    return int(row[0]) if row else 0
