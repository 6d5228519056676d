"""The PostgreSQL of a run: an embedded one of its own, to be restarted and to have its sessions ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres, lifetime
from progressor.storage import migrations

Row = tuple[Any, ...]

_STOPS = 60.0
_ROLE = (
    "CREATE ROLE {role} LOGIN",
    "GRANT USAGE ON SCHEMA progressor TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA progressor TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA progressor TO {role}",
)
# The bank's own table: handlers write to it in the transactions of their steps.
_BANK = (
    "CREATE SCHEMA bank",
    "CREATE TABLE bank.entries (account text NOT NULL, nonce text PRIMARY KEY, amount integer NOT NULL)",
    # What walks delete is kept aside there; see walks.py.
    "CREATE TABLE bank.swept_tasks AS SELECT now() AS swept_at, t.* FROM progressor.tasks AS t",
    (
        "CREATE TABLE bank.swept_events AS SELECT now() AS swept_at, 0::bigint AS last_event_id, e.* "
        "FROM progressor.events AS e"
    ),
    # What a projection makes of the feed; see tallies.py.
    (
        "CREATE TABLE bank.projected (no bigint GENERATED ALWAYS AS IDENTITY, namespace text, "
        "process_id text, event_id bigint, task_id bigint, payload jsonb, is_deleted boolean)"
    ),
    (
        "CREATE TABLE bank.tallies (namespace text, process_id text, events bigint, amount bigint, "
        "PRIMARY KEY (namespace, process_id))"
    ),
    "GRANT USAGE ON SCHEMA bank TO {role}",
    "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA bank TO {role}",
    "GRANT UPDATE, DELETE ON bank.projected, bank.tallies TO {role}",
)
_TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Server:
    """Blocking; call it in a thread."""

    def __init__(self, home: Path) -> None:
        self._embedded = EmbeddedPostgres(home, bin_dir=Settings().postgres_bin_dir)
        self.dsn = self._embedded.start()
        (self._folder,) = home.glob("pg*")
        self.data = self._folder / lifetime.DATA
        migrations.upgrade(self.dsn)
        # Who works on it is no superuser: what he may do can be taken away.
        self.role = "chaos_app"
        self.role_dsn = psycopg.conninfo.make_conninfo(self.dsn, user=self.role)
        for statement in (*_ROLE, *_BANK):
            self.execute(statement.format(role=self.role))
        self.is_up = True

    @property
    def socket_path(self) -> str:
        """Where it listens."""
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        return f"{parts['host']}/.s.PGSQL.{parts['port']}"

    def proxied(self, port: int) -> str:
        """The DSN through a proxy on this port; in the clear, because the proxy reads along."""
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        name = parts["dbname"]
        return f"postgresql://{self.role}@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"

    def restart(self, how: signal.Signals) -> float:
        """SIGINT: fast, sessions are ended; SIGQUIT: immediate, as a crash. How long it was away."""
        began = time.monotonic()
        self.end(how)
        self.begin()
        return time.monotonic() - began

    def end(self, how: signal.Signals) -> None:
        """Return when it has ended."""
        began = time.monotonic()
        self.is_up = False
        pid = lifetime.server_pid(self._folder)
        if pid is not None:
            os.kill(pid, how)
        while lifetime.is_alive(self._folder):
            if time.monotonic() > began + _STOPS:
                raise RuntimeError("PostgreSQL does not stop")
            time.sleep(0.01)

    def begin(self) -> None:
        """Return when it takes sessions."""
        self._embedded.start()
        self.is_up = True

    def terminate_sessions(self) -> int:
        """End all sessions but the asking one; how many there were."""
        (row,) = self.query(_TERMINATE)
        return int(row[0])

    def query(self, sql: str, *params: Any) -> list[Row]:
        """Rows of a statement on a connection of its own."""
        with psycopg.connect(self.dsn, autocommit=True, application_name="chaos") as connection:
            return connection.execute(sql.encode(), params).fetchall()

    def execute(self, statement: str) -> None:
        """One statement on a connection of its own."""
        with psycopg.connect(self.dsn, autocommit=True, application_name="chaos") as connection:
            connection.execute(statement.encode())

    def leave(self) -> None:
        self._embedded.stop()


def now() -> datetime:
    """The machine's clock, which is the server's too."""
    return datetime.now(UTC)


async def settled(server: Server, sql: str, *params: Any, bound: float) -> tuple[float, int]:
    """Ask until the count is 0, or the bound has passed: how long it took, and what was left."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        ((left,),) = await asyncio.to_thread(server.query, sql, *params)
        if not left or loop.time() - began > bound:
            return loop.time() - began, left
        await asyncio.sleep(0.1)
