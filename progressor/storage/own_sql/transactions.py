"""Transactions that handlers share with the engine: begun for a step, and saved or rolled back with it.

Rule: the step is saved by the same statements as any other, behind the same fence, on the connection that
the handler had. The row of its process is locked for these last statements alone. A step that was not saved
leaves no row of its handler; whether an unanswered COMMIT was done is looked up behind the lock.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from progressor.errors.of_handlers import StepNotSaved
from progressor.model import Failure, Outcome, WantedConnection
from progressor.storage.operations import Storage
from progressor.storage.own_sql.drivers import Marked
from progressor.storage.own_sql.scopes import scope_of
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import ConnectionPool
from progressor.storage.postgres.sequences import ServersMet
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.postgres.session_setup import BOUNDED_TRANSACTION
from progressor.storage.postgres.sqlstates import ErrorClass, Unreadable
from progressor.storage.postgres.virtual_time import Clock
from progressor.storage.statements import STATEMENTS, Results, Transaction
from progressor.storage.steps.save import save
from progressor.storage.values import LostLease, Saved, Step
from progressor.supervision import watched

APPLICATION_NAME = "progressor step"

# What the statements that save rely on, whatever the handler has set.
_OWN_AGAIN: Transaction = {
    "step_reading": {},
    "reset_role": {},
    "settings": BOUNDED_TRANSACTION,
    "planner": {"is_local": True},
}
_OTHER_USER: Transaction = {"reset_authorization": {}, **_OWN_AGAIN}
_USER = b"session_authorization"
# How its transactions end.
_ENDS: Transaction = {"rollback": {}, "commit": {}}
# All that a session keeps beyond a transaction, but our own prepared statements. One message, so that the
# next step finds a session as it was opened.
_RESET = (
    b"CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; "
    b"SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; "
    + STATEMENTS["step_leftovers"].encode()
)
# Milliseconds; the longest time-out of PostgreSQL.
_LONGEST = 2**31 - 1
# Milliseconds that a transaction may last beyond step_timeout, idle and in all.
_IDLE_GRACE, _WHOLE_GRACE = 5_000, 10_000
_STEP_TIMEOUT = "StepTimeout"
# Seconds to cancel a statement that a handler left behind.
_CANCEL = 2.0


class _StepSession(Session):
    """The engine's use of a connection that a handler has in between: piped only in `speaking`.

    Its prepared statements have names that no handler gives to one of its own.
    """

    prefix = b"progressor."

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow], **options: Any) -> None:
        super().__init__(connection, **options)
        self._user = self._pgconn.parameter_status(_USER)

    async def transact(self, statements: Transaction, hints: Hints | None = None) -> Results:
        """Run these in the transaction that the handler got."""
        # A statement less for all who have not turned to another user: the server says at once who did.
        again = _OWN_AGAIN if self._pgconn.parameter_status(_USER) == self._user else _OTHER_USER
        whole = {**again, **statements}
        if self._keeps_state and not self._prepared.issuperset(whole):
            # Parsed with the role and the settings of the engine: with the handler's it may fail.
            await self._prepare({**_ENDS, **whole}, behind=again)
        return await self._send(whole, hints)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Have the engine use the connection in this block."""
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        try:
            yield
        finally:
            self.end_speaking()

    def end_speaking(self) -> None:
        self._watch.ignore()
        if self._is_quiet and not self.is_lost:
            self._pgconn.exit_pipeline_mode()

    def hang_up(self) -> None:
        """End the connection for the server, and for a thread that may still use it."""
        self._watch.hang_up()

    def drop(self) -> None:
        """Close it without asking the server, which was hung up on."""
        self._watch.close()
        self._pgconn.finish()


