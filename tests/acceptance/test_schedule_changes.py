"""Schedules whose rule changes, that are paused, break or fall behind: no time is lost without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import (
    Cron,
    Each,
    Event,
    Intent,
    Namespace,
    NonRetryable,
    Process,
    Task,
    TaskType,
)
from progressor.schedules import SCHEDULES, ScheduleState, pause, resume
from progressor.testing import BrokenInWorld
from progressor.testing.world import World

NS = "shop.order"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
HOURLY, QUARTERLY = Cron("0 * * * *"), Cron("*/15 * * * *")

MakeWorld = Callable[..., World]


def minute(at: datetime) -> str:
    return f"{at:%H%M}"


def failing(error: type[Exception]) -> Callable[[datetime], str]:
    """The id of a run, by code that is wrong."""

    def start(_at: datetime) -> str:
        raise error("no such month")

    return start


def orders(
    every: Cron, start: Any = minute, takes: timedelta | None = None, **doing: Any
) -> Namespace[Any]:
    """Its schedule starts a process each time."""
    namespace: Namespace[Any] = Namespace(NS)

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        if takes is not None:
            process.set_timer(after=takes)

    @namespace.timeout
    async def end(process: Process[Any]) -> None: ...

    namespace.schedule("close", every, start=start, **doing)
    return namespace


async def begun(world: World) -> list[str]:
    return sorted(each.process_id for each in (await world.client.search(namespace=NS, limit=1_000)).items)


async def log(world: World) -> list[tuple[str, str]]:
    """What the schedule says: each word, with the time that it is about."""
    found = (await world.client.get(SCHEDULES, f"{NS}/close")).history
    about = [(each.metadata["name"], each.payload) for each in found]
    return [(name, (payload.get("nominal") or payload["until"])[11:16]) for name, payload in about]


async def state(world: World) -> ScheduleState:
    return ScheduleState.model_validate((await world.client.get(SCHEDULES, f"{NS}/close")).state)


async def test_a_time_that_is_tried_again_outlives_its_rule(progressor_world: MakeWorld) -> None:
    """Newer code has another rule, and sends it: once, when it would have been tried again."""
    async with progressor_world([orders(HOURLY, failing(LookupError))], now=BEGIN) as world:
        await world.advance(HOUR + 10 * MINUTE)
        assert await log(world) == []
    async with progressor_world([orders(QUARTERLY)], now=BEGIN + HOUR + 10 * MINUTE) as world:
        await world.advance(MINUTE)
        assert (await begun(world), await log(world)) == (["0100"], [("sent", "01:00")])
        await world.advance(20 * MINUTE)
        assert await begun(world) == ["0100", "0115", "0130"]
        assert (await state(world)).waiting == []


@pytest.mark.parametrize(
    ("catch_up", "sent", "said"),
    [
        ("one", ["0100"], [("missed", "01:00"), ("sent", "01:00")]),
        ("all", ["0100", "0200", "0300"], [("sent", f"0{n}:00") for n in (1, 2, 3)]),
        ("skip", [], [("skipped", "01:00")]),
    ],
)
async def test_times_that_nobody_sent_outlive_their_rule(
    progressor_world: MakeWorld, catch_up: Any, sent: list[str], said: list[tuple[str, str]]
) -> None:
    """Those of an outage that ends with a deploy of another rule: as they are caught up by the old one."""
    async with progressor_world([orders(HOURLY, catch_up=catch_up)], now=BEGIN) as world:
        await world.settle()
        # Nothing is sent before the newer code is there.
        await world.client.pause(SCHEDULES)
    async with progressor_world([orders(QUARTERLY)], now=BEGIN + 3 * HOUR + 10 * MINUTE) as world:
        await world.client.resume(SCHEDULES)
        await world.advance(MINUTE)
        assert (await begun(world), await log(world)) == (sent, said)
        await world.advance(5 * MINUTE)
        assert await begun(world) == [*sent, "0315"]


async def test_no_more_times_outlive_their_rule_than_are_caught_up(progressor_world: MakeWorld) -> None:
    """The others are counted, up to a thousand, as the rule itself would have."""

    def second(at: datetime) -> str:
        return f"{at:%H%M%S}"

    each_second = Cron("* * * * * *", seconds=True)
    async with progressor_world([orders(each_second, second, catch_up="all")], now=BEGIN) as world:
        await world.settle()
        await world.client.pause(SCHEDULES)
    async with progressor_world([orders(QUARTERLY, second)], now=BEGIN + 20 * MINUTE) as world:
        await world.client.resume(SCHEDULES)
        await world.advance(3 * MINUTE)
        sent = await begun(world)
        assert (len(sent), sent[0], sent[-1]) == (1_000, "000001", "001640")
        said = (await world.client.get(SCHEDULES, f"{NS}/close")).history
        missed = [each.payload for each in said if each.metadata["name"] == "missed"]
        assert [(each["times"], each["until"][11:19]) for each in missed] == [(200, "00:20:00")]


async def test_a_time_that_is_tried_again_outlives_a_pause(progressor_world: MakeWorld) -> None:
    """It waits for the resume, and those that fall into the pause are passed over."""
    tries = 0

    def flaky(at: datetime) -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise LookupError("the catalogue is away")
        return minute(at)

    async with progressor_world([orders(HOURLY, flaky)], now=BEGIN) as world:
        await world.advance(HOUR + timedelta(seconds=1))
        assert tries == 2
        await world.client.call(pause, f"{NS}/close")
        await world.advance(3 * HOUR)
        assert await begun(world) == []
        await world.client.call(resume, f"{NS}/close")
        await world.advance(HOUR)
        assert await begun(world) == ["0100", "0500"]


async def test_a_repaired_schedule_takes_the_declaration_that_it_missed(
    progressor_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken, it could not be told by the engine that started; its first step afterwards reads it."""
    async with progressor_world([orders(HOURLY, failing(NonRetryable))], now=BEGIN) as world:
        with pytest.raises(BrokenInWorld):
            await world.advance(HOUR + MINUTE)
    caplog.set_level(logging.WARNING)
    async with progressor_world([orders(QUARTERLY)], now=BEGIN + HOUR + 2 * MINUTE) as world:
        await world.settle()
        assert "schedule not declared" in caplog.text
        assert (await state(world)).declaration.timer.every == {"cron": "0 * * * *", "tz": "UTC"}
        await world.client.simple_repair(SCHEDULES, f"{NS}/close")
        await world.settle()
        assert await log(world) == [("sent", "01:00")]
        known = await state(world)
        assert known.declaration.timer.every == {"cron": "*/15 * * * *", "tz": "UTC"}
        assert known.replaced is not None
        await world.advance(30 * MINUTE)
        assert await begun(world) == ["0100", "0115", "0130"]


