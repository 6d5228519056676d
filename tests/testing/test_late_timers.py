"""Recurring timers that are late: what runs all the same, and what does not."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any

import pytest

from progressor import Cron, InvalidRequest, Monthly, Namespace, Process, RetryPolicy, Task, TaskType
from progressor.calendars import wall_clock
from progressor.testing import BrokenInWorld, World, process
from progressor.timers.recurrence import Occurrence, Recurrence, occurrence_of

START = datetime(2024, 3, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATE: Any = pytest.mark.parametrize("late", [{"catch_up": "skip"}, {"within": 3600}])


def invoices(**options: Any) -> Namespace[list[str]]:
    """Its timer recurs each day; it fails while the state is not empty, and notes its nominal time."""
    namespace = Namespace("invoices", state=list[str], **options)

    @namespace.init
    async def begin(process: Process[list[str]], late: dict[str, Any]) -> None:
        process.state = ["ill"]
        within = timedelta(seconds=late["within"]) if "within" in late else None
        process.set_timer("bill", every=DAY, catch_up=late.get("catch_up", "one"), within=within)

    @namespace.call
    async def heal(process: Process[list[str]]) -> None:
        process.state = []

    @namespace.timeout("bill")
    async def bill(process: Process[list[str]]) -> None:
        if process.state == ["ill"]:
            raise ValueError("ill")
        process.state.append(f"{process.task.nominal:%d}")

    @namespace.repair
    async def repair(process: Process[list[str]]) -> None:
        process.state = []

    return namespace


@LATE
async def test_what_broke_its_process_is_run_after_the_repair(dsn: str, late: dict[str, Any]) -> None:
    """However late the repair comes: the time was begun, so it is not passed over."""
    namespace = invoices(retry_policy=RetryPolicy(max_attempts=1))
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("invoices", "a", late)
        with pytest.raises(BrokenInWorld):
            await world.advance(DAY)
        await world.advance(9 * DAY + HOUR)
        await world.client.repair("invoices", "a")
        await world.settle()
        assert (await world.client.get("invoices", "a")).state[0] == "02"


@LATE
async def test_what_is_fired_by_hand_is_run(dsn: str, late: dict[str, Any]) -> None:
    """Also a late time that waits for another try: who fires it wants it to run."""
    namespace = invoices(retry_policy=RetryPolicy(initial_interval=30 * DAY, max_interval=30 * DAY))
    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("invoices", "a", late)
        await world.advance(3 * DAY + HOUR + HOUR)
        await world.client.call("invoices", "a", "heal")
        await world.client.fire_timer("invoices", "a", "bill")
        await world.settle()
        assert (await world.client.get("invoices", "a")).state[0] == "02"


@pytest.mark.parametrize("more", [{}, {"within": 11 * HOUR}])
async def test_what_is_late_waits_for_its_hours(dsn: str, more: dict[str, Any]) -> None:
    """A worker that comes back at night begins no step that belongs to the day."""
    namespace = Namespace("calls", state=list[str])

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer("call", every=Cron("0 12 * * *"), between=(time(8), time(18)), **more)

    @namespace.timeout("call")
    async def call(process: Process[list[str]]) -> None:
        process.state.append(f"{process.task.nominal:%d %H} at {process.now:%d %H}")

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("calls", "a")
        await world.client.pause("calls")
        await world.advance(22 * HOUR)
        await world.client.resume("calls")
        await world.settle()
        assert (await world.client.get("calls", "a")).state == []
        await world.advance(DAY)
        assert (await world.client.get("calls", "a")).state == ["01 12 at 02 08", "02 12 at 02 12"]
        await world.client.fire_timer("calls", "a", "call")
        await world.settle()
        assert (await world.client.get("calls", "a")).state[2:] == ["03 12 at 02 22"]


@pytest.mark.parametrize("attempts", [0, 1])
async def test_no_handler_runs_by_an_unknown_rule(attempts: int) -> None:
    """Of a newer release, at each try: its next time could not be armed."""
    namespace = invoices()
    args = Occurrence(Recurrence(HOUR), START).as_bytes().replace(b'"seconds"', b'"moons"')
    task = Task(
        "invoices",
        "a",
        1,
        TaskType.TIMEOUT,
        name="bill",
        args=args,
        running_time=START,
        attempts_count=attempts,
    )
    given = process([], now=START)
    with pytest.raises(InvalidRequest, match="a rule must be"):
        await namespace.process(task, given)
    assert given.done.state == []


async def test_a_time_that_is_passed_over_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its task ends as one that ran; the log tells them apart."""
    namespace = invoices()
    args = Occurrence(Recurrence(HOUR, within=HOUR), START).as_bytes()
    task = Task("invoices", "a", 1, TaskType.TIMEOUT, name="bill", args=args, running_time=START + DAY)
    await namespace.process(task, process([], now=START))
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "recurring timer is too late" in line
    assert "nominal=2024-03-01T00:00:00+00:00" in line
    assert "goes_on_at=2024-03-01T23:00:00+00:00" in line


