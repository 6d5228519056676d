"""A task that loses the transaction of its handler rests, longer each time, and is never ended for that."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from progressor.errors.of_handlers import StepNotSaved
from progressor.loggers import message_of
from progressor.model import Task, TaskType
from progressor.storage.postgres.server_identity import Reach
from progressor.worker import hand_backs

SECOND = timedelta(seconds=1)


class Schedule:
    """What a worker gives back."""

    def __init__(self) -> None:
        self.pauses: list[timedelta] = []
        self.at_once: list[Task] = []
        self.outage = Reach()

    async def hand_back_unsaved(self, task: Task, pause: timedelta, reason: str) -> None:
        assert reason == "to run again: it was lost"
        self.pauses.append(pause)

    async def hand_back(self, tasks: list[Task]) -> None:
        self.at_once += tasks


async def pauses(times: int, last: timedelta | None = None, *, task_type: TaskType) -> list[timedelta]:
    """The pauses of a task that is lost so many times."""
    schedule: Any = Schedule()
    for attempt in range(times):
        task = Task("shop", "p", 1, task_type, last_retry_interval=last, attempts_count=attempt)
        last = await hand_backs.hand_back(task, StepNotSaved("it was lost"), schedule, lent=False)
    assert schedule.at_once == []
    return list(schedule.pauses)


@pytest.mark.parametrize("task_type", TaskType)
async def test_pauses_grow(task_type: TaskType) -> None:
    """From a second to five minutes, of timers too, whose attempts are not counted."""
    found = [pause.total_seconds() for pause in await pauses(12, task_type=task_type)]
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


async def test_a_timer_that_waits_longer_by_its_policy_does_so() -> None:
    """One that has failed before goes on as it was."""
    hour = timedelta(hours=1)
    assert await pauses(2, hour, task_type=TaskType.TIMEOUT) == [hour, hour]
    assert await pauses(2, 200 * SECOND, task_type=TaskType.TIMEOUT) == [300 * SECOND, 300 * SECOND]


async def test_each_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the task, how often it was tried, and its pause."""
    with caplog.at_level(logging.WARNING):
        await pauses(3, task_type=TaskType.CALL)
    assert [(each.attempt, each.pause, each.process_id) for each in caplog.records] == [  # type: ignore[attr-defined]
        (1, 1, "p"),
        (2, 2, "p"),
        (3, 4, "p"),
    ]


async def test_what_did_not_begin_has_no_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its slot rests instead: any other task would find no connection either, and all are one outage."""
    monkeypatch.setattr(hand_backs, "_PAUSE", 0)
    schedule: Any = Schedule()
    task = Task("shop", "p", 1, TaskType.CALL)
    lost = StepNotSaved("no server", has_begun=False)
    for _ in range(3):
        assert await hand_backs.hand_back(task, lost, schedule, lent=False) is None
    assert (schedule.at_once, schedule.pauses) == ([task] * 3, [])
    assert [message_of(each) for each in caplog.records] == ["PostgreSQL not available"]
