"""Sequences that are behind the numbers in the rows: nothing works on a database that would give one again.

Logical replication leaves them so: it copies rows alone. A start looks at them, and a running program looks
again at each server that it meets: its address may lead to such a copy before somebody lifts them.

Rule: it works on a connection that is given, and opens none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from progressor.errors import SchemaMismatch
from progressor.storage.statements import STATEMENTS, in_schema

Rows = Sequence[tuple[Any, ...]]

DRAWS: Rows = [(True,)]
"""What the statement `draws_numbers` answers to a role that may draw numbers."""

# Another server, one that was started anew, another database under the same name.
_PLACE = """
SELECT pg_catalog.pg_postmaster_start_time(), oid
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
"""


def refuse(behind: Rows) -> None:
    """Raise SchemaMismatch for the first row of `numbers_behind`; most likely all sequences are behind."""
    if behind:
        name, last, highest = behind[0]
        raise SchemaMismatch(
            f"sequence {name} is at {last}, but {highest} is used: rows were copied without their "
            "sequences, as logical replication does. Stop whatever writes, and run "
            "`progressor migrate --sequences`"
        )


class ServersMet:
    """The look at the server of each new connection: SchemaMismatch until its sequences are lifted.

    Not twice at one that held, unless it was started anew.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._held: Rows = []

    async def __call__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        place = await _rows(connection, _PLACE)
        if place != self._held:
            if await _rows(connection, in_schema(STATEMENTS["draws_numbers"], self._schema)) == DRAWS:
                refuse(await _rows(connection, in_schema(STATEMENTS["numbers_behind"], self._schema)))
            self._held = place


async def _rows(connection: psycopg.AsyncConnection[Any], statement: str) -> Rows:
    return await (await connection.execute(statement.encode(), prepare=False)).fetchall()
