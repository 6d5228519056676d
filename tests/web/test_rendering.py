"""Texts of pages: lines, times, bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor import Cron, Monthly, Timer
from progressor.model import TaskType, TimerStatus
from progressor.web.rendering import bytes_text, line_of, milliseconds, upcoming, value_text

MONDAY = datetime(2026, 11, 30, 9, tzinfo=UTC)


def timer(every: Any, **more: Any) -> Timer:
    """A timer that is due on a Monday."""
    return Timer(
        name="",
        task_type=TaskType.TIMEOUT,
        due=MONDAY,
        status=TimerStatus.WAITING,
        every=every,
        **{"nominal": None if every is None else MONDAY, **more},
    )


def test_a_line_goes_from_the_oldest_to_the_newest() -> None:
    """Its highest value stands at the top, zero at the bottom; one value makes no line."""
    line = line_of([0, 5, 10])
    assert line is not None
    assert (line.points, line.highest) == ("0.0,23.0 50.0,12.0 100.0,1.0", 10)
    flat = line_of([0, 0])
    assert flat is not None
    assert (flat.points, flat.highest) == ("0.0,23.0 100.0,23.0", 0)
    assert line_of([7]) is None
    assert line_of([]) is None


@pytest.mark.parametrize(
    ("every", "days"),
    [
        (timedelta(days=2), [0, 2, 4, 6, 8]),
        (Cron("0 9 * * 1"), [0, 7, 14, 21, 28]),
        (Monthly(day=30, at=MONDAY.time()), [0, 30, 61, 90, 120]),
        (None, []),
    ],
    ids=repr,
)
def test_the_next_times_of_a_timer(every: Any, days: list[int]) -> None:
    """Five, by its rule; of a month without that day its last one."""
    assert [(each - MONDAY).days for each in upcoming(timer(every))] == days


def test_what_goes_by_its_steps_is_not_foretold() -> None:
    """The end of a step decides: only the time that is set is known."""
    assert upcoming(timer(timedelta(days=2), drift="after")) == [MONDAY]


def test_long_values_are_cut() -> None:
    """And what is left out shows."""
    assert value_text({"a": 2**63 - 1}) == '{\n  "a": 9223372036854775807\n}'
    assert value_text("x" * 9000).endswith("x…")
    assert bytes_text(None) == ""
    assert bytes_text(b"\x00\xff") == "00 ff (2 bytes)"
    assert bytes_text(bytes(3000)).endswith("00 … (3,000 bytes)")


def test_short_times() -> None:
    """In milliseconds up to a second."""
    assert milliseconds(timedelta(microseconds=1500)) == "1.5 ms"
    assert milliseconds(timedelta(seconds=3)) == "3 s"
