"""Connections for one use at a time: opened on demand, reused last in first out, dropped when they break.

Rule: a connection in the pool is idle and clean. The caller that took one gives it back, even after
`close`. No background task opens connections: after an outage the next caller does. One that was not taken
for a while is closed, so that others find a place on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import psycopg

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import StorageUnavailable
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.sequences import ServersMet
from progressor.supervision import Background, watched


class Connection(Protocol):
    """The connection as a pool sees it."""

    @property
    def is_idle(self) -> bool: ...

    @property
    def is_lost(self) -> bool: ...

    @property
    def has_ended_at_rest(self) -> bool:
        """True if the server, or a pooler, has ended it while nobody used it."""

    def close(self) -> Coroutine[Any, Any, None]:
        """Close it, whatever it does. A cancellation at any moment leaves it closed."""


C = TypeVar("C", bound=Connection)

# Seconds; a connection that nobody took for so long is closed.
_IDLE_SECONDS = 60.0


class ConnectionPool(Generic[C]):
    """At most `limit` connections. `role` is the role that they log in as, once there was one."""

    role: str | None = None

    def __init__(self, *, limit: int) -> None:
        # The connection given back last is at the end, and is taken first.
        self._idle: list[tuple[C, float]] = []
        self._closing = Background()
        self._look: asyncio.TimerHandle | None = None
        self._places = asyncio.Semaphore(limit)
        self._closed = False

    async def _open(self) -> C:
        raise NotImplementedError

    async def _place(self, patience: float | None) -> None:
        if patience is None or not self._places.locked():
            await self._places.acquire()
            return
        # Not `asyncio.timeout`, which cancels: a step's task takes a cancellation for a stop.
        place = asyncio.ensure_future(self._places.acquire())
        try:
            await asyncio.wait((place,), timeout=patience)
        except BaseException:
            if not place.cancel():
                self._places.release()
            raise
        if place.cancel():
            raise StorageUnavailable(f"all connections of this client were in use for {patience:g} s")

    def acquire(self, patience: float | None = None) -> Acquired[C]:
        """Return the scope of a connection for one transaction.

        One that is not idle afterwards is closed. StorageUnavailable if none was free in so many seconds.
        """
        return Acquired(self, patience)

    async def take(self, patience: float | None = None) -> C:
        """Return an idle connection, or a new one; StorageUnavailable if none was free in that time."""
        await self._place(patience)
        try:
            while self._idle:
                connection, _ = self._idle.pop()
                if not connection.has_ended_at_rest:
                    return connection
                await connection.close()
            return await self._open()
        except BaseException:
            self._places.release()
            raise

    async def give_back(self, connection: C, *, ended: bool) -> None:
        """Keep a connection that was taken, if it can be used again; `ended`: its session was ended."""
        try:
            # After a refused transaction a connection is still good; after a cancelled one it is not.
            if connection.is_idle and not self._closed and not ended:
                self._keep(connection)
            else:
                ended = ended or connection.is_lost
                await connection.close()
                if ended:
                    # Most likely the idle ones were ended too: do not let each caller find out.
                    await self._drop_idle()
        finally:
            self._places.release()

    def _keep(self, connection: C) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((connection, loop.time()))
        if self._look is None:
            self._look = loop.call_later(_IDLE_SECONDS, watched("idle connections", self._close_unused))

    def _close_unused(self) -> None:
        """Close connections that were idle for too long, and look again when the next one may be."""
        loop, self._look = asyncio.get_running_loop(), None
        oldest = loop.time() - _IDLE_SECONDS
        while self._idle and self._idle[0][1] <= oldest:
            self._closing.begin("idle connections", self._idle.pop(0)[0].close())
        if self._idle:
            wait = self._idle[0][1] - oldest
            self._look = loop.call_later(wait, watched("idle connections", self._close_unused))

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop()[0].close()

    async def close(self) -> None:
        """Close idle connections; those in use are closed when they are given back."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        await self._drop_idle()
        await self._closing.ended()


class Acquired(Generic[C]):
    """The scope in which a connection is in use. Not a generator, whose cost a lone request would feel."""

    __slots__ = ("_connection", "_patience", "_pool")

    def __init__(self, pool: ConnectionPool[C], patience: float | None) -> None:
        self._pool = pool
        self._patience = patience

    async def __aenter__(self) -> C:
        self._connection = await self._pool.take(self._patience)
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = isinstance(error, psycopg.Error) and sqlstates.judged(error).ends_sessions
        await self._pool.give_back(self._connection, ended=ended)


class SessionPool(ConnectionPool[Session]):
    """The engine's own sessions with one database.

    With `session_state=False` nothing is left in a session between transactions (no prepared statements,
    settings for each transaction), as a pooler in transaction mode demands. `make` makes a session of a
    connection. A server whose sequences are behind counts as away.
    """

    def __init__(
        self,
        dsn: str,
        *,
        limit: int,
        schema: str = DEFAULT_SCHEMA,
        session_state: bool = True,
        make: Callable[..., Session] = Session,
    ) -> None:
        super().__init__(limit=limit)
        self.dsn = dsn
        self.servers = ServersMet(schema)
        """The servers that it has met; a start notes the one that it has checked."""
        # Host and port of the newest session: the DSN may name several servers.
        self.reached: tuple[str, int] | None = None
        self._schema = schema
        self._session_state = session_state
        self._make = make

    async def _open(self) -> Session:
        connection = await session_setup.connect(
            self.dsn,
            "progressor",
            keeps_state=self._session_state,
            more={"planner": {"is_local": False}},
            look=self.servers,
        )
        self.role = connection.info.user
        self.reached = (connection.info.host, connection.info.port)
        made = partial(self._make, connection, schema=self._schema, keeps_state=self._session_state)
        return await session_setup.made_on(connection, made)
