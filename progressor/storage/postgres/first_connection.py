"""The first connection of a program to a database, which may not exist.

libpq gives no SQLSTATE of a connection that fails, and servers write their texts in the language of their
own. So the server is asked in its database `postgres` whether there is one of this name.

Rule: only a server that says so itself is believed. Where a pooler lies between, its names need not be
those of the server, and nothing is concluded.
"""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from typing import Any

import psycopg

from progressor.errors import ProgressorError, SchemaMismatch
from progressor.storage.postgres.dsn import with_database
from progressor.storage.postgres.server_identity import place_of
from progressor.storage.postgres.session_setup import Server, connect_blocking

# The database that every server has, unless somebody dropped it.
_ALWAYS_THERE = "postgres"
# Seconds: a server that refuses a database does so at once, and is asked for no longer. A failure that took
# longer is of a server that does not answer.
_PROMPT, _ASKED = 2.0, "2"


def connect_at_start(dsn: str, name: str, *, server: Server = "primary") -> psycopg.Connection[Any]:
    """Return a connection as `connect_blocking` does; SchemaMismatch if the database does not exist."""
    began = time.monotonic()
    try:
        return connect_blocking(dsn, name, server=server)
    except psycopg.OperationalError:
        if time.monotonic() - began < _PROMPT and _is_missing(dsn, name, server):
            raise _missing(dsn) from None
        raise


def _is_missing(dsn: str, name: str, server: Server) -> bool:
    """Return whether the server says that it has no such database; False if it cannot be asked."""
    elsewhere = with_database(dsn, _ALWAYS_THERE, connect_timeout=_ASKED)
    try:
        with closing(connect_blocking(elsewhere, name, server=server)) as connection:
            row = connection.execute(
                "SELECT pg_backend_pid(), EXISTS (SELECT FROM pg_database WHERE datname = %s)",
                [place_of(dsn)["database"]],
            ).fetchone()
            return row == (connection.info.backend_pid, False)
    except (psycopg.Error, ProgressorError):
        return False


def _missing(dsn: str) -> SchemaMismatch:
    place = place_of(dsn)
    wanted = place["database"]
    return SchemaMismatch(
        f"the database {wanted!r} does not exist on {place['host']}:{place['port']}: correct its name in "
        f"the database URL, or make it (`createdb {shlex.quote(wanted)}`) and run `progressor migrate`"
    )