@pytest.mark.parametrize(
    ("overlap", "sent", "said"),
    [
        ("queue", ["0100", "0200", "0300", "0400"], "sent sent sent sent"),
        ("skip", ["0100", "0400"], "sent skipped skipped sent"),
    ],
)
async def test_all_that_was_missed_comes_beside_a_run(
    progressor_world: MakeWorld, overlap: Any, sent: list[str], said: str
) -> None:
    """Caught up one after the other, each as `overlap` says: a run takes half an hour."""
    doing = {"takes": 0.5 * HOUR, "catch_up": "all", "overlap": overlap}
    async with progressor_world([orders(HOURLY, **doing)], now=BEGIN) as world:
        await world.settle()
    async with progressor_world([orders(HOURLY, **doing)], now=BEGIN + 3.1 * HOUR) as world:
        await world.advance(1.8 * HOUR)
        assert await begun(world) == sent
        assert " ".join(name for name, _ in await log(world)) == said
        assert (await state(world)).waiting == []


class Reversing:
    """A codec."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


class Raw:
    """A raw handler that keeps what it is sent."""

    async def process(self, task: Task, process: Process[Any]) -> Intent:
        if task.task_type is TaskType.INIT:
            return Intent(aux_state=task.args)
        return Intent(events=(Event(task.args or b"", {"name": str(task.name)}),))


class Day(BaseModel):
    tenant: str
    hour: int


def typed(**options: Any) -> Namespace[Any]:
    """Its processes keep what they are started with, and note what they are told."""
    namespace = Namespace(NS, state=Day, **options)

    @namespace.init
    async def begin(process: Process[Day], day: Day) -> None:
        process.state = day

    @namespace.call
    async def note(process: Process[Day], day: Day) -> None:
        process.emit("noted", hour=day.hour)

    return namespace


@pytest.mark.parametrize(
    "target",
    [
        Namespace(NS, handler=Raw()),
        typed(codec=Reversing()),
        typed(group=lambda day: day.tenant, group_limit=1),
    ],
    ids=["raw handler", "codec", "groups"],
)
async def test_targets_of_every_kind(progressor_world: MakeWorld, target: Namespace[Any]) -> None:
    """A raw handler gets JSON, what is encrypted is so on its way, and a group keeps its limit."""
    namespace = target.extended()

    def args(at: datetime) -> Day:
        return Day(tenant="acme", hour=at.hour)

    namespace.schedule("close", HOURLY, start=minute, args=args)
    namespace.schedule("notes", Cron("30 * * * *"), each=Each("note"), args=args)
    async with progressor_world([namespace], now=BEGIN) as world:
        await world.advance(2.6 * HOUR)
        assert await begun(world) == ["0100", "0200"]
        found = await world.client.get(NS, "0100")
        stored = [found.state, *(each.payload for each in found.history)]
        if namespace.is_raw:
            assert stored == [b'{"tenant":"acme","hour":1}', *(args_of(hour) for hour in (1, 2))]
        else:
            assert stored == [Day(tenant="acme", hour=1), {"hour": 1}, {"hour": 2}]
        (group,) = await world.client.groups(NS) or [None]
        assert (group is not None and group.name == "acme") == (namespace.options.group_limit == 1)


def args_of(hour: int) -> bytes:
    return b'{"tenant":"acme","hour":%d}' % hour
