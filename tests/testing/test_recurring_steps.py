"""Recurring timers in steps without a database: the nominal time of a step, and when a rule is due."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from progressor import InvalidRequest, Monthly, Namespace, Process
from progressor.testing import process, step

START = datetime(2024, 3, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def test_a_step_of_a_test_recurs() -> None:
    """It has the nominal time that the test states, and its timer the next one behind it."""
    namespace = Namespace("alone", state=list[str])

    @namespace.timeout("bill")
    async def bill(process: Process[list[str]]) -> None:
        process.state.append(f"{process.task.nominal:%d}")

    done = await step(bill, state=[], now=START, every=DAY, nominal=START - 3 * HOUR)
    assert (done.state, done.timers["bill"].after) == (["29"], 21 * HOUR)
    with pytest.raises(InvalidRequest, match="nominal= needs every="):
        await step(bill, state=[], nominal=START)


def test_a_process_of_a_test_shows_when_a_rule_is_due() -> None:
    """As an engine would set it: by its rule, in its hours."""
    given = process([], now=START)
    given.set_timer("a", every=Monthly(31))
    given.set_timer("b", after=HOUR, between=(time(8), time(18)))
    due = {name: timer.at for name, timer in given.done.timers.items()}
    assert due == {"a": START + 30 * DAY, "b": START + 8 * HOUR}
