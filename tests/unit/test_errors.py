"""The texts of errors about processes."""

from __future__ import annotations

import pytest

from progressor.errors import (
    AboutProcess,
    IdempotencyConflict,
    ProcessBroken,
    ProcessNotFound,
    ProgressorError,
    Rejected,
    ReplyTimeout,
    RequestLost,
    ScheduleNotFound,
    process_not_found,
)
from progressor.schedules import SCHEDULES

ID = "shop.books/nightly"


@pytest.mark.parametrize(
    "error",
    [
        AboutProcess(SCHEDULES, ID),
        ProcessBroken(SCHEDULES, ID, detail="why"),
        Rejected(SCHEDULES, ID, reason="it is paused"),
        IdempotencyConflict(SCHEDULES, ID, "key"),
        ReplyTimeout(SCHEDULES, ID, idempotency_key="key", task_id=7),
        RequestLost(SCHEDULES, ID, idempotency_key="key", task_id=7),
        ScheduleNotFound(SCHEDULES, ID),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_error_about_a_schedule_names_it_as_one(error: ProgressorError) -> None:
    """By its own namespace and name, not as a process of the engine's namespace."""
    assert f"schedule {ID!r}" in str(error)
    assert f"process {ID!r}" not in str(error)
    assert f"{SCHEDULES}/" not in str(error)


def test_an_error_about_a_process_names_it_as_one() -> None:
    """With its namespace."""
    assert str(ProcessBroken("shop.order", "o1", detail="why")) == "process 'shop.order/o1' is broken: why"


def test_what_is_not_there() -> None:
    """A schedule that is not there is a process that is not there."""
    process, schedule = process_not_found("shop.order", "o1"), process_not_found(SCHEDULES, ID)
    assert (type(process), str(process)) == (ProcessNotFound, "no process 'shop.order/o1'")
    assert (type(schedule), str(schedule)) == (ScheduleNotFound, f"no schedule {ID!r}")
    assert isinstance(schedule, ProcessNotFound)
