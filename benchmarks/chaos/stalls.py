"""Writes that are held up while reads go on: by a standby, by a lock, by a privilege.

Rule: whatever happens meanwhile, what was done is undone: not before its time, and as soon after it as the
server can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from benchmarks.chaos.server import Server

_AGAIN = 0.1
_TO_WRITE = "INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA progressor"


class Stalls:
    """Each is a stall for as long as its block lasts; statements run in threads."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @asynccontextmanager
    async def standby_lost(self) -> AsyncIterator[None]:
        """Every commit waits for a synchronous standby that never comes."""
        try:
            await self._say(
                "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"
            )
            yield
        finally:
            await self._undo("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    @asynccontextmanager
    async def table_locked(self, table: str) -> AsyncIterator[None]:
        """Nobody else can write to a table, as while an index is made."""
        connection = await asyncio.to_thread(psycopg.connect, self._server.dsn, application_name="chaos")
        try:
            # Behind a commit that hangs it would lock out readers too.
            for statement in ("SET lock_timeout = '2s'", f"LOCK TABLE progressor.{table} IN SHARE MODE"):
                await asyncio.to_thread(connection.execute, statement.encode())
            yield
        finally:
            # A restart, or who ends all sessions, ends the lock earlier.
            await asyncio.to_thread(connection.close)

    @asynccontextmanager
    async def privileges_taken(self) -> AsyncIterator[None]:
        """The role of all processes may read and not write."""
        role = self._server.role
        try:
            # Its answer may be lost, and it has happened all the same.
            await self._say(f"REVOKE {_TO_WRITE} FROM {role}")
            yield
        finally:
            await self._undo(f"GRANT {_TO_WRITE} TO {role}")

    async def _say(self, *statements: str) -> None:
        for statement in statements:
            await asyncio.to_thread(self._server.execute, statement)

    async def _undo(self, *statements: str) -> None:
        while True:
            try:
                return await self._say(*statements)
            except psycopg.OperationalError:
                await asyncio.sleep(_AGAIN)
