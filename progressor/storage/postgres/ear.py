"""A connection that listens to notifications.

Rule: it waits on the socket alone, and asks PostgreSQL nothing in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import LiteralString

import psycopg

from progressor.storage.postgres import session_setup
from progressor.storage.postgres.watch import SocketWatch


class Ear:
    """A connection that listens; its socket stays watched from one notification to the next."""

    def __init__(self, connection: psycopg.AsyncConnection[object]) -> None:
        self._connection = connection
        self._watch = SocketWatch(connection.pgconn)
        self._heard: deque[psycopg.Notify] = deque()
        # It is called for those that come with the answer to a statement too.
        connection.add_notify_handler(self._heard.append)

    async def listen(self, channel: str) -> None:
        await self._execute("LISTEN {}", channel)

    async def unlisten(self, channel: str) -> None:
        await self._execute("UNLISTEN {}", channel)

    async def _execute(self, statement: LiteralString, channel: str) -> None:
        named = psycopg.sql.SQL(statement).format(psycopg.sql.Identifier(channel))
        await self._connection.execute(named)

    async def next(self, seconds: float) -> Sequence[psycopg.Notify]:
        """Return the notifications that are there; wait for the first, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._heard:
                    await self._watch.arrival()
                    self._take_in()
        # What arrived as the time ended was taken from the socket, which will not tell of it again.
        self._take_in()
        heard = tuple(self._heard)
        self._heard.clear()
        return heard

    def _take_in(self) -> None:
        pgconn = self._connection.pgconn
        while (notification := pgconn.notifies()) is not None:
            if pgconn.notify_handler is not None:
                pgconn.notify_handler(notification)

    def close(self) -> None:
        self._watch.close()


@asynccontextmanager
async def listening_at(dsn: str) -> AsyncIterator[Ear]:
    """Open a connection to listen on, and close it at the end."""
    async with session_setup.connected(dsn, "progressor listener", keeps_state=True) as connection:
        with closing(Ear(connection)) as ear:
            yield ear
