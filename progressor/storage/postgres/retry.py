"""Retries of operations and reads: which ones are tried again, and when.

Rule: an operation on tasks that a worker holds, or may hold without knowing, is repeated until PostgreSQL
does it; any other for as long as there is patience. An error with a lasting reason is raised at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto
from typing import Any, TypedDict, TypeVar

import psycopg

from progressor import metrics
from progressor.errors import ProgressorError, StorageUnavailable
from progressor.outages import in_one_line
from progressor.storage.postgres import sqlstates
from progressor.storage.postgres.pool import ConnectionPool
from progressor.storage.postgres.server_identity import Reach, said_by
from progressor.storage.postgres.sqlstates import BatchRefused, Blocked, ErrorClass, ErrorRule

C = TypeVar("C")
T = TypeVar("T")

# Seconds between two tries: the first pause, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


def always() -> bool:
    """Return True, as `holds` of an operation on tasks of a worker, which is never given up."""
    return True


def never() -> bool:
    """Return False, as `holds` of an operation that leaves no task in a worker's hands."""
    return False


class Saves(Enum):
    """The kinds of operations: they save requests or steps, in a batch or one alone; or neither."""

    NOTHING = auto()
    BATCH = auto()
    ONE = auto()


Apart = Callable[[ErrorRule], bool]
"""A test of an error: may one item be the cause? After two such errors each item is tried alone.

After a lock that was waited for in vain it is so at once: meanwhile the others have waited too.
"""


def as_one(_rule: ErrorRule) -> bool:
    """Return False: for operations whose items are never tried alone."""
    return False


def one_item(rule: ErrorRule) -> bool:
    """Return whether one item may be the cause: for batches, of one item too, that others wait for."""
    return rule.of_one_item


def damage(rule: ErrorRule) -> bool:
    """Return whether it means damage.

    For lone items, and for claims, which would choose the same tasks again.
    """
    return rule.is_damage


def damage_or_lock(rule: ErrorRule) -> bool:
    """Return whether it means damage, or a lock that was waited for in vain.

    For lone items that others come after, and that can be left for later.
    """
    return rule.is_damage or rule.is_blocked


def lasting(error: psycopg.Error, *, role: str | None, goes_on: bool = False) -> ProgressorError | None:
    """Return the error of a refusal that no other try will change; None: try again.

    `goes_on`: the operation must not be given up, so an error that an operator can mend is tried again.
    """
    meaning = sqlstates.judged(error).meaning
    if not meaning.is_final or (goes_on and meaning.is_for_an_operator):
        return None
    return _translated(error, role)


def _translated(error: psycopg.Error, role: str | None) -> ProgressorError:
    return sqlstates.translated(error, role=role, needs=sqlstates.TO_RUN)


class Trying(TypedDict, total=False):
    """The keywords of a Retry: how an operation is tried."""

    patience: float | None
    holds: Callable[[], bool]
    apart: Apart
    saves: Saves


class Retry:
    """The tries of one operation, on connections of this pool.

    `patience` is in seconds, None: without end. `holds` returns whether a worker holds tasks of it already.
    """

    def __init__(
        self,
        verb: str,
        pool: ConnectionPool[Any],
        outage: Reach,
        *,
        patience: float | None,
        holds: Callable[[], bool] = never,
        apart: Apart = as_one,
        saves: Saves = Saves.NOTHING,
    ) -> None:
        self._verb = verb
        self._pool = pool
        self._outage = outage
        self._patience = patience
        self._holds = holds
        self._apart = apart
        self._saves = saves
        self._started = time.monotonic()
        self._pause = _FIRST_PAUSE
        self._was_refused = False
        self._doubtful = False
        self._again = False

    async def run(
        self,
        acquire: Callable[[float | None], AbstractAsyncContextManager[C]],
        attempt: Callable[[C, bool], Awaitable[T]],
    ) -> T:
        """Attempt it, each time on another connection, until it is done; return its result.

        `acquire` gets the seconds that it may wait for a connection, None for a wait without end.
        `attempt` gets True if there was a try before, which may have been committed. Raises BatchRefused,
        the translated error if that is final, and StorageUnavailable when the patience is over.
        """
        while True:
            try:
                async with acquire(self._left) as connection:
                    result = await attempt(connection, self._again)
            except psycopg.Error as error:
                await self._failed(error)
            else:
                # Reads and heartbeats go through while a disk is full, or a table locked.
                self._outage.worked(in_part=self._saves is Saves.NOTHING)
                return result

    async def _failed(self, error: psycopg.Error) -> None:
        """Wait until the next try is due; raise if there is to be none."""
        rule = sqlstates.judged(error)
        self._doubtful = self._doubtful or not sqlstates.is_definite(error)
        if (final := lasting(error, role=self._pool.role, goes_on=self._must_go_on)) is not None:
            if rule.meaning.is_for_an_operator and self._saves is not Saves.NOTHING:
                # The caller is told; but nobody can save anything here before somebody mends it.
                self._outage.withheld(in_one_line(str(final)), operation=self._verb)
            raise final from None
        gives_up = self._left == 0
        if self._apart(rule):
            if rule.is_blocked:
                # A second wait would tell no more, and others wait meanwhile.
                raise Blocked(said_by(error)) from None
            if self._was_refused:
                raise BatchRefused(said_by(error)) from None
            self._was_refused = True
        # The first failure may be of a connection that an earlier outage ended: that is no outage now.
        counts = self._again or gives_up or rule.of_one_item
        if self._saves is Saves.ONE and rule.is_blocked:
            self._outage.held_back(said_by(error), operation=self._verb)
        elif counts and rule.meaning is not ErrorClass.CONFLICT:
            cause = said_by(error)
            if rule.meaning.is_for_an_operator:
                cause = in_one_line(str(_translated(error, self._pool.role)))
            self._outage.failed(cause, operation=self._verb)
        if gives_up:
            raise StorageUnavailable(
                f"PostgreSQL did not do it within {self._patience or 0:g} s: {said_by(error)}"
            ) from None
        self._again = True
        metrics.STORAGE_REPETITIONS.inc()
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    @property
    def _left(self) -> float | None:
        if self._patience is None:
            return None
        return max(0.0, self._patience - (time.monotonic() - self._started))

    @property
    def _must_go_on(self) -> bool:
        # A try whose answer was lost may have put tasks into a worker's hands.
        return self._holds() or (self._doubtful and self._patience is None)
