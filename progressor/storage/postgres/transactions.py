"""Transactions: an operation runs on a session of its own, and is repeated if need be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar, Unpack

import psycopg

from progressor import metrics
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.retry import Retry, Trying, lasting
from progressor.storage.postgres.server_identity import Reach, outage_of, said_by
from progressor.storage.postgres.sqlstates import Blocked, judged
from progressor.storage.statements import Results, Row, Transaction

T = TypeVar("T")
F = TypeVar("F", bound="Flight")
Attempt = Callable[[Session, bool], Awaitable[T]]
"""One try, given a session and whether there was a try before."""


class Doubtful(Exception):
    """Raised when a flight failed: whether it was committed can be looked up."""


class Flight(Protocol):
    """An open transaction in which handlers run."""

    @property
    def has_saved(self) -> bool:
        """Return whether it has saved a request or a step."""

    async def begin(self) -> None:
        """Open the transaction."""


class Transactions:
    """The base of all operations on one database.

    `patience` bounds how long an operation is repeated while PostgreSQL cannot be reached; then it raises
    StorageUnavailable. Others on the same connections share the `outage`, so that it is said once.
    """

    def __init__(
        self, connections: SessionPool, *, patience: timedelta, outage: Reach | None = None
    ) -> None:
        self._connections = connections
        self._patience = patience.total_seconds()
        self.outage = outage_of(connections.dsn) if outage is None else outage

    def _run(self, verb: str, attempt: Attempt[T], **how: Unpack[Trying]) -> Coroutine[Any, Any, T]:
        """Attempt an operation until it is done, with the patience of all unless it has one of its own."""
        how.setdefault("patience", self._patience)
        tries = Retry(verb, self._connections, self.outage, **how)
        return tries.run(self._connections.acquire, attempt)

    def _transact(
        self, verb: str, statements: Transaction, *, hints: Hints | None = None, **how: Unpack[Trying]
    ) -> Coroutine[Any, Any, Results]:
        """Run one transaction, with the same statements and hints at each try; return the rows."""
        return self._run(verb, lambda session, _again: session.transact(statements, hints), **how)

    @asynccontextmanager
    async def _flight(self, made: Callable[[Session], F], *, is_batch: bool = False) -> AsyncIterator[F]:
        """Open the transaction of a flight, once; Doubtful if PostgreSQL or the connection failed.

        Blocked if it is one of a batch and waited for a lock in vain: it was not committed.
        """
        try:
            async with self._connections.acquire() as session:
                flight = made(session)
                try:
                    await flight.begin()
                    yield flight
                except Exception:
                    # Not on a cancellation, which waits for nothing: the connection is closed.
                    await session.roll_back()
                    raise
        except psycopg.Error as error:
            final = lasting(error, role=self._connections.role)
            if final is not None:
                raise final from None
            metrics.STORAGE_REPETITIONS.inc()
            if is_batch and judged(error).is_blocked:
                raise Blocked(said_by(error)) from None
            raise Doubtful from None
        self.outage.worked(in_part=not flight.has_saved)

    async def _rows(self, verb: str, /, **params: Any) -> list[Row]:
        """Run one statement, which needs no lock before it, as a transaction; return its rows."""
        return (await self._transact(verb, {verb: params}))[verb]
