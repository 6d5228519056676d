"""A worker's row in `workers`, written over a blocking connection of the heartbeat thread's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

import psycopg
from psycopg.conninfo import make_conninfo

from progressor.config import DEFAULT_SCHEMA
from progressor.errors import StorageUnavailable
from progressor.outages import Outage
from progressor.storage.reach import outage_of, said_by
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
        outage: Outage | None = None,
    ) -> None:
        # A connection that leads nowhere must be found out well before the lease is over.
        limit = str(max(1000, int(silence.total_seconds() * 1000)))
        self._dsn = make_conninfo(dsn, tcp_user_timeout=limit)
        self._worker_id = worker_id
        self._host = host
        self._namespaces = list(namespaces)
        self._schema = schema
        self._outage = outage or outage_of(dsn)
        self._failures = 0
        self._connection: psycopg.Connection[object] | None = None

    def _execute(self, verb: str, params: Mapping[str, object]) -> None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._dsn,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=5,
                    application_name="progressor heartbeat",
                )
            self._connection.execute(in_schema(STATEMENTS[verb], self._schema).encode(), params)
        except psycopg.Error as error:
            self.close()
            self._failures += 1
            if self._failures > 1:
                # Once may be a connection that was lost.
                self._outage.failed(said_by(error), operation=verb)
            raise StorageUnavailable(f"no {verb}: {said_by(error)}") from error
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
