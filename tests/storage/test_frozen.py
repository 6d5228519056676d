"""A process that freezes in the middle of a transaction keeps nobody waiting for long."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from progressor.storage.operations import Storage
from progressor.storage.postgres import session_setup
from progressor.storage.postgres.arrays import bigints
from progressor.storage.postgres.pool import SessionPool
from tests.support import Tables, hold, request, resume, save, start


async def test_the_locks_of_a_frozen_process_end(
    storage: Storage, tables: Tables, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends a transaction whose owner says nothing more, and its locks with it."""
    assert session_setup.BOUNDED_SESSION["idle_timeout"] == "15s"
    monkeypatch.setitem(session_setup.BOUNDED_SESSION, "idle_timeout", "100ms")
    await start(storage)
    (process,) = tables.execute("SELECT process_no FROM processes")
    frozen = SessionPool(dsn, limit=1)
    async with frozen.acquire() as session:
        keys = {"process_no": bigints([process["process_no"]])}
        await session.transact({"begin": {}})
        await session.transact({"lock": keys})
        async with asyncio.timeout(30):
            step = await hold(storage, request())
            await save(storage, step, resume())
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            await session.transact({"commit": {}})
    await frozen.close()