class Reversing:
    """A codec."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


@pytest.mark.parametrize("options", [{}, {"codec": Reversing()}], ids=["plain", "coded"])
async def test_the_trace_says_what_was_passed_over(dsn: str, options: dict[str, Any]) -> None:
    """Its task finished as one that ran; the response tells them apart, and where the rule goes on."""
    namespace = Namespace("invoices", state=list[str], **options)

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer("late", every=HOUR, within=HOUR)
        process.set_timer("hours", every=HOUR, between=(time(9), time(17)))

    @namespace.timeout
    async def bill(process: Process[list[str]]) -> None:
        process.state.append(f"{process.task.name} {process.task.nominal:%d %H}")

    async with World(dsn, [namespace], now=START) as world:
        await world.client.start("invoices", "a")
        await world.settle()
    async with World(dsn, [namespace], now=START + DAY + 2.5 * HOUR) as world:
        await world.settle()
        ran = {}
        for each in await world.client.trace("invoices", "a"):
            if each.task_type is TaskType.TIMEOUT and each.status == "finished":
                ran.setdefault(each.name, each.response)
        assert ran == {
            "late": {"passed_over": "too late", "goes_on_at": "2024-03-02T02:00:00Z"},
            "hours": {"passed_over": "outside of its hours", "goes_on_at": "2024-03-02T09:00:00Z"},
        }
        assert (await world.client.get("invoices", "a")).state == ["late 02 02"]


@pytest.fixture
def law(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the hours from UTC that the clock of every zone has."""

    def law(hours: int) -> None:
        # As in a worker that starts with it.
        occurrence_of.cache_clear()
        monkeypatch.setattr(wall_clock, "_zone", lambda _: timezone(timedelta(hours=hours)))

    return law


def bills(at: time, *, sets_anew: bool = False, **late: Any) -> Namespace[list[str]]:
    """It bills on the first of each month, by the clock of Almaty."""
    namespace = Namespace("bills", state=list[str])
    monthly = Monthly(1, at=at, tz="Asia/Almaty")

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer(every=monthly, **late)

    @namespace.timeout
    async def bill(process: Process[list[str]]) -> None:
        process.state.append(f"{process.task.nominal:%m-%d %H:%M} {process.task.missed}")
        if sets_anew:
            process.set_timer(every=monthly, **late)

    return namespace


@pytest.mark.parametrize("sets_anew", [False, True])
@pytest.mark.parametrize("at", [time(0), time(9)])
@pytest.mark.parametrize("hours", [6, 1, 0, -5])
async def test_a_law_that_sets_the_clock_back_bills_nobody_twice(
    dsn: str, law: Any, hours: int, at: time, sets_anew: bool
) -> None:
    """The time that was armed before comes at its moment, once, and keeps the day that it was for."""
    law(hours)
    async with World(dsn, [bills(at, sets_anew=sets_anew)], now=START - 20 * DAY) as world:
        await world.client.start("bills", "a")
        law(hours - 1)
        await world.advance(55 * DAY)
        assert (await world.client.get("bills", "a")).state == [
            f"03-01 {at:%H:%M} 0",
            f"04-01 {at:%H:%M} 0",
        ]
        timer = (await world.client.get("bills", "a")).timers[""]
        assert timer.next is not None


@pytest.mark.parametrize("late", [{"catch_up": "skip"}, {"catch_up": "all"}, {"within": 2 * HOUR}])
async def test_a_time_that_the_clock_shows_again_is_no_other_one(
    dsn: str, law: Any, late: dict[str, Any]
) -> None:
    """It does not pass over the one that was armed, and does not count as missed."""
    law(6)
    async with World(dsn, [bills(time(9), **late)], now=START - 20 * DAY) as world:
        await world.client.start("bills", "a")
        law(5)
        await world.client.pause("bills", reason="a worker that is late")
        await world.advance(20 * DAY + 4 * HOUR + timedelta(minutes=6))
        await world.client.resume("bills")
        await world.advance(35 * DAY)
        assert (await world.client.get("bills", "a")).state[-2:] == ["03-01 09:00 0", "04-01 09:00 0"]


async def test_a_schedule_keeps_the_day_that_it_was_for(dsn: str, law: Any) -> None:
    """Its functions get the midnight that was armed, though it comes at 23:00 of the day before."""
    closing = Namespace("closing", state=str)

    @closing.init
    async def begin(process: Process[str], day: str) -> None:
        process.state = day

    closing.schedule(
        "nightly",
        Cron("0 0 * * *", tz="Asia/Almaty"),
        start=lambda at: f"{at:%m%d}",
        args=lambda at: f"{at:%d}",
    )
    law(6)
    async with World(dsn, [closing], now=START - DAY) as world:
        await world.advance(DAY / 2)
        law(5)
        await world.advance(3 * DAY)
        found = {
            each.process_id: each.state for each in (await world.client.search(namespace="closing")).items
        }
        assert found == {"0301": "01", "0302": "02", "0303": "03"}
