"""Transactions: an operation runs on a session of its own, and is repeated if need be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from progressor.outages import Outage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.retry import Apart, Retry, as_one, never
from progressor.storage.postgres.server_identity import outage_of
from progressor.storage.statements import Results, Row, Transaction

T = TypeVar("T")
Attempt = Callable[[Session, bool], Awaitable[T]]
"""One try, given a session and whether there was a try before."""


class Transactions:
    """The base of all operations on one database.

    `patience` bounds how long an operation is repeated while PostgreSQL cannot be reached; then it raises
    StorageUnavailable. Others on the same connections share the `outage`, so that it is said once.
    """

    def __init__(
        self, connections: SessionPool, *, patience: timedelta, outage: Outage | None = None
    ) -> None:
        self._connections = connections
        self._patience = patience.total_seconds()
        self.outage = outage_of(connections.dsn) if outage is None else outage

    async def _run(
        self,
        verb: str,
        attempt: Attempt[T],
        *,
        patience: float | None,
        holds: Callable[[], bool] = never,
        apart: Apart = as_one,
    ) -> T:
        tries = Retry(verb, self._connections, self.outage, patience=patience, holds=holds, apart=apart)
        return await tries.run(self._connections.acquire, attempt)

    async def _transact(
        self,
        verb: str,
        statements: Transaction,
        *,
        patience: float | None,
        holds: Callable[[], bool] = never,
        apart: Apart = as_one,
        hints: Hints | None = None,
    ) -> Results:
        """Run one transaction, with the same statements and hints at each try; return the rows."""

        async def attempt(session: Session, _again: bool) -> Results:
            return await session.transact(statements, hints)

        return await self._run(verb, attempt, patience=patience, holds=holds, apart=apart)

    async def _rows(self, verb: str, **params: Any) -> list[Row]:
        """Return the rows of one statement that locks nothing."""
        return (await self._transact(verb, {verb: params}, patience=self._patience))[verb]