class StepConnection:
    """A connection of the pool, which a handler and the engine use in turn."""

    def __init__(self, base: psycopg.AsyncConnection[TupleRow], *, schema: str, keeps_state: bool) -> None:
        self._base = base
        self._keeps_state = keeps_state
        self.pgconn: Any = base.pgconn
        self.session = _StepSession(base, schema=schema, keeps_state=keeps_state)
        self.session.end_speaking()
        self._left_behind: Future[Any] | None = None
        self._is_clean = True
        self.is_worn = False
        """True if the next step must not have it, nor any that was opened before: as `ends_sessions`."""

    @property
    def is_idle(self) -> bool:
        """Return whether the next step can have it."""
        return (
            self._left_behind is None
            and self._is_clean
            and self.session.is_idle
            and self.pgconn.pipeline_status == pq.PipelineStatus.OFF
        )

    @property
    def is_open(self) -> bool:
        """Return whether a transaction is open on it that the engine can end."""
        open_ = (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)
        return (
            self._left_behind is None
            and self.pgconn.pipeline_status == pq.PipelineStatus.OFF
            and self.pgconn.transaction_status in open_
        )

    @property
    def is_lost(self) -> bool:
        """Return whether the server ended it: libpq may know that only by a pipeline that did not end."""
        return self.session.is_lost or self.pgconn.pipeline_status != pq.PipelineStatus.OFF

    @property
    def has_ended_at_rest(self) -> bool:
        return self.session.has_ended_at_rest

    async def abandon(self, thread: Future[Any]) -> None:
        """Take it from a handler whose thread goes on: the server rolls back, the thread gets an error."""
        self._left_behind = thread
        try:
            with suppress(psycopg.Error):
                await self._base.cancel_safe(timeout=_CANCEL)
        finally:
            self.session.hang_up()

    async def reset(self) -> None:
        """Forget what a handler left in the session; no other client of a pooler's session may feel it.

        One that cannot forget is closed as it is given back.
        """
        if not (self._keeps_state and self.is_idle):
            return
        try:
            found = await self._base.execute(_RESET)
            while found.nextset():
                pass
            row = await found.fetchone()
            if row is not None and row[0] is not None:
                await self._base.execute(row[0].encode())
        except psycopg.Error:
            self._is_clean = False

    async def close(self) -> None:
        thread = self._left_behind
        if thread is None or thread.done():
            await self.session.close()
        else:
            # libpq must not free what the thread still uses.
            loop = asyncio.get_running_loop()
            drop = watched("step", self.session.drop)

            def returned(_: Future[Any]) -> None:
                # The loop is closed if the engine is over.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(drop)

            thread.add_done_callback(watched("step", returned))


