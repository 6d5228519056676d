"""The engine's own connections: opened on demand, reused last in first out, dropped when they break.

Rule: a connection in here is idle and clean, or it is not in here. There is no background task to fail:
after an outage the next caller opens a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from progressor.config import DEFAULT_SCHEMA
from progressor.storage.session import Session
from progressor.storage.statements import STATEMENTS

# A line that went dead is found out by the server too.
_KEEPALIVES = """
SELECT
    set_config('tcp_keepalives_idle', '15', FALSE),
    set_config('tcp_keepalives_interval', '5', FALSE),
    set_config('tcp_keepalives_count', '3', FALSE)
"""


class Connections:
    """At most `limit` connections to one database.

    With `session_state=False` nothing is left in a session between transactions (no prepared statements,
    settings for each transaction), as a pooler in transaction mode demands.
    """

    def __init__(
        self, dsn: str, *, limit: int, schema: str = DEFAULT_SCHEMA, session_state: bool = True
    ) -> None:
        self.dsn = dsn
        self._schema = schema
        self._session_state = session_state
        self._idle: list[Session] = []
        self._places = asyncio.Semaphore(limit)
        self._closed = False

    async def _open(self) -> Session:
        connection = await psycopg.AsyncConnection.connect(
            self.dsn, autocommit=True, prepare_threshold=None, application_name="progressor"
        )
        try:
            if self._session_state:
                await connection.execute(_KEEPALIVES)
                await connection.execute(STATEMENTS["settings"].encode(), {"is_local": False})
            return Session(connection, schema=self._schema, keeps_state=self._session_state)
        except BaseException:
            # Nobody else knows of it yet: cancelled or refused here, it would stay open.
            await connection.close()
            raise

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Session]:
        """A session for one transaction; it is dropped if it is not idle afterwards."""
        async with self._places:
            session = self._idle.pop() if self._idle else await self._open()
            try:
                yield session
            finally:
                # A refused transaction leaves a good connection good; a cancelled one does not.
                if session.is_idle and not self._closed:
                    self._idle.append(session)
                else:
                    lost = session.is_lost
                    await session.close()
                    if lost:
                        # What ended this one ended the idle ones too, most likely: find out once.
                        await self._drop_idle()

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when its user is done."""
        self._closed = True
        await self._drop_idle()
