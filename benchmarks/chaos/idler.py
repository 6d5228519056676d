"""A stranger in another database of the server: a transaction that has written, and does not end.

Rule: it is idle. Whatever ends it was a fault of the server, and then another one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from benchmarks.chaos.follower import Sight
from benchmarks.chaos.server import Server, now

_DATABASE = "elsewhere"
_PAUSE = 0.1
# From the end of the last fault to what counts as quiet.
_CALM = timedelta(seconds=3)


@dataclass
class Span:
    """The time from the write of a transaction to its end."""

    began: datetime
    ended: datetime | None = None

    def has(self, sight: Sight) -> bool:
        """Return whether an event was saved and seen within this time."""
        return sight.saved >= self.began and (self.ended is None or sight.came <= self.ended)


class Idler:
    """Writes, and waits for the end of its session; `spans` are its transactions."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname=_DATABASE)
        self.spans: list[Span] = []

    @contextlib.asynccontextmanager
    async def idling(self) -> AsyncIterator[None]:
        """Idle from here to the end, whatever becomes of the server."""
        await asyncio.to_thread(self._server.execute, f"CREATE DATABASE {_DATABASE}")
        await self._make_table()
        idling = asyncio.create_task(self._idle_for_ever())
        try:
            yield
        finally:
            idling.cancel()
            await asyncio.gather(idling, return_exceptions=True)

    async def _make_table(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            await connection.execute("CREATE TABLE notes (at timestamptz)")

    async def _idle_for_ever(self) -> None:
        while True:
            with contextlib.suppress(psycopg.Error):
                await self._idle()
            await asyncio.sleep(_PAUSE)

    async def _idle(self) -> None:
        connection = await psycopg.AsyncConnection.connect(self._dsn, application_name="chaos")
        try:
            await connection.execute("INSERT INTO notes VALUES (now())")
            span = Span(now())
            self.spans.append(span)
            try:
                await _ended(connection)
            finally:
                span.ended = now()
        finally:
            await connection.close()


async def _ended(connection: psycopg.AsyncConnection) -> None:
    """Return when the server says something to a session that asks nothing: it is the end."""
    loop, said, socket = asyncio.get_running_loop(), asyncio.Event(), connection.pgconn.socket
    loop.add_reader(socket, said.set)
    try:
        await said.wait()
    finally:
        loop.remove_reader(socket)


def lags(
    sights: Iterable[Sight], spans: Sequence[Span], *, strikes: datetime | None, calm: datetime
) -> list[float]:
    """Return seconds from the save of each event to its sight, under an idle transaction in quiet times.

    These are before the first fault, at `strikes`, and from some seconds after the last one, at `calm`.
    """
    return [
        (sight.came - sight.saved).total_seconds()
        for sight in sights
        if (strikes is None or sight.came < strikes or sight.saved > calm + _CALM)
        and any(span.has(sight) for span in spans)
    ]


def shown(seconds: Sequence[float]) -> str:
    """Return lags in one line, in milliseconds."""
    if not seconds:
        return "none"
    median, longest = statistics.median(seconds) * 1000, max(seconds) * 1000
    return f"median {median:.0f} ms, max {longest:.0f} ms, of {len(seconds)} events"
