"""One Storage and one database for all examples of a machine, emptied in between.

Rule: a machine is synchronous and Storage is not; the loop lives here, as long as the machine's run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar
from unittest import mock

import psycopg
from psycopg.conninfo import make_conninfo

from progressor.storage.operations import Storage
from progressor.storage.outbox import Outbox
from progressor.storage.postgres import retry
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from tests.model.oracle import Rows
from tests.support import LossyConnections, Tables, nothing

T = TypeVar("T")
_SEND = Session._send
TABLES = (
    "processes",
    "removed_processes",
    "kept_answers",
    "tasks",
    "schedule",
    "running",
    "events",
    "workers",
    "namespaces",
    "groups",
    "rates",
    "retention",
    "samples",
    "task_marks",
    "outbox",
    "feed",
    "feed_leftovers",
    "subscriptions",
    "subscription_slices",
    "subscription_readers",
    "parked",
)
ROWS = {
    "processes": """
        SELECT process_no, n.name, process_id, status, previous_status, status_changed_at, created_at,
            detail, aux_state, metadata, corrupted_by, last_event_id
        FROM processes LEFT JOIN namespaces AS n USING (namespace_no)""",
    "removed": "SELECT process_no, namespace, process_id, kept_until FROM removed_processes",
    "tasks": """
        SELECT process_no, task_id, task_type, status, scheduled_time, running_time, finished_time, name,
            idempotency_key, reply_to, response, error, last_retry_interval,
            coalesce(attempts_count, 0) AS attempts_count, worker_id, lease, zombie_count,
            CASE WHEN task_type IN ('timeout', 'remove') THEN args END AS occurrence
        FROM tasks""",
    "schedule": """
        SELECT process_no, task_id, n.name, task_type, scheduled_time, claimable, timer,
            coalesce(order_time, scheduled_time) AS order_time, held_time, group_key
        FROM schedule AS s LEFT JOIN namespaces AS n USING (namespace_no)
        LEFT JOIN groups AS g ON g.group_no = s.group_no""",
    "running": """
        SELECT process_no, task_id, task_type, worker_id, lease, running_time, group_key
        FROM running LEFT JOIN groups USING (group_no)""",
    # But for those that stay for readers of the feed.
    "events": """
        SELECT process_no, event_id, task_id FROM events
        WHERE process_no NOT IN (SELECT process_no FROM feed_leftovers)""",
    "leftovers": "SELECT process_no, kept_until FROM feed_leftovers",
    "swept": "SELECT process_no, first_event_id, swept_until FROM processes",
}


class World:
    """Storage whose connections can be lost, and what its tables say."""

    def __init__(self, dsn: str, connection: psycopg.Connection, runner: asyncio.Runner) -> None:
        self.dsn = dsn
        self.connection = connection
        self.tables = Tables(connection)
        self.lossy = LossyConnections(dsn, limit=2)
        self.storage = Storage(self.lossy, patience=timedelta(seconds=30))
        self.outbox = Outbox(self.lossy, patience=timedelta(seconds=30))
        self.sent: list[tuple[str, ...]] = []
        """The transactions of the operation that ran last, by their statements."""
        self.ways = Counter[str]()
        """How often things went which way, over all examples."""
        self._torn: str | None = None
        self._runner = runner
        self._examples = 0

    def run(
        self,
        operation: Callable[[Storage], Awaitable[T]],
        loss: str = "",
        *,
        spared: int = 0,
        torn: str | None = None,
        meanwhile: Callable[[], Awaitable[object]] = nothing,
    ) -> T:
        """Run one operation, whose connection is lost before (`early`) or after its commit (`late`).

        So many of its transactions go well before; `meanwhile` happens before what was lost is repeated.
        `torn`: its connection ends in the middle, instead of sending the message with that statement.
        """
        self.lossy.early, self.lossy.late = int(loss == "early"), int(loss == "late")
        self.lossy.spared, self.lossy.meanwhile = spared, meanwhile
        self._torn = torn
        self.sent.clear()

        async def run() -> T:
            return await operation(self.storage)

        try:
            return self._runner.run(run())
        finally:
            assert (self.lossy.early, self.lossy.late, self._torn) == (0, 0, None), "nothing was lost"

    async def _send(self, session: Session, statements: Transaction, hints: Hints | None) -> Results:
        # Or a variant of it.
        if self._torn is not None and any(name.startswith(self._torn) for name in statements):
            self._torn = None
            # As if its process had been killed: PostgreSQL finds out when it reads.
            await session.close()
            raise psycopg.OperationalError("the connection was lost in the middle")
        self.sent.append(tuple(statements))
        return await _SEND(session, statements, hints)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Know what sessions send."""

        async def send(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
            return await self._send(session, statements, hints)

        with mock.patch.object(Session, "_send", send):
            yield

    def empty(self) -> None:
        """Forget everything: by DELETE, which is quick, and now and then by TRUNCATE, which tidies up."""
        self._examples += 1
        if self._examples % 200 == 0:
            self.connection.execute(b"TRUNCATE " + b", ".join(name.encode() for name in TABLES))
        with self.connection.pipeline():
            for name in TABLES:
                self.connection.execute(b"DELETE FROM " + name.encode())
            self.connection.execute("UPDATE feed_head SET position = 0, dropped = 0")

    def rows(self) -> Rows:
        """All rows of the tables, as the oracle writes them."""
        with self.connection.pipeline():
            cursors = {name: self.connection.execute(sql) for name, sql in ROWS.items()}
            return {name: cursor.fetchall() for name, cursor in cursors.items()}


@contextmanager
def world(dsn: str) -> Iterator[World]:
    """A world on this database, which must be nobody else's."""
    # The disk is not what is examined here.
    quick = make_conninfo(dsn, options="-c synchronous_commit=off")
    with (
        mock.patch.object(retry, "_FIRST_PAUSE", 0.0),
        psycopg.connect(quick, autocommit=True) as connection,
        asyncio.Runner() as runner,
    ):
        made = World(quick, connection, runner)
        try:
            with made.watching():
                yield made
        finally:
            runner.run(made.lossy.close())
