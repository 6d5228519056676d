"""A repetition that overtakes its own first try: the connection is lost, and the server still at work.

Rule: the second try waits for the first, and reports what that one did. Else what the first one puts into
this worker's hands would run under its name, and nobody would run it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from tests.support import (
    SECOND,
    T0,
    WORKER,
    Tables,
    claim_calls,
    claim_timers,
    events,
    eventually,
    hold,
    init,
    number,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

NOW = timedelta(0)


class DesertedConnections(SessionPool):
    """Loses its first connection to a transaction that goes on without anybody, and waits for a lock."""

    def __init__(self, dsn: str, tables: Tables) -> None:
        super().__init__(dsn, limit=2)
        self._tables = tables
        self._session: Session | None = None
        self.first: asyncio.Task[Any] | None = None

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        if self._session is not None:
            async with super().acquire() as session:
                yield session
            return
        self._session = session = await self._open()
        transact = session.transact

        async def deserted(statements: Any, hints: Any = None) -> Any:
            self.first = asyncio.create_task(transact(statements, hints))
            await self.waiting(1)
            raise psycopg.OperationalError("the connection was lost")

        session.transact = deserted  # type: ignore[method-assign]
        yield session

    async def waiting(self, count: int) -> None:
        """Until so many transactions wait for locks."""

        await eventually(lambda: len(self._tables.waiting()) == count, f"{count} wait")

    async def close(self) -> None:
        await super().close()
        assert self._session is not None, "nothing was lost"
        await self._session.close()


@pytest.fixture
async def connections(dsn: str, storage: Storage, tables: Tables) -> AsyncIterator[DesertedConnections]:
    deserted = DesertedConnections(dsn, tables)
    yield deserted
    await deserted.close()


class SlowClaims:
    """Claims stay where they are, with their rows locked, while an advisory lock is held."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        tables.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$"
        )
        tables.execute("CREATE TRIGGER slow AFTER INSERT ON running FOR EACH ROW EXECUTE FUNCTION slow()")

    def hold(self) -> None:
        self._tables.execute("SELECT pg_advisory_lock(1)")

    def free(self) -> None:
        self._tables.execute("SELECT pg_advisory_unlock_all()")

    def drop(self) -> None:
        self.free()
        self._tables.execute("DROP TRIGGER slow ON running")
        self._tables.execute("DROP FUNCTION slow")


@pytest.fixture
def slow_claims(tables: Tables, storage: Storage) -> Iterator[SlowClaims]:
    claims = SlowClaims(tables)
    yield claims
    claims.drop()


async def _overtake(
    connections: DesertedConnections, free: Callable[[], object], operation: Awaitable[Any]
) -> Any:
    """The result of a second try that began while the first one waited."""
    second = asyncio.ensure_future(operation)
    try:
        await connections.waiting(2)
    finally:
        free()
    return await second


async def test_save_result(storage: Storage, connections: DesertedConnections, tables: Tables) -> None:
    """The step is saved, and its continuation goes on, in the same hands."""
    await start(storage)
    step = await hold(storage, request())
    tables.execute("BEGIN")
    tables.execute("SELECT FROM processes FOR UPDATE")
    decision = set_timer(NOW, events=events(2))
    saving = save(Storage(connections, patience=SECOND), step, decision)
    saved = await _overtake(connections, lambda: tables.execute("ROLLBACK"), saving)
    assert saved.continuation is not None
    assert len(tables.events()) == 2
    await save(storage, step.next(saved, decision), resume())


@pytest.mark.parametrize("claim", [claim_calls, claim_timers])
async def test_claims(
    storage: Storage, connections: DesertedConnections, slow_claims: SlowClaims, tables: Tables, claim: Any
) -> None:
    """What the first try claims, the second one has in its hands."""
    for place in range(3):
        if claim is claim_calls:
            await storage.prepare_init([init(f"p{place}", worker_id=None)], now=T0)
        else:
            await start(storage, f"p{place}", set_timer(SECOND))
    slow_claims.hold()
    claiming = claim(Storage(connections, patience=SECOND), 2, now=T0 + SECOND)
    found = await _overtake(connections, slow_claims.free, claiming)
    assert [step.task.process_id for step in found] == ["p0", "p1"]
    assert len(tables.execute("SELECT task_id FROM running")) == 2


async def test_capture_task(
    storage: Storage, connections: DesertedConnections, slow_claims: SlowClaims
) -> None:
    """The same for a single task."""
    await start(storage)
    ref = await wait(storage, request(worker_id=None))
    slow_claims.hold()
    patient = Storage(connections, patience=SECOND)
    capturing = patient.capture_task(ref, worker_id=WORKER, lease=number(), now=T0)
    found = await _overtake(connections, slow_claims.free, capturing)
    assert found is not None
    assert found.task.task_id == ref.task_id
