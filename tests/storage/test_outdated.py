"""A step that ends after a claim has begun, and before it locks the process of the step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from progressor.model import Decision
from progressor.storage.operations import Storage
from progressor.storage.values import Claimed
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    Tables,
    cancel,
    change_timers,
    events,
    eventually,
    fuse,
    number,
    request,
    set_timer,
    start,
)

NOW = T0 + 2 * SECOND
OLD = SetTimer(after=timedelta(hours=1), name="old")


@pytest.fixture
def halt(tables: Tables, storage: Storage) -> Iterator[None]:
    """A claim waits between one process and the next, which it has not locked yet, while a lock is held."""
    tables.execute(
        "CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$"
    )
    tables.execute(
        "CREATE TRIGGER halt BEFORE UPDATE ON tasks FOR EACH ROW "
        "WHEN (NEW.status = 'running') EXECUTE FUNCTION halt()"
    )
    tables.execute("SELECT pg_advisory_lock(1)")
    yield
    tables.execute("DROP FUNCTION halt CASCADE")


@pytest.mark.parametrize("fuses", [False, True])
async def test_a_claim_has_what_the_step_left(
    storage: Storage, tables: Tables, halt: None, *, fuses: bool
) -> None:
    """The process and its timers: neither is older than the lock."""
    await start(storage, "p0", set_timer(SECOND))
    await start(storage, "p1", change_timers(SetTimer(after=2 * SECOND), OLD))
    claiming = asyncio.create_task(_claimed(storage, fuses=fuses))
    try:
        await eventually(lambda: len(tables.waiting()) == 1, "the claim waits between its processes")
        await fuse(storage, [request("p1")], _ended, now=T0)
    finally:
        tables.execute("SELECT pg_advisory_unlock(1)")
    _, found = await claiming
    assert found.process.last_event_id == 1
    assert [timer.name for timer in found.process.timers] == [""]


async def _ended(held: Sequence[Claimed]) -> list[Decision]:
    return [cancel("old", events=events(1)) for _ in held]


async def _claimed(storage: Storage, *, fuses: bool) -> list[Claimed]:
    if not fuses:
        return await storage.search("timers", NS, 2, worker_id=WORKER, lease=number(), now=NOW)
    async with storage.fused_claim(NS, "timers", 2, worker_id=WORKER, lease=number(), now=NOW) as claim:
        await claim.commit([], None)
        return claim.held
