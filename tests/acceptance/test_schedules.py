"""Schedules through the public API: in virtual time, and on several engines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from progressor import (
    Client,
    Cron,
    Each,
    Engine,
    InvalidRequest,
    Namespace,
    Process,
    ProcessNotFound,
    ProcessStatus,
    Rejected,
    ScheduleNotFound,
    SetTimer,
)
from progressor.schedules import (
    SCHEDULES,
    Declaration,
    ScheduleState,
    Span,
    backfill,
    pause,
    resume,
    trigger,
)
from progressor.schedules.state import FanOut
from progressor.schedules.waiting import queue_of
from progressor.testing.world import World
from tests.acceptance.conftest import Options, of_a_client
from tests.acceptance.support import until
from tests.support import eventually

NS = "shop.order"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURLY = Cron("0 * * * *")

MakeWorld = Callable[..., World]


class Runs:
    """A namespace whose processes note when they began, and take some time."""

    def __init__(self, takes: timedelta = timedelta(0)) -> None:
        self.namespace: Namespace[Any] = Namespace(NS)
        self.begun: list[str] = []
        self.notes: Counter[str] = Counter()

        @self.namespace.init
        async def begin(process: Process[Any], label: str = "") -> None:
            self.begun.append(label or process.process_id)
            process.metadata["plan"] = "pro" if process.process_id.endswith("1") else "free"
            if takes:
                process.set_timer(after=takes)

        @self.namespace.timeout
        async def end(process: Process[Any]) -> None:
            if process.process_id == "fixed":
                process.remove()

        @self.namespace.call
        async def note(process: Process[Any], label: str = "") -> None:
            self.notes[process.process_id] += 1
            if label == "fail":
                raise ValueError

        self.note = note


def hour(at: datetime) -> str:
    return f"run-{at:%d%H}"


async def state(world: World, name: str = "hourly") -> ScheduleState:
    found = await world.client.get(SCHEDULES, f"{NS}/{name}")
    return ScheduleState.model_validate(found.state)


async def events(world: World, name: str = "hourly") -> list[tuple[str, str]]:
    found = await world.client.get(SCHEDULES, f"{NS}/{name}")
    return [(each.metadata["name"], each.payload["nominal"][8:13]) for each in found.history]


async def test_each_time_is_sent_once(progressor_world: MakeWorld) -> None:
    """With the arguments of its time; its log says so, and the next time is armed."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour, args=lambda at: f"{at:%H}")
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        world.twice()
        await world.advance(3 * HOUR)
        assert runs.begun[::2] == ["01", "02", "03"]
        assert await events(world) == [("sent", "01T01"), ("sent", "01T02"), ("sent", "01T03")]
        found = await world.client.get(SCHEDULES, f"{NS}/hourly")
        assert [each.due for each in found.timers.values()] == [BEGIN + 4 * HOUR]
        assert found.metadata == {"namespace": NS, "schedule": "hourly"}


@pytest.mark.parametrize(
    ("overlap", "begun", "log"),
    [
        ("skip", ["01", "04"], "sent skipped skipped sent skipped"),
        ("queue", ["01", "02", "03"], "sent sent sent"),
        ("allow", ["01", "02", "03", "04", "05"], "sent sent sent sent sent"),
    ],
)
async def test_a_run_that_goes_on(
    progressor_world: MakeWorld, overlap: Any, begun: list[str], log: str
) -> None:
    """Each takes 2.5 hours: what comes meanwhile is dropped, waits, or is sent all the same."""
    runs = Runs(takes=2.5 * HOUR)
    runs.namespace.schedule("hourly", HOURLY, start=hour, args=lambda at: f"{at:%H}", overlap=overlap)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(timedelta(hours=5, minutes=59) + 0.9 * HOUR * (overlap == "queue"))
        assert runs.begun == begun
        assert " ".join(name for name, _ in await events(world)) == log


