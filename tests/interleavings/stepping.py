"""Two sessions that stop at every statement boundary, and one that sees which of them waits for a lock.

Rule: nothing is timed. A side is at a boundary, has ended, or is seen by PostgreSQL to wait for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import psycopg

from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.statements import Results, Transaction

Act = Callable[[Storage], Awaitable[Any]]
_POLL = 0.001
DEADLINE = 30.0
PATIENCE = timedelta(seconds=DEADLINE)
# Only for the other side: an autovacuum that cuts off an empty end of a table goes by itself.
_WAITS = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE pid = ANY (pg_blocking_pids(%s)) AND backend_type = 'client backend'
)"""


class Side(SessionPool):
    """One of two who act at once: its connection stops after each statement, so also before COMMIT."""

    def __init__(self, dsn: str, monitor: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(dsn, limit=1)
        self.storage = Storage(self, patience=PATIENCE)
        self.refusals: list[psycopg.Error] = []
        self._monitor = monitor
        self._session: Session | None = None
        self._task: asyncio.Task[Any] | None = None
        self._act: Act
        self._stopped, self._go = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        async with super().acquire() as session:
            self._session = session
            try:
                yield cast("Session", _Stepped(session, self))
            except psycopg.Error as error:
                self.refusals.append(error)
                raise
            finally:
                self._session = None

    async def boundary(self) -> None:
        """Stop here until told to go on."""
        self._go.clear()
        self._stopped.set()
        await self._go.wait()

    def begin(self, act: Act) -> None:
        """Start an operation; it does nothing before the first step."""
        self.refusals, self._act, self._task = [], act, None
        self._stopped.clear()

    async def abandon(self) -> None:
        """Leave nothing behind of an operation that did not end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()

    async def step(self) -> bool:
        """Run one statement; False if it did not come to its end: it waits for a lock."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._act(self.storage))
        elif self._stopped.is_set():
            self._stopped.clear()
            self._go.set()
        return await self._settled()

    async def settle(self) -> None:
        """See whether what it waited for has come; if so, it is at a boundary, or has ended."""
        if self._task is not None and not self._stopped.is_set():
            await self._settled()

    async def _settled(self) -> bool:
        assert self._task is not None
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    done, _ = await asyncio.wait(
                        {stopped, self._task}, timeout=_POLL, return_when=asyncio.FIRST_COMPLETED
                    )
                    if done:
                        return True
                    if await self._waits():
                        return False
        finally:
            stopped.cancel()

    async def _waits(self) -> bool:
        if self._session is None:
            return False
        pid = self._session._connection.info.backend_pid
        cursor = await self._monitor.execute(_WAITS, [pid])
        row = await cursor.fetchone()
        return bool(row and row[0])

    async def run(self, statements: int | None = None) -> None:
        """Go on for so many statements (None: to the end), or until it waits for a lock."""
        count = 0
        while not self.has_ended and (statements is None or count < statements):
            if not await self.step():
                return
            count += 1


class _Stepped:
    """Behind the session of an operation: one statement at a time, with a stop in between."""

    def __init__(self, session: Session, side: Side) -> None:
        self._session, self._side = session, side
        self._is_open = False

    async def transact(self, statements: Transaction, _hints: Hints | None = None) -> Results:
        if self._is_open:
            return await self._one_by_one(statements)
        async with self.transaction():
            return await self._one_by_one(statements)

    async def _one_by_one(self, statements: Transaction) -> Results:
        results: Results = {}
        for name, params in statements.items():
            results |= await self._session.transact({name: params})
            await self._side.boundary()
        return results

    async def begin(self, statements: Transaction) -> Results:
        await self._session.begin({})
        self._is_open = True
        return await self._one_by_one(statements)

    async def commit(self, statements: Transaction, _hints: Hints | None = None) -> Results:
        results = await self._one_by_one(statements)
        await self._session.commit({})
        self._is_open = False
        return results

    async def roll_back(self) -> None:
        await self._session.roll_back()
        self._is_open = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._session.transaction():
            self._is_open = True
            yield
        self._is_open = False
