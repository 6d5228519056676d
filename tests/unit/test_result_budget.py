"""The budget of unsaved results: who may begin, who waits, and that whatever is taken comes back."""

from __future__ import annotations

import asyncio

import pytest

from progressor.worker import result_budget
from progressor.worker.result_budget import NoRoom, ResultBudget
from progressor.worker.slot import Slot


async def turns() -> None:
    """Let the loop run: nothing here waits for anything outside of it."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_result_alone_passes_however_large() -> None:
    """The budget is used up by what is decided, not by what may come."""
    budget, slot = ResultBudget(10), Slot()
    assert not budget.is_used_up
    budget.take(slot, 1_000)
    assert (budget.used, budget.is_used_up) == (1_000, True)
    budget.give_back(slot)
    assert (budget.used, budget.is_used_up) == (0, False)


def test_a_result_is_given_back_once() -> None:
    """A slot that is given back after its save was counted has no result any more."""
    budget, slot, other = ResultBudget(10), Slot(), Slot()
    budget.take(slot, 4)
    budget.take(other, 3)
    budget.give_back(slot)
    budget.give_back(slot)
    assert budget.used == 3


async def test_steps_wait_for_room_and_go_on() -> None:
    """All who wait go on as soon as one result less is unsaved; who waits for room is told, too."""
    budget, first, second = ResultBudget(10), Slot(), Slot()
    notices: list[int] = []
    budget.notify(lambda: notices.append(budget.used))
    budget.take(first, 8)
    await budget.room()
    budget.take(second, 8)
    waiting = [asyncio.create_task(budget.room()) for _ in range(3)]
    await turns()
    assert not any(task.done() for task in waiting)
    budget.give_back(first)
    await asyncio.gather(*waiting)
    budget.give_back(second)
    assert notices == [8]


async def test_who_is_late_waits_again() -> None:
    """Of those who wait the first may use the room up before the next one comes to its turn."""
    budget, first = ResultBudget(10), Slot()
    budget.take(first, 10)

    async def step() -> Slot:
        await budget.room()
        slot = Slot()
        budget.take(slot, 10)
        return slot

    waiting = [asyncio.create_task(step()) for _ in range(2)]
    await turns()
    budget.give_back(first)
    await turns()
    assert [task.done() for task in waiting] == [True, False]
    budget.give_back(waiting[0].result())
    budget.give_back(await waiting[1])
    assert budget.used == 0


async def test_a_step_that_is_cancelled_waits_no_more() -> None:
    """It leaves nothing behind: the others go on."""
    budget, first = ResultBudget(10), Slot()
    budget.take(first, 10)
    gone, stays = asyncio.create_task(budget.room()), asyncio.create_task(budget.room())
    await turns()
    gone.cancel()
    await asyncio.wait({gone})
    budget.give_back(first)
    await stays


async def test_a_step_that_waits_for_long_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task goes back to the schedule before anybody takes it for a zombie."""
    monkeypatch.setattr(result_budget, "_PATIENCE", 0.0)
    budget = ResultBudget(10)
    budget.take(Slot(), 10)
    with pytest.raises(NoRoom):
        await budget.room()
