"""remove: a process goes with all its rows, whatever it does just now."""

from __future__ import annotations

import pytest

from progressor.storage.items import LostLease, Removed
from progressor.storage.operations import Storage
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    events,
    hold,
    init,
    removed,
    repair,
    request,
    save,
    set_timer,
    start,
    unlock,
    wait,
)


async def test_takes_everything(storage: Storage, tables: Tables) -> None:
    """Process, events, timer and finished tasks are gone; others stay."""
    await start(storage, "p1", set_timer(SECOND, events=events(3)))
    await start(storage, "p2", set_timer(SECOND, events=events(3)))
    kept = (tables.process("p2"), tables.tasks("p2"), tables.events("p2"), tables.schedule("p2"))
    assert await storage.remove(NS, "p1") == Removed(existed=True, cancelled=())
    for rows in (tables.tasks(), tables.events(), tables.schedule()):
        assert rows == []
    assert tables.process() is None
    assert (
        tables.process("p2"),
        tables.tasks("p2"),
        tables.events("p2"),
        tables.schedule("p2"),
    ) == kept


async def test_missing_process(storage: Storage) -> None:
    """There is nothing to remove, and the answer says so."""
    assert await storage.remove(NS, "p1") == Removed(existed=False, cancelled=())


async def test_other_namespace(storage: Storage, tables: Tables) -> None:
    """A process of the same id in another namespace stays."""
    await start(storage)
    assert not (await storage.remove("shop.other", "p1")).existed
    assert tables.process() is not None


async def test_callers_are_told(storage: Storage) -> None:
    """Those who wait for a task that runs or waits are named; those who have their answer are not."""
    await start(storage)
    done = await hold(storage, request(reply_to=60))
    await save(storage, done, unlock())
    running = await hold(storage, request(reply_to=61))
    waiting = await wait(storage, request(reply_to=62))
    await wait(storage, request())
    answer = await storage.remove(NS, "p1")
    assert set(answer.cancelled) == {
        running.ref._replace(reply_to=61),
        waiting._replace(reply_to=62),
    }


async def test_running_step_is_fenced_off(storage: Storage, tables: Tables) -> None:
    """The step that runs meanwhile saves nothing, and does not bring the process back."""
    await start(storage)
    step = await hold(storage, request())
    await storage.remove(NS, "p1")
    result = await storage.save_result([step.step(set_timer(SECOND, events=events(1)))], now=T0)
    assert result == [LostLease()]
    assert set(map(len, tables.everything().values())) == {0}


async def test_fenced_off_from_the_next_life(storage: Storage, tables: Tables) -> None:
    """A step of the removed life does not touch a process that was made anew under the id."""
    old = await hold(storage, init())
    await storage.remove(NS, "p1")
    new = await hold(storage, init())
    before = tables.everything()
    for decision in (removed(), unlock(events=events(1))):
        assert await storage.save_result([old.step(decision)], now=T0) == [LostLease()]
    assert tables.everything() == before
    await save(storage, new, unlock())


@pytest.mark.parametrize("state", ["broken", "repairing", "init", "init waiting"])
async def test_in_any_status(storage: Storage, tables: Tables, state: str) -> None:
    """A process can be removed in any status."""
    match state:
        case "broken":
            await break_process(storage)
        case "repairing":
            await break_process(storage)
            await hold(storage, repair())
        case "init":
            await hold(storage, init())
        case "init waiting":
            await storage.prepare_init([init(worker_id=None)], now=T0)
    assert (await storage.remove(NS, "p1")).existed
    assert set(map(len, tables.everything().values())) == {0}


async def test_answers_of_an_earlier_life_stay(storage: Storage, tables: Tables) -> None:
    """What an earlier removal kept for its caller is not taken by a later one."""
    await start(storage)
    step = await hold(storage, request())
    await save(storage, step, removed())
    kept = tables.tasks()
    await start(storage)
    await storage.remove(NS, "p1")
    assert tables.tasks() == kept
