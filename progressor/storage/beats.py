"""A worker's row in `workers`, written over a blocking connection of the heartbeat thread's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from progressor.config import DEFAULT_SCHEMA
from progressor.outages import Outage, in_one_line
from progressor.storage import opening, refusals
from progressor.storage.reach import outage_of
from progressor.storage.statements import STATEMENTS, in_schema


class Beats:
    """Makes, renews and deletes one worker's row; a lost connection is made anew at the next beat.

    `silence` is how long the server may leave a beat unacknowledged before its connection is given up.
    """

    def __init__(
        self,
        dsn: str,
        *,
        worker_id: int,
        host: str,
        namespaces: Sequence[str],
        silence: timedelta,
        schema: str = DEFAULT_SCHEMA,
        session_state: bool = True,
        outage: Outage | None = None,
    ) -> None:
        # A connection that leads nowhere must be found out well before the lease is over.
        limit = str(max(1000, int(silence.total_seconds() * 1000)))
        self._dsn = make_conninfo(dsn, tcp_user_timeout=limit, connect_timeout="5")
        self._session_state = session_state
        self._worker_id = worker_id
        self._host = host
        self._namespaces = list(namespaces)
        self._schema = schema
        self._outage = outage or outage_of(dsn)
        self._failures = 0
        self._connection: psycopg.Connection[Any] | None = None

    def _execute(self, verb: str, params: Mapping[str, object]) -> None:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = opening.connect_blocking(self._dsn, "progressor heartbeat")
                if self._session_state:
                    connection.execute(opening.SETTINGS, opening.BOUNDED_SESSION)
            with connection.pipeline():
                if not self._session_state:
                    connection.execute(opening.BEGIN)
                    connection.execute(opening.SETTINGS, opening.BOUNDED_TRANSACTION)
                connection.execute(in_schema(STATEMENTS[verb], self._schema).encode(), params)
                if not self._session_state:
                    connection.execute(STATEMENTS["commit"].encode())
        except psycopg.Error as error:
            role = None if connection is None else connection.info.user
            self.close()
            told = refusals.translated(error, role=role, needs=refusals.TO_RUN)
            self._failures += 1
            if self._failures > 1:
                # Once may be a connection that was lost.
                self._outage.failed(in_one_line(str(told)), operation=verb)
            raise told from None
        self._failures = 0
        self._outage.worked()

    def beat(self, free_slots: Mapping[str, int]) -> None:
        """Say that the worker lives, and how many slots of each namespace are free."""
        self._execute(
            "heartbeat",
            {
                "worker_id": self._worker_id,
                "host": self._host,
                "namespaces": self._namespaces,
                "free_slots": json.dumps(dict(free_slots)),
            },
        )

    def leave(self) -> None:
        """Delete the row: the worker goes of its own will."""
        self._execute("deregister", {"worker_id": self._worker_id})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
