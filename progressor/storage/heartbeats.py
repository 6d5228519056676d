"""Heartbeats: a process's row in `workers`, written over a blocking connection of the heartbeat thread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import ProgressorError, StorageUnavailable
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, in_one_line
from progressor.storage.postgres import session_setup, sqlstates
from progressor.storage.postgres.arrays import microseconds
from progressor.storage.postgres.dsn import parsed
from progressor.storage.postgres.server_identity import outage_of, said_by
from progressor.storage.rows import RenewedRow
from progressor.storage.statements import STATEMENTS, in_schema
from progressor.storage.values import Beat

log = Logger("progressor.heartbeat")

Borrow = Callable[[Mapping[str, Any]], RenewedRow | None]
"""A function that renews the row on another connection; None: it cannot."""

_BORROWING = OutageLines(
    "heartbeat has no connection of its own, it borrows one",
    "heartbeat still borrows a connection",
    "heartbeat has a connection of its own again",
)
_DETOUR = OutageLines(
    "heartbeat finds no way past the pooler, it goes through it",
    "heartbeat still goes through the pooler",
    "heartbeat goes past the pooler again",
)
# Seconds between two tries of a way past the pooler that led nowhere; and the bound of each.
_AGAIN = 60.0
_SOON = {"connect_timeout": "2"}
# Seconds for each host: so long a connection may take, unless the DSN says less.
_LONGEST_CONNECTING = 5
# Milliseconds: the bounds of the time-out that libpq is given.
_LEAST_SILENCE, _MOST_SILENCE = 1000, 3_600_000


class Beats:
    """The writes of one process's row; a lost connection is opened again at the next beat.

    `namespaces` are those that it serves, with step_timeouts, and `functions` those of each; none for
    a collector that runs apart.
    A connection that leaves a beat unacknowledged for a third of `lease_age` is given up. `direct_dsn`,
    which leads past a pooler, is tried first.
    """

    def __init__(
        self,
        dsn: str,
        *,
        direct_dsn: str | None = None,
        worker_id: int,
        host: str,
        namespaces: Mapping[str, timedelta],
        lease_age: timedelta,
        functions: Mapping[str, Sequence[str]] | None = None,
        schema: str = DEFAULT_SCHEMA,
        session_state: bool = True,
        outage: Outage | None = None,
    ) -> None:
        # A dead connection must be noticed well before the lease is over.
        silence = int(lease_age.total_seconds() * 1000 / 3)
        limit = min(max(_LEAST_SILENCE, silence), _MOST_SILENCE)
        # Keepalives notice a host that took the beat and died before it answered.
        probe = str(max(1, limit // 3000))
        bounds = {
            "tcp_user_timeout": str(limit),
            "connect_timeout": str(_soon_enough(dsn)),
            "keepalives": "1",
            "keepalives_idle": probe,
            "keepalives_interval": probe,
            "keepalives_count": "2",
        }
        # Each way with whether its sessions may keep state. One that leads nowhere must not cost a lease.
        self._way = (make_conninfo(dsn, **bounds), session_state)
        self._direct = None if direct_dsn is None else (make_conninfo(direct_dsn, **bounds | _SOON), True)
        self._is_direct, self._direct_at = False, 0.0
        self._detour = Outage(log, _DETOUR)
        self._session_state = session_state
        self._schema = schema
        self._outage = outage or outage_of(dsn)
        self._failures = 0
        self._borrowed = 0
        self._borrowing = Outage(log, _BORROWING)
        self._row = {
            "worker_id": worker_id,
            "host": host,
            "namespaces": list(namespaces),
            "lease_age": lease_age,
            "functions": json.dumps(functions or {}, ensure_ascii=True),
        }
        self._step_timeouts = list(namespaces.values())
        self._connection: psycopg.Connection[Any] | None = None

    def _execute(self, verb: str, params: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        if self._direct is not None and not self._is_direct and time.monotonic() >= self._direct_at:
            self._go_directly(*self._direct)
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._opened(*self._way)
            if not self._session_state:
                connection.execute(session_setup.BEGIN)
                connection.execute(session_setup.SETTINGS, session_setup.BOUNDED_TRANSACTION)
            done = connection.execute(in_schema(STATEMENTS[verb], self._schema).encode(), params)
            if not self._session_state:
                connection.execute(STATEMENTS["commit"].encode())
        except psycopg.Error as error:
            role = None if connection is None else connection.info.user
            self.close()
            raise sqlstates.translated(error, role=role, needs=sqlstates.TO_RUN) from None
        return done

    def _go_directly(self, dsn: str, keeps_state: bool) -> None:
        """Open a connection past the pooler, in place of one through it; if that fails, try again later."""
        try:
            connection = self._opened(dsn, keeps_state)
        except psycopg.Error as error:
            self._direct_at = time.monotonic() + _AGAIN
            self._detour.failed(said_by(error))
            return
        self.close()
        self._connection, self._is_direct = connection, True
        self._detour.worked()

    def _opened(self, dsn: str, keeps_state: bool) -> psycopg.Connection[Any]:
        connection = session_setup.connect_blocking(dsn, "progressor heartbeat")
        try:
            if keeps_state:
                connection.execute(session_setup.SETTINGS, session_setup.BOUNDED_SESSION)
        except BaseException:
            connection.close()
            raise
        self._session_state = keeps_state
        return connection

    def beat(
        self, free_slots: Mapping[str, int], steps: Mapping[str, int], *, borrow: Borrow | None = None
    ) -> Beat:
        """Renew the row, with free slots and steps of the last minute by namespace; return the Beat.

        Where the connection is lost, and no other can be had (a limit of connections), `borrow` renews it.

        While PostgreSQL refuses what this process wants to save (a privilege, a disk) but takes this row,
        its step_timeouts grow by the length of that outage: the steps may have ended long ago.
        """
        sent = time.monotonic()
        more = timedelta(seconds=self._outage.held_up)
        limits = [microseconds(limit + more) for limit in self._step_timeouts]
        row = {
            **self._row,
            "step_timeouts": limits,
            "free_slots": json.dumps(dict(free_slots)),
            "steps": json.dumps(dict(steps)),
        }
        try:
            (number, at, server), is_borrowed = self._renewed(row, borrow)
        except ProgressorError as refusal:
            self._failures += 1
            if self._failures > 1:
                # One failure may be a lost connection: log the outage from the second one on.
                self._outage.failed(in_one_line(str(refusal)), operation="heartbeat")
            raise
        self._failures = 0
        self._outage.worked(in_part=True)
        return Beat(number, at, sent, time.monotonic(), server, is_borrowed)

    def _renewed(self, row: Mapping[str, Any], borrow: Borrow | None) -> tuple[RenewedRow, bool]:
        try:
            (renewed,) = self._execute("heartbeat", row).fetchall()
        except StorageUnavailable as refusal:
            found = None if borrow is None or refusal.is_denied else borrow(row)
            if found is None:
                raise
            self._borrowed += 1
            if self._borrowed > 1:
                # The server may have come back between the two tries.
                self._borrowing.failed(in_one_line(str(refusal)))
            return found, True
        self._borrowed = 0
        self._borrowing.worked()
        return renewed, False

    def leave(self) -> None:
        """Delete the row: the process has left, and is not dead."""
        self._execute("deregister", self._row)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._is_direct = False


def _soon_enough(dsn: str) -> int:
    """Return the `connect_timeout` of a DSN, or a shorter one: many hosts must not cost a lease."""
    stated = int(parsed(dsn).get("connect_timeout") or 0)
    return min(stated, _LONGEST_CONNECTING) if stated > 0 else _LONGEST_CONNECTING