async def test_a_broken_run_goes_on(progressor_world: MakeWorld) -> None:
    """It waits for its repair, and the times wait with it."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour, overlap="queue")
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(HOUR)
        await world.client.notify(NS, "run-0101", "note", "fail")
        with pytest.raises(Exception, match="ValueError"):
            await world.advance(2 * HOUR)
        assert len(runs.begun) == 1
        assert len((await state(world)).waiting) == 2
        await world.client.simple_repair(NS, "run-0101")
        await world.advance(timedelta(minutes=2))
        assert runs.begun == ["run-0101", "run-0102", "run-0103"]


async def test_an_id_that_is_always_the_same(progressor_world: MakeWorld) -> None:
    """The process must be gone before it is started again."""
    runs = Runs(takes=1.5 * HOUR)
    runs.namespace.schedule("hourly", HOURLY, start="fixed")
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(5 * HOUR)
        assert await events(world) == [
            *(("sent", "01T01"), ("skipped", "01T02")),
            *(("sent", "01T03"), ("skipped", "01T04")),
            ("sent", "01T05"),
        ]


async def test_each_of_many(progressor_world: MakeWorld) -> None:
    """All that run get one notice, in pages; those that were chosen, if it chooses."""
    runs = Runs()
    runs.namespace.schedule("all", HOURLY, each=Each(runs.note))
    runs.namespace.schedule("some", Cron("30 * * * *"), each=Each("note", {"plan": "pro"}))
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await asyncio.gather(*(world.client.start(NS, f"o{n}") for n in range(205)))
        await world.client.remove(NS, "o7")
        await world.advance(timedelta(minutes=31))
        assert set(runs.notes) == {f"o{n}" for n in range(205) if n % 10 == 1}
        await world.advance(timedelta(minutes=30))
        assert runs.notes.total() == 204 + 21
        found = await world.client.get(SCHEDULES, f"{NS}/all")
        assert [each.payload["to"] for each in found.history] == ["204 processes"]


async def test_pause_and_resume(progressor_world: MakeWorld) -> None:
    """What falls into the pause is passed over, and can be backfilled: no time is sent twice."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(HOUR)
        await world.client.call(pause, f"{NS}/hourly", "month end")
        await world.advance(3 * HOUR)
        assert runs.begun == ["run-0101"]
        assert (await state(world)).reason == "month end"
        with pytest.raises(Rejected, match="paused"):
            await world.client.call(trigger, f"{NS}/hourly")
        await world.client.call(resume, f"{NS}/hourly")
        await world.advance(HOUR)
        assert runs.begun == ["run-0101", "run-0105"]
        times = await world.client.call(backfill, f"{NS}/hourly", Span(since=BEGIN))
        assert times == [BEGIN + n * HOUR for n in range(5)]
        await world.advance(timedelta(minutes=1))
        assert runs.begun == [f"run-010{n}" for n in (1, 5, 0, 2, 3, 4)]
        assert (await state(world)).waiting == []


async def test_a_schedule_that_is_not_there(progressor_world: MakeWorld) -> None:
    """Whatever is asked of it, the error is one of a schedule, and one of a process too."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        one = world.client.process(SCHEDULES, f"{NS}/nix")
        for asked in (world.client.call(pause, f"{NS}/nix"), one.get(), one.trace(), one.remove()):
            with pytest.raises(ScheduleNotFound, match=f"^no schedule '{NS}/nix'$") as missing:
                await asked
            assert (missing.value.namespace, missing.value.process_id) == (SCHEDULES, f"{NS}/nix")
            assert isinstance(missing.value, ProcessNotFound)


async def test_a_trigger(progressor_world: MakeWorld) -> None:
    """It is a time of its own: this moment."""
    runs = Runs()
    runs.namespace.schedule("nightly", Cron("0 2 * * *"), start=lambda at: f"{at:%H%M}")
    async with progressor_world([runs.namespace], now=BEGIN + timedelta(minutes=7)) as world:
        assert await world.client.call(trigger, f"{NS}/nightly") == BEGIN + timedelta(minutes=7)
        await world.settle()
        await world.advance(2 * HOUR)
        assert runs.begun == ["0007", "0200"]


@pytest.mark.parametrize(
    ("span", "why"),
    [
        (Span(since=BEGIN - 60 * DAY), "more than 1,000 times"),
        (Span(since=BEGIN, until=BEGIN + DAY), "in the future"),
        (Span(since=BEGIN - HOUR, until=BEGIN - DAY), "since must be earlier than until"),
        (Span(since=BEGIN - HOUR, until=BEGIN - HOUR), "since must be earlier than until"),
        (Span(since=BEGIN + HOUR), "since must be in the past"),
        # Nothing can be subtracted from these.
        (Span(since=datetime.min.replace(tzinfo=UTC)), "more than 1,000 times"),
        (Span(since=datetime.min.replace(tzinfo=timezone(14 * HOUR))), "more than 1,000 times"),
    ],
)
async def test_a_backfill_that_is_refused(progressor_world: MakeWorld, span: Span, why: str) -> None:
    """Nothing of it is sent, and the schedule goes on."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        with pytest.raises(Rejected, match=why):
            await world.client.call(backfill, f"{NS}/hourly", span)
        await world.settle()
        assert runs.begun == []
        assert (await world.client.get(SCHEDULES, f"{NS}/hourly")).status == "running"


