"""An outage in the log: a line when it begins, some while it lasts, one when it is over."""

from __future__ import annotations

import logging

import pytest

from progressor import outages
from progressor.loggers import Logger, message_of
from progressor.outages import Outage, OutageLines, cause_of, in_one_line

SAYS = OutageLines("gone", "still gone", "back again")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(outages.time, "monotonic", clock)
    return clock


@pytest.fixture
def outage(clock: Clock, caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level(logging.INFO)
    return Outage(Logger("progressor.test"), SAYS, host="db")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, float | None]]:
    return [(message_of(record), getattr(record, "seconds", None)) for record in caplog.records]


def test_a_long_outage(outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """However much fails, it is a line each half minute, and one when it is over: for how long."""
    for tenth in range(700):
        clock.now = 1000 + tenth / 10
        outage.failed("OperationalError: refused", operation="save_result")
    clock.now = 1070
    outage.worked()
    clock.now = 1090
    outage.worked()
    outage.worked()
    assert said(caplog) == [("gone", None), ("still gone", 30), ("still gone", 60), ("back again", 70)]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    first = caplog.records[0]
    assert (first.host, first.operation, first.cause) == ("db", "save_result", "OperationalError: refused")


def test_what_works_amid_an_outage_does_not_end_it(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Where some of what is tried works and the rest does not, the lines are as few."""
    for second in range(100):
        clock.now = 1000 + second
        outage.failed("QueryCanceled: statement timeout")
        outage.worked()
    assert said(caplog) == [("gone", None), *(("still gone", seconds) for seconds in (30, 60, 90))]


def test_nothing_is_said_where_all_is_well(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    """A success that follows no failure is no news."""
    outage.worked()
    assert said(caplog) == []


def test_the_next_outage_is_said_again(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has a line when it begins and one when it is over, and no more."""
    for start in (1000, 1100):
        clock.now = start
        outage.failed("refused")
        clock.now = start + 2
        outage.worked()
        clock.now = start + 19
        outage.worked()
    assert said(caplog) == [("gone", None), ("back again", 2)] * 2


def test_for_how_long(outage: Outage, clock: Clock) -> None:
    """Since the first failure, or the last success; none if it works, or nobody has tried for a while."""
    assert outage.seconds == 0
    outage.failed("refused")
    clock.now += 3
    assert outage.seconds == 3
    outage.worked()
    assert outage.seconds == 0
    outage.failed("refused")
    clock.now += 2
    assert outage.seconds == 2
    clock.now += 61
    assert outage.seconds == 0


def test_what_works_in_part(outage: Outage, clock: Clock) -> None:
    """While other things still fail it ends no outage; where nothing fails any more, there is none."""
    outage.failed("refused")
    clock.now += 3
    outage.worked(in_part=True)
    assert (outage.seconds, outage.is_partial) == (0, False)
    outage.failed("disk full")
    for _ in range(5):
        clock.now += 10
        outage.worked(in_part=True)
        assert (outage.seconds, outage.is_partial, outage.cause) == (clock.now - 1000, True, "disk full")
        outage.failed("disk full")
    clock.now += 1
    outage.worked()
    assert (outage.seconds, outage.is_partial) == (0, False)
    outage.failed("disk full")
    outage.worked(in_part=True)
    clock.now += 16
    assert (outage.seconds, outage.is_partial) == (0, False)


def test_one_thing_that_fails_for_ever(outage: Outage, clock: Clock) -> None:
    """Beside others that work: it counts from the last of these."""
    for _ in range(100):
        outage.worked()
        for _ in range(5):
            outage.failed("damaged")
            clock.now += 1
            outage.worked(in_part=True)
        assert outage.seconds == 5


def test_what_works_now_and_then(outage: Outage, clock: Clock) -> None:
    """Where almost all fails, a few successes end no outage; once half of it works, they do."""
    for tenth in range(600):
        clock.now = 1000 + tenth / 10
        outage.failed("disk full")
        if tenth % 10 == 5:
            outage.worked()
    assert outage.seconds == pytest.approx(clock.now - 1000, abs=5)
    for _ in range(300):
        clock.now += 0.1
        outage.failed("disk full")
        outage.worked()
    assert outage.seconds < 1


def test_what_failed_before_anything_worked_weighs_nothing(outage: Outage, clock: Clock) -> None:
    """After a long outage one that still fails is beside what works, at once."""
    for _ in range(1000):
        clock.now += 0.1
        outage.failed("refused")
    outage.worked()
    outage.failed("refused")
    clock.now += 0.1
    outage.worked()
    assert outage.seconds == 0


def test_a_failure_long_after_another(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins an outage of its own, though nobody has noticed the end of the first."""
    outage.failed("refused")
    clock.now += 36_000
    outage.failed("refused")
    assert outage.seconds == 0
    assert said(caplog) == [("gone", None)] * 2


def test_what_is_held_up_has_its_time_until_it_is_over(outage: Outage, clock: Clock) -> None:
    """Other things may work meanwhile."""
    assert outage.held_up == 0.0
    outage.failed("x")
    clock.now += 3
    outage.worked()
    assert outage.held_up == 3.0
    outage.failed("x")
    clock.now += 61
    assert outage.held_up == 0.0


def test_causes_are_one_bounded_line() -> None:
    """Whatever the error's text looks like."""
    assert cause_of(OSError("connection refused\n\tIs the server running?")) == (
        "OSError: connection refused Is the server running?"
    )
    assert cause_of(TimeoutError()) == "TimeoutError"
    assert len(cause_of(ValueError("x" * 10_000))) == 300
    assert in_one_line("short") == "short"