class StepTransaction:
    """The transaction of one step: its handler's first, then the engine's."""

    def __init__(
        self,
        connection: StepConnection,
        storage: Storage,
        wanted: WantedConnection,
        *,
        seconds: float,
        clock: Clock | None,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._clock = clock
        limit = max(1, min(int(seconds * 1000), _LONGEST - _WHOLE_GRACE))
        mark = secrets.token_hex(8)
        bounds = {
            "mark": mark,
            "statement_timeout": str(limit),
            "idle_timeout": str(limit + _IDLE_GRACE),
            "transaction_timeout": str(limit + _WHOLE_GRACE),
        }
        self._given = Marked(mark, bounds)
        self._is_left = False
        self.scope = scope_of(connection.pgconn, wanted, self._given)
        """The scope in which the handler has its connection."""

    async def leave_to(self, thread: Future[Any]) -> None:
        """End it under a plain function that runs on in its thread after its time, or a stop."""
        self._is_left = True
        await self._connection.abandon(thread)

    def settle(self, outcome: Outcome) -> None:
        """Raise StepNotSaved if the transaction failed beside the handler, or the connection was lost."""
        error_types = outcome.error_types if isinstance(outcome, Failure) else ()
        if self._is_left or _STEP_TIMEOUT in error_types:
            return
        if (failed := self._given.failed) is not None:
            raise StepNotSaved(str(failed), has_begun=failed.has_begun)
        if error_types and self.is_lost:
            when = "while the handler ran" if self._given.has_begun else "before the handler ran"
            reason = f"the connection was lost {when} ({error_types[0]})"
            raise StepNotSaved(reason, has_begun=self._given.has_begun)

    @property
    def can_be_saved(self) -> bool:
        """True if the handler was called and returned: else there is no transaction to be committed."""
        return self._given.is_whole

    @property
    def is_worn(self) -> bool:
        """True if the engine's own statements have found that its session must not be used again."""
        return self._given.is_worn

    @property
    def is_lost(self) -> bool:
        """True if the server has ended the connection, and with it the transaction.

        A pipeline that the handler left open is no loss, but its fault.
        """
        return self._connection.is_lost and (self._connection.session.is_lost or not self._given.is_piped)

    async def roll_back(self) -> None:
        """Roll back what the handler did; a connection that cannot is closed, which does the same."""
        if not self._connection.is_open:
            return
        session = self._connection.session
        # Where this fails, the connection is closed as it is given back.
        with suppress(psycopg.Error), session.speaking():
            await session.roll_back()

    async def save(self, step: Step) -> Saved | LostLease:
        """Save the step with the rows of its handler, and commit both.

        LostLease, StepNotSaved and InvalidRequest (PostgreSQL will never take the result): both are rolled
        back. Unreadable: both are committed, but the continuation cannot be read.
        """
        session = self._connection.session
        with session.speaking():
            try:
                (outcome,) = await save(session, False, steps=[step], now=self._now, tried=False)
                if isinstance(outcome, LostLease):
                    await session.roll_back()
                    return outcome
            except Unreadable:
                await self._commit(step)
                raise
            except psycopg.Error as error:
                raise await self._refused(error) from None
            return await self._commit(step) or outcome

    async def commit(self, statements: Transaction, needed: str) -> bool:
        """Run these behind what the handler did, and commit; False if `needed` returned no row.

        Then all is rolled back, as with every error. StepNotSaved: the connection was lost, and it may be
        committed or not. InvalidRequest: PostgreSQL will never take it.
        """
        session = self._connection.session
        with session.speaking():
            try:
                found = await session.transact(statements)
                if not found[needed]:
                    await session.roll_back()
                    return False
                await session.commit({})
            except psycopg.Error as error:
                raise await self._refused(error) from None
        return True

    @property
    def _now(self) -> datetime | None:
        return None if self._clock is None else self._clock()

    async def _commit(self, step: Step) -> Saved | LostLease | None:
        """Commit; return the outcome if it had to be looked up, because the answer was lost."""
        try:
            await self._connection.session.commit({})
        except psycopg.Error as error:
            if sqlstates.is_definite(error):
                raise await self._refused(error) from None
        else:
            self._storage.outage.worked()
            return None
        outcome = await self._storage.saved_before(step)
        if isinstance(outcome, LostLease) and not outcome.removed:
            raise StepNotSaved("the connection was lost at COMMIT, which was not done")
        return outcome

    async def _refused(self, error: psycopg.Error) -> Exception:
        """Roll back, and return the error of a step that PostgreSQL did not save."""
        with suppress(psycopg.Error):
            await self._connection.session.roll_back()
        rule = sqlstates.judged(error)
        self._connection.is_worn |= rule.ends_sessions
        # Class 25: the handler made its transaction read-only.
        is_handlers = sqlstates.is_definite(error) and (error.sqlstate or "").startswith("25")
        if rule.meaning in (ErrorClass.VALUE, ErrorClass.DEFECT) or is_handlers:
            return sqlstates.refused(error)
        return StepNotSaved(said_by(error))


class StepTransactions(ConnectionPool[StepConnection]):
    """The connections of handlers that run SQL of their own, opened when a step needs one."""

    def __init__(
        self,
        dsn: str,
        storage: Storage,
        *,
        limit: int,
        schema: str,
        session_state: bool,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(limit=limit)
        self._dsn = dsn
        self._storage = storage
        self._schema, self._met = schema, ServersMet(schema)
        self._keeps_state = session_state
        self._clock = clock

    async def _open(self) -> StepConnection:
        # Without settings: the handler finds its role's own search_path, time zone and planner.
        base = await session_setup.connect(self._dsn, APPLICATION_NAME, keeps_state=False, look=self._met)
        self.role = base.info.user
        made = partial(StepConnection, base, schema=self._schema, keeps_state=self._keeps_state)
        return await session_setup.made_on(base, made)

    @asynccontextmanager
    async def transaction(
        self, wanted: WantedConnection, *, seconds: float
    ) -> AsyncIterator[StepTransaction]:
        """Yield the transaction of a step whose handler may run for so long.

        StepNotSaved if no connection can be opened.
        """
        try:
            connection = await self.take()
        except psycopg.Error as error:
            self._storage.outage.failed(said_by(error), operation="step with its own SQL")
            raise StepNotSaved(said_by(error), has_begun=False) from None
        self._storage.outage.worked(in_part=True)
        own = StepTransaction(connection, self._storage, wanted, seconds=seconds, clock=self._clock)
        try:
            try:
                with nullcontext() if self._clock is None else self._clock.look.sending():
                    yield own
            except Exception:
                # Not on a cancellation, which waits for nothing: the connection is closed.
                await own.roll_back()
                await connection.reset()
                raise
            await own.roll_back()
            await connection.reset()
        finally:
            worn = connection.is_worn or own.is_worn
            await self.give_back(connection, ended=connection.is_lost or worn)