async def test_a_time_whose_code_raises(progressor_world: MakeWorld) -> None:
    """It is tried again, as the same time; the next ones come as if nothing had been."""
    runs, tries = Runs(), 0

    def flaky(at: datetime) -> str:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise LookupError("the catalogue is away")
        return hour(at)

    runs.namespace.schedule("hourly", HOURLY, start=flaky)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(2 * HOUR)
        assert await events(world) == [("sent", "01T01"), ("sent", "01T02")]


async def test_arguments_that_the_target_refuses(progressor_world: MakeWorld) -> None:
    """The schedule fails, and does not send what would be refused where nobody sees it."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour, args=7)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(HOUR + timedelta(minutes=1))
        assert await events(world) == []
        last = (await world.client.trace(SCHEDULES, f"{NS}/hourly"))[-1]
        assert last.attempts_count > 1
        assert "args" in str(last.error)


async def test_a_rule_that_changes(progressor_world: MakeWorld, dsn: str) -> None:
    """A newer declaration fires nothing before its own next time; the one before is shown."""
    one, other = Runs(), Runs()
    one.namespace.schedule("hourly", Cron("0 3 * * *"), start=hour)
    other.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([one.namespace], now=BEGIN) as world:
        await world.advance(HOUR)
    async with progressor_world([other.namespace], now=BEGIN + 90 * timedelta(minutes=1)) as world:
        await world.settle()
        assert other.begun == []
        replaced = (await state(world)).replaced
        assert replaced is not None
        assert replaced.timer.every == {"cron": "0 3 * * *", "tz": "UTC"}
        await world.advance(HOUR)
        assert other.begun == ["run-0102"]
    assert one.begun == []


async def test_another_id_for_the_run(progressor_world: MakeWorld) -> None:
    """Newer code starts another process: that of the last run need not be gone, only at rest."""
    one, other = Runs(), Runs(takes=1.5 * HOUR)
    one.namespace.schedule("hourly", HOURLY, start=hour)
    other.namespace.schedule("hourly", HOURLY, start="fixed")
    async with progressor_world([one.namespace], now=BEGIN) as world:
        await world.advance(HOUR)
    async with progressor_world([other.namespace], now=BEGIN + 1.5 * HOUR) as world:
        await world.advance(2 * HOUR)
        assert other.begun == ["fixed"]
        assert await events(world) == [("sent", "01T01"), ("sent", "01T02"), ("skipped", "01T03")]


async def test_a_fan_out_whose_code_goes(progressor_world: MakeWorld) -> None:
    """Newer code starts a process instead: it sends no start for each of the rest, and goes on."""
    one, other = Runs(), Runs()
    one.namespace.schedule("hourly", HOURLY, each=Each(one.note))
    other.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([one.namespace], now=BEGIN) as world:
        await asyncio.gather(*(world.client.start(NS, f"o{n}") for n in range(105)))
        half = await state(world)
        half.fan_out = FanOut(nominal=BEGIN, sent=100)
        await world.client.remove(SCHEDULES, f"{NS}/hourly")
        timer = SetTimer(name=f"{NS}/hourly", at=BEGIN + HOUR, every=HOURLY)
        await world.client.put(SCHEDULES, f"{NS}/hourly", state=half, action=timer)
    async with progressor_world([other.namespace], now=BEGIN) as world:
        await world.advance(2.5 * HOUR)
        assert other.begun == ["run-0102"]
        found = await world.client.get(SCHEDULES, f"{NS}/hourly")
        assert [each.metadata["name"] for each in found.history] == ["skipped", "sent", "sent"]
        assert found.history[1].payload["to"] == "100 processes"
        assert (await state(world)).fan_out is None


async def test_a_fan_out_of_other_code(progressor_world: MakeWorld) -> None:
    """An older worker, which would start a process instead, leaves the rest to those that notify each."""
    one, other = Runs(), Runs()
    one.namespace.schedule("hourly", HOURLY, each=Each(one.note))
    other.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([other.namespace], now=BEGIN) as world:
        await world.settle()
        half = await state(world)
        half.declaration = Declaration.of(one.namespace.schedules["hourly"])
        half.fan_out = FanOut(nominal=BEGIN, sent=100)
        await world.client.remove(SCHEDULES, f"{NS}/hourly")
        queue = SetTimer(name=queue_of(f"{NS}/hourly"), after=timedelta(0))
        await world.client.put(SCHEDULES, f"{NS}/hourly", state=half, action=queue)
        await world.advance(timedelta(seconds=1))
        found = await world.client.get(SCHEDULES, f"{NS}/hourly")
        assert (found.history, [*found.timers]) == ((), [queue.name])
        assert (await state(world)).fan_out == half.fan_out


async def test_a_timer_that_no_schedule_has(progressor_world: MakeWorld) -> None:
    """A client may fire the timer of a schedule; another one, which would fail for a day, is refused."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour)
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.settle()
        with pytest.raises(InvalidRequest, match="no timeout handler for the timer 'mistyped'"):
            await world.client.set_timer(SCHEDULES, f"{NS}/hourly", "mistyped", after=HOUR)
        await world.client.fire_timer(SCHEDULES, f"{NS}/hourly", f"{NS}/hourly")
        await world.settle()
        assert runs.begun == ["run-0101"]


