"""Slots for connections of handlers: who gets one, while slow functions want them too."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from progressor.config import EngineOptions
from progressor.worker.connection_slots import ConnectionSlots, FunctionLine, HeldSlot, StepConnections


class NowhereNode:
    """A node of no database, for slots whose connections nobody opens."""

    def step_transactions(self, limit: int) -> None:
        """Return none."""


class SlotSteps:
    """Steps that hold the slots of an engine, at times that the test sets."""

    def __init__(self, size: int) -> None:
        self.now = 100.0
        self.slots = ConnectionSlots(
            cast("Any", NowhereNode()), EngineOptions(connection_slots=size), now=lambda: self.now
        )

    def line(self, function: str, *seconds: float) -> FunctionLine:
        """Return the line of a function whose steps have held their slots for so long."""
        line = self.slots.line(cast("Any", function))
        for each in seconds:
            slot = line.begin()
            self.now += each
            line.end(slot)
        return line

    async def take(self, line: FunctionLine) -> asyncio.Task[HeldSlot]:
        """Let a step take a slot, or wait for one."""
        step = asyncio.create_task(self.slots.take(line, StepConnections(self.slots)))
        await asyncio.sleep(0)
        return step


@pytest.mark.parametrize(("size", "most"), [(1, 1), (2, 1), (3, 2), (8, 4)])
async def test_slow_functions_leave_slots_to_a_brief_one(size: int, most: int) -> None:
    """Half of them; a single slot is for all."""
    steps = SlotSteps(size)
    brief, *slow = steps.line("brief", 0.01), steps.line("a", 5, 5), steps.line("b", 5, 5)
    taken = 0
    while steps.slots.has_room(slow[taken % 2]):
        await steps.take(slow[taken % 2])
        taken += 1
    assert taken == most
    assert steps.slots.has_room(brief) == (size > 1)


async def test_steps_that_run_for_long_count_before_they_end() -> None:
    """A function is known as slow before its first steps have taken all slots."""
    steps = SlotSteps(8)
    steps.line("brief", 0.01)
    line = steps.line("new")
    for _ in range(8):
        await steps.take(line)
        steps.now += 1
    assert (len(line.held), len(line.waiting)) == (4, 4)


@pytest.mark.parametrize("others", [(), (5,), (0.6, 0.6)])
async def test_where_all_are_slow_nothing_is_kept(others: tuple[float, ...]) -> None:
    """Slots that nobody else wants are no use to anybody."""
    steps = SlotSteps(4)
    slow = steps.line("slow", 5, 5)
    steps.line("another", *others)
    assert all([(await steps.take(slow)).done() for _ in range(4)])
    assert steps.slots.free == 0


@pytest.mark.parametrize(
    ("seconds", "is_slow"),
    [
        ((), False),
        ((5,), True),
        ((5, 5), True),
        ((0.01, 0.01, 5, 0.01), False),
        ((5, 5, 5, 0.01), True),
        ((5, 5, 5, 0.01, 0.01), False),
    ],
)
def test_most_of_the_last_steps_tell_whether_a_function_is_slow(
    seconds: tuple[float, ...], is_slow: bool
) -> None:
    """A single odd one does not."""
    assert SlotSteps(1).line("f", *seconds).is_slow(0.1) == is_slow


async def test_brief_steps_of_a_slow_machine_are_brief_beside_others() -> None:
    """How long is long depends on the briefest function."""
    steps = SlotSteps(2)
    brief, slow = steps.line("brief", 0.4, 0.4), steps.line("slow", 5, 5)
    await steps.take(slow)
    assert not steps.slots.has_room(slow)
    assert steps.slots.has_room(brief)


async def test_a_slot_goes_to_the_longest_wait_that_may_end() -> None:
    """A slow step waits on while its share is taken, and comes before later ones when it is not."""
    steps = SlotSteps(2)
    slots, brief, slow = steps.slots, steps.line("brief", 0.01), steps.line("slow", 5, 5)
    slow_runs, brief_runs = await steps.take(slow), await steps.take(brief)
    slow_waits, brief_waits = await steps.take(slow), await steps.take(brief)
    assert len(slow.waiting) == len(brief.waiting) == 1
    slots.give_back(brief_runs.result())
    brief_runs = brief_waits
    await brief_runs
    assert not slow_waits.done()
    brief_waits = await steps.take(brief)
    steps.now += 5
    slots.give_back(slow_runs.result())
    await slow_waits
    assert not brief_waits.done()
    slots.give_back(brief_runs.result())
    await brief_waits
    assert (slots.free, len(slow.held), len(brief.held)) == (0, 1, 1)


async def test_what_was_kept_is_given_when_a_function_is_brief_again() -> None:
    """Not one slot, but all that it may have by then."""
    steps = SlotSteps(8)
    steps.line("other", 0.01)
    line = steps.line("f", 5, 5, 0.01)
    taken = [await steps.take(line) for _ in range(9)]
    assert (steps.slots.free, len(line.waiting)) == (4, 5)
    steps.slots.give_back(taken[0].result())
    await asyncio.gather(*taken)
    assert (steps.slots.free, len(line.held)) == (0, 8)
