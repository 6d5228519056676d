"""Sequences that are behind the numbers in the rows: nothing works on a database that would give one again.

Logical replication leaves them so: it copies rows alone. A start looks at them, and a running program looks
again at each server that it meets: its address may lead to such a copy before somebody lifts them.

Rule: what looks at numbers works on a connection that is given, and opens none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from progressor.errors import StorageUnavailable
from progressor.storage.postgres import sqlstates
from progressor.storage.postgres.session_setup import BEGIN, BOUNDED_TRANSACTION, SETTINGS, connected
from progressor.storage.statements import STATEMENTS, in_schema

Rows = Sequence[tuple[Any, ...]]

DRAWS: Rows = [(True,)]
"""What the statement `draws_numbers` answers to a role that may draw numbers."""

# Another server, one that was started anew, another database under the same name; whether it is a standby,
# where nobody draws a number. Roles may have settings of their own for texts of times and numbers.
PLACE = """
SELECT
    (pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint, oid::bigint,
    pg_catalog.pg_is_in_recovery()
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
"""


def fault_of(behind: Rows) -> str | None:
    """Return what is wrong by the rows of `numbers_behind`: the first, for most likely all are behind."""
    if not behind:
        return None
    name, last, highest = behind[0]
    return (
        f"sequence {name} is at {last}, but {highest} is used: rows were copied without their sequences, "
        "as logical replication does. Stop whatever writes, and run `progressor migrate --sequences`"
    )


class ServersMet:
    """The look at the server of each new connection, but for one that was looked at since it started.

    OperationalError until its sequences are lifted, as if it were away: all that runs waits, and goes on.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._held: Rows = []

    def note(self, connection: psycopg.Connection[Any]) -> None:
        """Note that the server of this connection holds."""
        self._held = connection.execute(PLACE.encode()).fetchall()

    async def __call__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        place = await _rows(connection, PLACE)
        ((*_, is_standby),) = place
        if is_standby or place == self._held:
            return
        await connection.execute(BEGIN, prepare=False)
        await connection.execute(SETTINGS, BOUNDED_TRANSACTION, prepare=False)
        if await _rows(connection, in_schema(STATEMENTS["draws_numbers"], self._schema)) == DRAWS:
            behind = await _rows(connection, in_schema(STATEMENTS["numbers_behind"], self._schema))
            if (fault := fault_of(behind)) is not None:
                raise psycopg.OperationalError(fault)
        await connection.execute(STATEMENTS["commit"].encode(), prepare=False)
        self._held = place


async def refuse_other_server(dsn: str, direct_dsn: str) -> None:
    """Raise StorageUnavailable if these two lead to different databases: one is on its way to the other.

    Heartbeats that go to another database than the claims would make a worker that lives look dead.
    """
    try:
        async with (
            connected(dsn, "progressor", keeps_state=False) as through,
            connected(direct_dsn, "progressor", keeps_state=True) as direct,
        ):
            places = await _rows(through, PLACE), await _rows(direct, PLACE)
    except psycopg.Error as error:
        raise sqlstates.translated(error, role=None, needs=sqlstates.TO_RUN) from None
    if places[0] != places[1]:
        raise StorageUnavailable(
            "PROGRESSOR_LISTEN_DATABASE_URL (in Python listen_database_url) leads to another database than "
            "the URL beside it: let both lead to the same one"
        )


async def _rows(connection: psycopg.AsyncConnection[Any], statement: str) -> Rows:
    return await (await connection.execute(statement.encode(), prepare=False)).fetchall()