async def test_a_trigger_while_a_run_goes_on(progressor_world: MakeWorld) -> None:
    """What comes before its turn waits behind it; after that times are dropped again, and none piles up."""
    runs = Runs(takes=2.5 * HOUR)
    runs.namespace.schedule("hourly", HOURLY, start=lambda at: f"run-{at:%d%H%M}")
    async with progressor_world([runs.namespace], now=BEGIN) as world:
        await world.advance(1.5 * HOUR)
        await world.client.call(trigger, f"{NS}/hourly")
        await world.advance(13 * HOUR)
        assert runs.begun[:4] == ["run-010100", "run-010130", "run-010200", "run-010300"]
        assert ("skipped", "01T04") in await events(world)
        assert (await state(world)).waiting == []


async def test_a_state_of_a_newer_release(
    dsn: str, mode: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine that cannot read it starts all the same, and leaves it alone."""
    runs = Runs()
    runs.namespace.schedule("hourly", HOURLY, start=hour)
    async with engines(dsn, mode, runs.namespace) as made:
        await until(lambda: made[0].client.get(SCHEDULES, f"{NS}/hourly"), lambda found: found.state)
    async with Client(dsn, **of_a_client(mode)) as client:
        found = (await client.get(SCHEDULES, f"{NS}/hourly")).state
        found["declaration"]["overlap"] = "replace"
        await client.remove(SCHEDULES, f"{NS}/hourly")
        await client.put(SCHEDULES, f"{NS}/hourly", state=found)
        async with engines(dsn, mode, runs.namespace):
            pass
        assert "schedule not declared" in caplog.text
        assert (await client.get(SCHEDULES, f"{NS}/hourly")).state == found


@asynccontextmanager
async def engines(dsn: str, mode: Options, *namespaces: Namespace[Any]) -> AsyncIterator[list[Engine]]:
    """One engine for each, all at once."""
    made = [Engine(dsn, [each], **mode) for each in namespaces]
    await asyncio.gather(*(each.__aenter__() for each in made))
    try:
        yield made
    finally:
        await asyncio.gather(*(each.stop() for each in made))


EVERY_SECOND = Cron("* * * * * *", seconds=True)


def second(at: datetime) -> str:
    return f"run-{at:%H%M%S}"


async def test_several_engines_send_each_time_once(dsn: str, mode: Options) -> None:
    """Whoever fires it; all begin the schedule at the same moment."""
    parts = [Runs() for _ in range(3)]
    for each in parts:
        each.namespace.schedule("often", EVERY_SECOND, start=second, overlap="allow", catch_up="all")
    async with engines(dsn, mode, *(each.namespace for each in parts)) as made:
        client = made[0].client
        await until(lambda: client.search(namespace=NS), lambda page: len(page.items) >= 6)
        found = await client.get(SCHEDULES, f"{NS}/often")
        sent = [each.payload["nominal"] for each in found.history]
        assert len(sent) == len(set(sent))
        begun = [name for each in parts for name in each.begun]
        assert len(begun) == len(set(begun))
        first, last = (datetime.fromisoformat(each) for each in (sent[0], sent[-1]))
        assert len(sent) == (last - first).total_seconds() + 1


async def test_a_worker_without_the_schedule_leaves_it_to_one_that_has_it(dsn: str, mode: Options) -> None:
    """In a rolling deploy the old version sends nothing of the new one's schedule, and breaks nothing."""
    old, new = Runs(), Runs()
    old.namespace.schedule("other", Cron("0 0 1 1 *"), start=hour)
    new.namespace.schedule("often", EVERY_SECOND, start=second, overlap="allow", catch_up="all")
    async with engines(dsn, mode, old.namespace, new.namespace) as made:
        client = made[0].client
        await until(lambda: client.search(namespace=NS), lambda page: len(page.items) >= 4)
        trace = await client.trace(SCHEDULES, f"{NS}/often")
        assert [each for each in trace if each.attempts_count or each.error] == []
        await made[1].stop()
        # Alone, the old one has it tried again until the code is there.
        await until(
            lambda: client.trace(SCHEDULES, f"{NS}/often", last=1), lambda last: last[0].attempts_count > 0
        )
        made[1] = await Engine(dsn, [new.namespace], **mode).__aenter__()
        count = len(new.begun)
        await eventually(lambda: len(new.begun) > count + 3, "it goes on")
        found = await client.get(SCHEDULES, f"{NS}/often")
        sent = [datetime.fromisoformat(each.payload["nominal"]) for each in found.history]
        assert sent == [sent[0] + n * timedelta(seconds=1) for n in range(len(sent))]


async def test_a_worker_without_the_schedule_begins_it(dsn: str, mode: Options) -> None:
    """It may come first to the requests of another version's schedule: they need none of its functions."""
    old, new = Runs(), Runs()
    old.namespace.schedule("other", Cron("0 0 1 1 *"), start=hour)
    new.namespace.schedule("often", EVERY_SECOND, start=second, overlap="allow", catch_up="all")
    often = f"{NS}/often"
    async with engines(dsn, mode, old.namespace) as made:
        client = made[0].client
        await client.start(SCHEDULES, often, Declaration.of(new.namespace.schedules["often"]))
        await client.call(pause, often)
        await client.call(resume, often)
        await client.call(trigger, often)
        await until(lambda: client.trace(SCHEDULES, often), lambda steps: steps[-1].attempts_count > 0)
        async with engines(dsn, mode, new.namespace):
            await eventually(lambda: len(new.begun) > 3, "the time that was triggered, and its rule")
        assert (await client.get(SCHEDULES, often)).status is ProcessStatus.RUNNING
