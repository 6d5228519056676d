"""Connections of psycopg that handlers get: they cannot end the transaction of the step.

Rule: a driver lives for one step. It shares its `pgconn` with the engine, which never uses it while the
handler does, and does nothing any more once the step is over, whatever the handler left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from progressor.errors import StepTransactionError
from progressor.errors.of_handlers import TransactionFailed
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.postgres.sqlstates import is_definite, judged
from progressor.storage.statements import STATEMENTS, Params

_BEGIN, _GUARDS = STATEMENTS["begin"].encode(), STATEMENTS["step_guards"].encode()
_BEGUN = STATEMENTS["step_begun"].encode()
_TIMEOUT = STATEMENTS["check_timeout"].encode()
_CONSTRAINTS, _MARK = STATEMENTS["constraints"].encode(), STATEMENTS["step_mark"].encode()


class Stage(Enum):
    """The stages of a driver: nothing has begun, the handler has it, or it is closed."""

    OPENING = auto()
    LENT = auto()
    CLOSED = auto()


@dataclass(slots=True)
class Marked:
    """The mark and the bounds of a transaction, and how its handler ended."""

    mark: str
    params: Params
    has_begun: bool = False
    """True once the handler has had it."""
    is_whole: bool = False
    """True once the handler has returned, and all that it did can be committed."""
    is_piped: bool = False
    """True if the handler ended amid a pipeline of psycopg."""
    is_worn: bool = False
    """True if the session must not be used again."""
    failed: TransactionFailed | None = None
    """The failure of a statement of the engine, also if something between has made another error of it."""


# Classes of errors of the server after which the check of constraints is repeated with its handler. What
# else a deferred trigger raises is the handler's failure: it would come again.
_PASSING = ("40", "53", "57", "58", "XX")


@contextmanager
def _by_engine(given: Marked) -> Iterator[None]:
    """Raise TransactionFailed for errors of the engine's own statements that pass."""
    try:
        yield
    except psycopg.Error as error:
        rule = judged(error)
        is_triggers = given.has_begun and is_definite(error) and (error.sqlstate or "")[:2] not in _PASSING
        if rule.meaning.is_final or is_triggers:
            raise
        given.is_worn |= rule.ends_sessions
        given.failed = TransactionFailed(said_by(error), has_begun=given.has_begun)
        raise given.failed from None


class _Driver(psycopg.BaseConnection[TupleRow]):
    """The rules that both kinds of drivers keep."""

    # As for a connection of a pool: psycopg does not warn of one that is dropped while `pgconn` is open.
    _pool = None

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        # The transaction is begun and ended by the engine.
        self._autocommit = True
        self.prepare_threshold = None
        self.stage = Stage.OPENING

    @property
    def is_piped(self) -> bool:
        """True while the handler is amid a pipeline, or has left it open."""
        return self._pipeline is not None

    def _check_pipeline(self) -> None:
        """Raise StepTransactionError if the handler has left a pipeline open."""
        if self.is_piped:
            raise StepTransactionError(
                "the handler returned amid a pipeline of psycopg, so what it sent may not be done: "
                "use `with connection.pipeline():`, which ends it"
            )

    def _check_usable(self) -> None:
        if self.stage is Stage.CLOSED:
            raise psycopg.InterfaceError("the connection of the step is closed")

    def _refuse(self, what: str) -> None:
        """Refuse to end the transaction; do nothing for SQLAlchemy before and after it."""
        if self.stage is Stage.LENT:
            raise StepTransactionError(
                f"{what} would end the transaction of the step, which is committed with the step's result, "
                "or rolled back if the handler raises: leave it out, or use a savepoint"
            )

    def _check_status(self) -> None:
        """Raise StepTransactionError if nothing can be saved, as far as the client knows."""
        match self.info.transaction_status:
            case pq.TransactionStatus.INERROR:
                raise StepTransactionError(
                    "the handler returned although an error has aborted the transaction of the step: "
                    "let the error pass, or run what may fail in a savepoint"
                )
            case pq.TransactionStatus.IDLE:
                raise _ended()


def _ended() -> StepTransactionError:
    return StepTransactionError("the handler ended the transaction of the step (COMMIT or ROLLBACK)")


def _closed() -> StepTransactionError:
    return StepTransactionError("the connection of the step was closed while the handler ran")


def _check_mark(found: pq.abc.PGresult | None, given: Marked) -> None:
    # As bytes: in the encoding of the handler it may not be a text.
    if found is None or found.get_value(0, 0) != given.mark.encode():
        raise _ended()
    given.is_whole = True


class AsyncDriver(_Driver, psycopg.AsyncConnection[TupleRow]):
    """The connection of an async handler."""

    async def wait(self, *args: Any, **more: Any) -> Any:
        self._check_usable()
        return await super().wait(*args, **more)

    async def commit(self) -> None:
        self._refuse("commit()")

    async def rollback(self) -> None:
        self._refuse("rollback()")

    async def close(self) -> None:
        self.stage = Stage.CLOSED

    async def begin(self, given: Marked) -> None:
        """Begin the transaction, and hand it to the handler."""
        with _by_engine(given):
            async with self.pipeline():
                await self.execute(_BEGIN)
                await self.execute(_GUARDS, given.params)
                await self.execute(_BEGUN)
        self.stage = Stage.LENT
        given.has_begun = True

    async def take_back(self) -> None:
        """Take it from the handler, when a statement that it left behind has ended."""
        if self.stage is Stage.CLOSED:
            raise _closed()
        self.stage = Stage.CLOSED
        self._check_pipeline()
        async with self.lock:
            pass

    async def check(self, given: Marked) -> None:
        """Raise StepTransactionError if the transaction cannot be saved, or what a constraint raises."""
        self._check_status()
        with _by_engine(given):
            async with self.pipeline():
                await self.execute(_TIMEOUT, given.params)
                await self.execute(_CONSTRAINTS)
                found = await self.execute(_MARK)
        _check_mark(found.pgresult, given)


class BlockingDriver(_Driver, psycopg.Connection[TupleRow]):
    """The connection of a plain function, used in its thread."""

    def wait(self, *args: Any, **more: Any) -> Any:
        self._check_usable()
        return super().wait(*args, **more)

    def commit(self) -> None:
        self._refuse("commit()")

    def rollback(self) -> None:
        self._refuse("rollback()")

    def close(self) -> None:
        self.stage = Stage.CLOSED

    def begin(self, given: Marked) -> None:
        """Begin the transaction, and hand it to the handler."""
        with _by_engine(given), self.pipeline():
            self.execute(_BEGIN)
            self.execute(_GUARDS, given.params)
            self.execute(_BEGUN)
        self.stage = Stage.LENT
        given.has_begun = True

    def take_back(self) -> None:
        """Take it from the handler, when a statement that it left behind has ended."""
        if self.stage is Stage.CLOSED:
            raise _closed()
        self.stage = Stage.CLOSED
        self._check_pipeline()
        with self.lock:
            pass

    def check(self, given: Marked) -> None:
        """Raise StepTransactionError if the transaction cannot be saved, or what a constraint raises."""
        self._check_status()
        with _by_engine(given), self.pipeline():
            self.execute(_TIMEOUT, given.params)
            self.execute(_CONSTRAINTS)
            found = self.execute(_MARK)
        _check_mark(found.pgresult, given)
