"""A step that ends after a claim has begun, and before it locks the process of the step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta

import pytest

from progressor.model import Decision
from progressor.storage.operations import Storage
from progressor.storage.values import Claimed
from progressor.timers import SetTimer, UnsetTimer
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
    hold,
    number,
    request,
    save,
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


async def _fused(storage: Storage, decision: Decision) -> None:
    async def decided(held: Sequence[Claimed]) -> list[Decision]:
        return [decision for _ in held]

    await fuse(storage, [request("p1")], decided, now=T0)


async def _in_two(storage: Storage, decision: Decision) -> None:
    await save(storage, await hold(storage, request("p1")), decision)


CANCELS = cancel("old")
SETS = set_timer(timedelta(hours=2), name="new")
UNSETS_ONE_SETS_ONE = change_timers(UnsetTimer("old"), SetTimer(after=timedelta(hours=2), name="new"))


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize(
    ("end", "decision", "left"),
    [
        (_fused, cancel("old", events=events(1)), [""]),
        (_fused, CANCELS, [""]),
        (_fused, SETS, ["", "new", "old"]),
        (_in_two, CANCELS, [""]),
        (_in_two, SETS, ["", "new", "old"]),
        (_in_two, UNSETS_ONE_SETS_ONE, ["", "new"]),
    ],
)
async def test_a_claim_has_what_the_step_left(
    storage: Storage,
    tables: Tables,
    halt: None,
    end: Callable[[Storage, Decision], Awaitable[None]],
    decision: Decision,
    left: list[str],
    *,
    fuses: bool,
) -> None:
    """The process and its timers: neither is older than the lock, also if the step changed timers alone."""
    await start(storage, "p0", set_timer(SECOND))
    await start(storage, "p1", change_timers(SetTimer(after=2 * SECOND), OLD))
    claiming = asyncio.create_task(_claimed(storage, fuses=fuses))
    try:
        await eventually(lambda: len(tables.waiting()) == 1, "the claim waits between its processes")
        await end(storage, decision)
    finally:
        tables.execute("SELECT pg_advisory_unlock(1)")
    _, found = await claiming
    assert found.process.last_event_id == len(decision.events)
    assert sorted(timer.name for timer in found.process.timers) == left


async def _claimed(storage: Storage, *, fuses: bool) -> list[Claimed]:
    if not fuses:
        return await storage.search("timers", NS, 2, worker_id=WORKER, lease=number(), now=NOW)
    async with storage.fused_claim(NS, "timers", 2, worker_id=WORKER, lease=number(), now=NOW) as claim:
        await claim.commit([], None)
        return claim.held
