"""The engine's own connections: opened on demand, reused last in first out, dropped when they break.

Rule: a connection in here is idle and clean, or it is not in here. There is no background task to fail:
after an outage the next caller opens a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.rows import TupleRow, dict_row, tuple_row

from progressor.storage import arrays

Connection = psycopg.AsyncConnection[TupleRow]
Params = Mapping[str, Any]

# Every hot statement is a chain of key look-ups. A generic plan of index scans and nested loops is right
# at any size of the tables, also in the minutes before the first ANALYZE of a table that grows from empty.
_SESSION = """
SELECT
    set_config('plan_cache_mode', 'force_generic_plan', FALSE),
    set_config('enable_seqscan', 'off', FALSE),
    set_config('enable_hashjoin', 'off', FALSE),
    set_config('enable_mergejoin', 'off', FALSE),
    set_config('enable_bitmapscan', 'off', FALSE),
    set_config('jit', 'off', FALSE),
    set_config('TimeZone', 'UTC', FALSE)
"""


class Connections:
    """At most `limit` connections to one database.

    With `session_state=False` nothing is left in a session between transactions (no SET, no prepared
    statements), as a pooler in transaction mode demands.
    """

    def __init__(self, dsn: str, *, limit: int, session_state: bool = True) -> None:
        self._dsn = dsn
        self._session_state = session_state
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(limit)

    async def _open(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=0 if self._session_state else None,
            row_factory=tuple_row,
            application_name="progressor",
        )
        connection.prepared_max = 200
        arrays.register(connection)
        if self._session_state:
            await connection.execute(_SESSION)
        return connection

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection for one transaction; it is dropped if the block raises while it is unclean."""
        async with self._places:
            connection = self._idle.pop() if self._idle else await self._open()
            clean = False
            try:
                yield connection
                clean = True
            except psycopg.Error:
                # A failed statement ends its transaction and leaves a good connection good.
                clean = (
                    not connection.closed
                    and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                )
                raise
            finally:
                if clean:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def close(self) -> None:
        """Close what is idle; what is in use is closed by nobody else but its user."""
        while self._idle:
            await self._idle.pop().close()


async def transact(
    connection: Connection, statements: Sequence[tuple[str, Params]]
) -> list[list[dict[str, Any]]]:
    """Run statements as one transaction in one round trip; their rows, statement by statement.

    Between two syncs of a pipeline PostgreSQL runs everything in one implicit transaction, and each
    statement takes a snapshot of its own.
    """
    cursors = []
    async with connection.pipeline():
        for sql, params in statements:
            cursor = connection.cursor(row_factory=dict_row, binary=True)
            await cursor.execute(sql, params)
            cursors.append(cursor)
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]
