"""One Storage and one database for all examples of a machine, emptied in between.

Rule: a machine is synchronous and Storage is not; the loop lives here, as long as the machine's run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar
from unittest import mock

import psycopg
from psycopg.conninfo import make_conninfo

from progressor.storage import repetition
from progressor.storage.operations import Storage
from tests.model.oracle import Rows
from tests.support import LossyConnections, Tables, nothing

T = TypeVar("T")
TABLES = (
    "processes",
    "removed_processes",
    "tasks",
    "schedule",
    "running",
    "events",
    "workers",
    "namespaces",
)
ROWS = {
    "processes": """
        SELECT process_no, n.name, process_id, status, previous_status, status_changed_at, created_at,
            detail, aux_state, metadata, corrupted_by, last_event_id
        FROM processes LEFT JOIN namespaces AS n USING (namespace_no)""",
    "removed": "SELECT process_no, namespace, process_id, kept_until FROM removed_processes",
    "tasks": """
        SELECT process_no, task_id, task_type, status, scheduled_time, running_time, finished_time, name,
            idempotency_key, reply_to, response, error, last_retry_interval, attempts_count, worker_id,
            lease, zombie_count FROM tasks""",
    "schedule": """
        SELECT process_no, task_id, n.name, task_type, scheduled_time, claimable
        FROM schedule LEFT JOIN namespaces AS n USING (namespace_no)""",
    "running": "SELECT process_no, task_id, task_type, worker_id, lease, running_time FROM running",
    "events": "SELECT process_no, event_id, task_id FROM events",
}


class World:
    """Storage whose connections can be lost, and what its tables say."""

    def __init__(self, dsn: str, connection: psycopg.Connection, runner: asyncio.Runner) -> None:
        self.dsn = dsn
        self.connection = connection
        self.tables = Tables(connection)
        self.lossy = LossyConnections(dsn, limit=2)
        self.storage = Storage(self.lossy, patience=timedelta(seconds=30))
        self._runner = runner
        self._examples = 0

    def run(
        self,
        operation: Callable[[Storage], Awaitable[T]],
        loss: str = "",
        *,
        spared: int = 0,
        meanwhile: Callable[[], Awaitable[object]] = nothing,
    ) -> T:
        """Run one operation, whose connection is lost before (`early`) or after its commit (`late`).

        So many of its transactions go well before; `meanwhile` happens before what was lost is repeated.
        """
        self.lossy.early, self.lossy.late = int(loss == "early"), int(loss == "late")
        self.lossy.spared, self.lossy.meanwhile = spared, meanwhile

        async def run() -> T:
            return await operation(self.storage)

        result = self._runner.run(run())
        assert (self.lossy.early, self.lossy.late) == (0, 0), "nothing was repeated"
        return result

    def empty(self) -> None:
        """Forget everything: by DELETE, which is quick, and now and then by TRUNCATE, which tidies up."""
        self._examples += 1
        if self._examples % 200 == 0:
            self.connection.execute(b"TRUNCATE " + b", ".join(name.encode() for name in TABLES))
            return
        with self.connection.pipeline():
            for name in TABLES:
                self.connection.execute(b"DELETE FROM " + name.encode())

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
        mock.patch.object(repetition, "_FIRST_PAUSE", 0.0),
        psycopg.connect(quick, autocommit=True) as connection,
        asyncio.Runner() as runner,
    ):
        made = World(quick, connection, runner)
        try:
            yield made
        finally:
            runner.run(made.lossy.close())
