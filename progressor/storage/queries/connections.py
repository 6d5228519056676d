"""Connections of reads: SQLAlchemy's, over connections of psycopg that the pool closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, cast

import psycopg
from psycopg import pq
from sqlalchemy import NullPool
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from progressor.config import DEFAULT_SCHEMA
from progressor.storage.postgres import session_setup
from progressor.storage.postgres.pool import ConnectionPool
from progressor.storage.postgres.virtual_time import Clock, in_virtual_time
from progressor.storage.postgres.watch import has_ended

_MOST_CONNECTIONS = 4


class _Reader:
    """A connection of SQLAlchemy over one of the driver, which only this class closes."""

    def __init__(self, driver: psycopg.AsyncConnection[Any], connection: AsyncConnection) -> None:
        self.driver = driver
        self.connection = connection
        # False from the first statement of a read to its last.
        self.is_idle = True

    @property
    def is_lost(self) -> bool:
        return self.driver.pgconn.status != pq.ConnStatus.OK

    @property
    def has_ended_at_rest(self) -> bool:
        return has_ended(self.driver.pgconn)

    async def close(self) -> None:
        # The driver's first, which waits for nothing: SQLAlchemy would ask the server.
        await self.driver.close()
        await self.connection.invalidate()
        await self.connection.close()


_DRIVER: ContextVar[psycopg.AsyncConnection[Any]] = ContextVar("_DRIVER")


async def _opened() -> psycopg.AsyncConnection[Any]:
    return _DRIVER.get()


class ReadConnections(ConnectionPool[_Reader]):
    """The connections of Reads. SQLAlchemy pools none: it would lose one on which a read was cancelled."""

    def __init__(self, dsn: str, *, schema: str, session_state: bool, clock: Clock | None) -> None:
        super().__init__(limit=_MOST_CONNECTIONS)
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            poolclass=NullPool,
            execution_options={"schema_translate_map": {DEFAULT_SCHEMA: schema}},
            async_creator=_opened,
        )
        if clock is not None:
            listen(self._engine.sync_engine, "before_execute", in_virtual_time(clock), retval=True)
        self._dsn = dsn
        self._keeps_state = session_state

    async def _open(self) -> _Reader:
        driver = await session_setup.connect(self._dsn, "progressor reads", keeps_state=self._keeps_state)
        self.role = driver.info.user
        token = _DRIVER.set(driver)
        try:
            with _as_the_driver_says():
                # SQLAlchemy's first connection asks the server for its version.
                return _Reader(driver, await self._engine.connect())
        except BaseException:
            await driver.close()
            raise
        finally:
            _DRIVER.reset(token)

    @asynccontextmanager
    async def reading(self, patience: float | None) -> AsyncIterator[AsyncConnection]:
        """Yield a connection for one read; StorageUnavailable if none was free in so many seconds."""
        async with self.acquire(patience) as reader:
            reader.is_idle = False
            with _as_the_driver_says():
                if not self._keeps_state:
                    # The transaction states the settings it relies on, and ends with the read.
                    await reader.driver.execute(session_setup.BEGIN)
                    await reader.driver.execute(session_setup.SETTINGS, session_setup.BOUNDED_TRANSACTION)
                yield reader.connection
                await reader.connection.rollback()
            reader.is_idle = True


@contextmanager
def _as_the_driver_says() -> Iterator[None]:
    """Raise the errors of psycopg in place of SQLAlchemy's, which contain SQL."""
    try:
        yield
    except DBAPIError as error:
        raise cast("psycopg.Error", error.orig) from None
