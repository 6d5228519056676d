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
from progressor.storage import opening, refusals
from progressor.storage.session import Session


class Connections:
    """At most `limit` connections to one database.

    With `session_state=False` nothing is left in a session between transactions (no prepared statements,
    settings for each transaction), as a pooler in transaction mode demands. `role` is who they log in as,
    once there was one.
    """

    role: str | None = None

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
        connection = await opening.connect(
            self.dsn, "progressor", keeps_state=self._session_state, more=[("planner", {"is_local": False})]
        )
        self.role = connection.info.user
        return Session(connection, schema=self._schema, keeps_state=self._session_state)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Session]:
        """A session for one transaction; it is dropped if it is not idle afterwards."""
        async with self._places:
            session = self._idle.pop() if self._idle else await self._open()
            ended = False
            try:
                yield session
            except psycopg.Error as error:
                ended = refusals.judged(error).ends_sessions
                raise
            finally:
                # A refused transaction leaves a good connection good; a cancelled one does not.
                if session.is_idle and not self._closed and not ended:
                    self._idle.append(session)
                else:
                    ended = ended or session.is_lost
                    await session.close()
                    if ended:
                        # What ended this one ended the idle ones too, most likely: find out once.
                        await self._drop_idle()

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when its user is done."""
        self._closed = True
        await self._drop_idle()
