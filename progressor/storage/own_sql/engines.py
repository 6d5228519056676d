"""SQLAlchemy around the connections of psycopg that handlers get. Imported when the first handler wants it.

Rule: SQLAlchemy opens, pools and closes nothing. It gets the driver of a step, and its own commits and
rollbacks reach that driver, which knows when to refuse them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from progressor.errors import StepTransactionError
from progressor.storage.own_sql.drivers import AsyncDriver, BlockingDriver, Stage

_URL = "postgresql+psycopg://"
# hstore is read as text by SQLAlchemy itself: psycopg's own way is registered with a connection.
_OPTIONS: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True, "use_native_hstore": False}

_driver: ContextVar[AsyncDriver | BlockingDriver] = ContextVar("progressor_driver")


def _given() -> Any:
    driver = _driver.get()
    if driver.stage is not Stage.OPENING:
        # SQLAlchemy connects anew after a cancelled statement: the transaction would be another one.
        raise StepTransactionError("the connection of the step is closed: it was cancelled, or invalidated")
    return driver


async def _given_async() -> Any:
    return _given()


@cache
def _async_engine() -> AsyncEngine:
    return create_async_engine(_URL, async_creator=_given_async, **_OPTIONS)


@cache
def _engine() -> Engine:
    return create_engine(_URL, creator=_given, **_OPTIONS)


@asynccontextmanager
async def connected(driver: AsyncDriver) -> AsyncIterator[AsyncConnection]:
    """Yield a connection of SQLAlchemy on this driver, and let go of it."""
    token = _driver.set(driver)
    try:
        async with _async_engine().connect() as connection:
            yield connection
    finally:
        _driver.reset(token)


@contextmanager
def connected_blocking(driver: BlockingDriver) -> Iterator[Connection]:
    """Yield a connection of SQLAlchemy on this driver, and let go of it."""
    token = _driver.set(driver)
    try:
        with _engine().connect() as connection:
            yield connection
    finally:
        _driver.reset(token)
