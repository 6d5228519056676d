"""A process that freezes in the middle of a transaction keeps nobody waiting for long."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from progressor.storage import connections
from progressor.storage.arrays import TextArray
from progressor.storage.connections import Connections
from progressor.storage.operations import Storage
from tests.support import NS, hold, request, save, start, unlock


async def test_the_locks_of_a_frozen_process_end(
    storage: Storage, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends a transaction whose owner says nothing more, and its locks with it."""
    assert "'15s'" in connections._SESSION
    monkeypatch.setattr(connections, "_SESSION", connections._SESSION.replace("'15s'", "'100ms'"))
    await start(storage)
    frozen = Connections(dsn, limit=1)
    async with frozen.acquire() as session:
        keys = {"namespace": TextArray([NS]), "process_id": TextArray(["p1"])}
        await session.transact([("begin", {})])
        await session.transact([("lock", keys)])
        async with asyncio.timeout(30):
            step = await hold(storage, request())
            await save(storage, step, unlock())
        with pytest.raises(psycopg.OperationalError):
            await session.transact([("commit", {})])
    await frozen.close()
