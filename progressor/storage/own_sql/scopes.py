"""The scopes in which handlers have their connections, one for each colour of function.

Rule: the transaction begins after SQLAlchemy has asked the server what it wants to know, and SQLAlchemy
lets go of the connection before the engine saves the step on it. The check uses a driver of its own: the
handler's is closed by then, and nothing that the handler left behind can come in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from psycopg import pq

from progressor.model import WantedConnection
from progressor.storage.own_sql.drivers import AsyncDriver, BlockingDriver, Marked

# A session's commit() and rollback() end a savepoint, as code that is also used elsewhere may want to; its
# objects stay readable.
_SESSION: dict[str, Any] = {"join_transaction_mode": "create_savepoint", "expire_on_commit": False}


def scope_of(
    pgconn: pq.abc.PGconn, wanted: WantedConnection, given: Marked
) -> AbstractAsyncContextManager[Any] | AbstractContextManager[Any]:
    """Return the scope of a handler's connection: an async one for an async handler.

    StepTransactionError, or what a deferred constraint raises, at its end, if nothing can be saved.
    """
    return (_async_scope if wanted.is_async else _blocking_scope)(pgconn, wanted, given)


@asynccontextmanager
async def _async_scope(
    pgconn: pq.abc.PGconn, wanted: WantedConnection, given: Marked
) -> AsyncIterator[Any]:
    driver = AsyncDriver(pgconn)
    try:
        async with _adapted(driver, wanted, given) as connection:
            yield connection
    finally:
        given.is_piped = driver.is_piped
        await driver.close()
    checking = AsyncDriver(pgconn)
    try:
        await checking.check(given)
    finally:
        await checking.close()


@asynccontextmanager
async def _adapted(driver: AsyncDriver, wanted: WantedConnection, given: Marked) -> AsyncIterator[Any]:
    if wanted.kind == "psycopg":
        await driver.begin(given)
        yield driver
        await driver.take_back()
        return
    from progressor.storage.own_sql import engines  # noqa: PLC0415 - few need SQLAlchemy

    async with engines.connected(driver) as connection:
        try:
            await driver.begin(given)
            await connection.begin()
            if wanted.kind == "session":
                session = wanted.type(bind=connection, **_SESSION)
                yield session
                await session.commit()
            else:
                yield connection
            await driver.take_back()
        finally:
            # What SQLAlchemy rolls back from here on does nothing.
            await driver.close()


@contextmanager
def _blocking_scope(pgconn: pq.abc.PGconn, wanted: WantedConnection, given: Marked) -> Iterator[Any]:
    driver = BlockingDriver(pgconn)
    try:
        with _adapted_blocking(driver, wanted, given) as connection:
            yield connection
    finally:
        given.is_piped = driver.is_piped
        driver.close()
    checking = BlockingDriver(pgconn)
    try:
        checking.check(given)
    finally:
        checking.close()


@contextmanager
def _adapted_blocking(driver: BlockingDriver, wanted: WantedConnection, given: Marked) -> Iterator[Any]:
    if wanted.kind == "psycopg":
        driver.begin(given)
        yield driver
        driver.take_back()
        return
    from progressor.storage.own_sql import engines  # noqa: PLC0415 - few need SQLAlchemy

    with engines.connected_blocking(driver) as connection:
        try:
            driver.begin(given)
            connection.begin()
            if wanted.kind == "session":
                session = wanted.type(bind=connection, **_SESSION)
                yield session
                session.commit()
            else:
                yield connection
            driver.take_back()
        finally:
            # What SQLAlchemy rolls back from here on does nothing.
            driver.close()
