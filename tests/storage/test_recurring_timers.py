"""Recurring timers: what their tasks keep, through whatever becomes of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.model import Task
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.values import Import
from progressor.timers import KEPT, SetTimer, keeping
from progressor.timers.recurrence import Occurrence, Recurrence, occurrence_of
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    change_timers,
    claim_timers,
    collect,
    fail_timer,
    fuse,
    hold,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
)

FIRST = Occurrence(Recurrence(SECOND, catch_up="all"), T0 + SECOND)
BEGUN = FIRST._replace(begun=True)
ARMED = keeping(SetTimer(at=FIRST.nominal, name="a"), FIRST.as_bytes())


def armed(occurrence: Occurrence) -> SetTimer:
    return keeping(SetTimer(at=occurrence.nominal, name="a"), occurrence.as_bytes())


def following(task: Task) -> Occurrence:
    """What the step of this task arms."""
    assert task.occurrence is not None
    assert task.running_time is not None
    found = task.occurrence.next(task.running_time)
    assert found is not None
    return found


def standing(tables: Tables) -> list[Occurrence]:
    """The occurrences that wait."""
    waiting = {row["task_id"] for row in tables.schedule()}
    return [
        occurrence_of(row["args"]) for row in tables.tasks() if row["task_id"] in waiting and row["args"]
    ]


@pytest.fixture(autouse=True)
def sound(dsn: str, storage: Storage) -> object:
    """Whatever a test does, the invariants of the tables hold after it."""
    yield
    assert [each for each in examine(dsn, now=T0).invariants if not each.holds] == []


@pytest.mark.parametrize("others", [False, True])
async def test_the_rule_goes_with_the_task(storage: Storage, others: bool) -> None:
    """Set alone or with others, claimed, and gone on with in the same slot."""
    decision = change_timers(ARMED, SetTimer(after=9 * SECOND)) if others else set_timer(SECOND)
    await start(storage, "p1", decision if others else decision._replace(timer=ARMED))
    (step,) = await claim_timers(storage, now=T0 + 3 * SECOND)
    assert step.task.occurrence == FIRST
    nominals = [step.task.nominal]
    while True:
        decision = set_timer(SECOND)._replace(timer=armed(following(step.task)))
        saved = await save(storage, step, decision, now=T0 + 3 * SECOND)
        if saved.continuation is None:
            break
        step = step.next(saved, resume())
        nominals.append(step.task.nominal)
    assert nominals == [T0 + n * SECOND for n in (1, 2, 3)]


async def test_a_fused_call_sets_one(storage: Storage, tables: Tables) -> None:
    """In the transaction of the request."""
    await start(storage, "p1")

    async def run(_claimed: object) -> list[object]:
        return [set_timer(SECOND)._replace(timer=ARMED)]

    await fuse(storage, [request()], run, now=T0)  # type: ignore[arg-type]
    assert standing(tables) == [FIRST]


async def test_fired_by_hand_it_keeps_its_rule(storage: Storage, tables: Tables) -> None:
    """Without knowing it: the new task takes that of the one that it replaces, waiting or run at once.

    It is run however late.
    """
    await start(storage, "p1", set_timer(SECOND)._replace(timer=ARMED))
    fires = set_timer(SECOND)._replace(timer=keeping(SetTimer(at=T0, name="a"), KEPT))
    saved = await save(storage, await hold(storage, request()), fires, keeps_slot=False)
    assert saved.continuation is None
    assert standing(tables) == [BEGUN]
    saved = await save(storage, await hold(storage, request()), fires)
    assert saved.continuation is not None
    assert saved.continuation.occurrence == BEGUN
    assert tables.task(saved.continuation.task_id)["args"] == BEGUN.as_bytes()  # type: ignore[index]


async def test_through_a_retry_a_break_and_a_repair(storage: Storage, tables: Tables) -> None:
    """The same nominal time at each try, and held in the place of the one that broke it."""
    await start(storage, "p1", set_timer(SECOND)._replace(timer=ARMED))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, retry(SECOND), now=T0 + SECOND)
    assert standing(tables) == [FIRST]
    (step,) = await claim_timers(storage, now=T0 + 9 * SECOND)
    assert (step.task.occurrence, step.task.attempts_count) == (FIRST, 1)
    await save(storage, step, fail_timer(step.task), now=T0 + 9 * SECOND)
    assert standing(tables) == [BEGUN]
    await storage.simple_repair([repair()], now=T0)
    (step,) = await claim_timers(storage, now=T0 + 9 * SECOND)
    assert (step.task.occurrence, step.task.attempts_count) == (BEGUN, 0)


@pytest.mark.parametrize("again", [True, False])
async def test_a_lost_worker(storage: Storage, tables: Tables, again: bool) -> None:
    """It comes back with its rule, or is held with it."""
    await start(storage, "p1", set_timer(SECOND)._replace(timer=ARMED))
    tables.set_namespace(on_zombie="policy" if again else "error")
    tables.set_worker()
    tables.set_collector()
    await claim_timers(storage, now=T0 + SECOND)
    await collect(storage, T0 + timedelta(hours=1))
    assert standing(tables) == [FIRST if again else BEGUN]


async def test_an_import(storage: Storage, tables: Tables) -> None:
    """It has its rule from the beginning."""
    await storage.put(Import(NS, "p1", "put", timers=(ARMED,)), now=T0)
    assert standing(tables) == [FIRST]


async def test_a_step_that_is_saved_twice_arms_one(storage: Storage, tables: Tables) -> None:
    """After a lost answer the repetition finds the first save: one next nominal time."""
    await start(storage, "p1", set_timer(SECOND)._replace(timer=ARMED))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    decision = set_timer(SECOND)._replace(timer=armed(following(step.task)))
    first = await save(storage, step, decision, now=T0 + SECOND)
    (again,) = await storage.save_result([step.step(decision)], now=T0 + SECOND, tried=True)
    assert (first.due, again.due) == (T0 + 2 * SECOND,) * 2  # type: ignore[union-attr]
    assert standing(tables) == [following(step.task)]
