"""Timers that recur, through the public API: each step arms the next time in its own commit."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor import (
    Client,
    Cron,
    Engine,
    Event,
    Intent,
    InvalidRequest,
    Namespace,
    Process,
    Rejected,
    RetryPolicy,
    RRule,
    SetTimer,
    Task,
)
from progressor.inputs import MAX_TIMERS
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, until, until_events
from tests.support import Tables

TICK = timedelta(milliseconds=40)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OVER = RRule("FREQ=DAILY;COUNT=3", datetime(2020, 1, 1, tzinfo=UTC))


def clock(version: str = "", **options: Any) -> Namespace[Any]:
    """Its timer `tick` recurs as a call says; each step notes its nominal time, and fails on request."""
    namespace: Namespace[Any] = Namespace(
        NS, retry_policy=RetryPolicy(initial_interval=TICK, max_attempts=2), **options
    )

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.state = {"ill": 0}

    @namespace.call
    async def spoil(process: Process[Any], ill: int) -> None:
        process.state = {"ill": ill}

    @namespace.call
    async def tick_every(process: Process[Any], milliseconds: int) -> None:
        process.set_timer("tick", every=timedelta(milliseconds=milliseconds))

    @namespace.call
    async def stop(process: Process[Any]) -> None:
        process.unset_timer("tick")

    @namespace.timeout("tick")
    async def tick(process: Process[Any]) -> None:
        if process.state["ill"]:
            raise ValueError("ill")
        nominal = process.task.nominal
        assert nominal is not None
        process.emit("tick", nominal=nominal.isoformat(), missed=process.task.missed, by=version)

    @namespace.repair
    async def heal(process: Process[Any]) -> None:
        process.state = {"ill": 0}

    return namespace


async def ticks(client: Client, process_id: str = "p") -> list[tuple[datetime, int]]:
    """The nominal and the missed times of its steps so far."""
    events = (await client.get(NS, process_id)).history
    return [(datetime.fromisoformat(e.payload["nominal"]), e.payload["missed"]) for e in events]


async def until_ticks(client: Client, count: int) -> list[tuple[datetime, int]]:
    return await until(lambda: ticks(client), lambda found: len(found) >= count)


def check_whole(found: list[tuple[datetime, int]], period: timedelta) -> None:
    """Each nominal time was run or counted as missed, once, whatever the load."""
    for (before, missed), (after, _) in itertools.pairwise(found):
        # A step that lasts longer than a period misses what comes while it runs, behind what it counted.
        assert (after - before) % period == timedelta(0)
        assert after - before >= (missed + 1) * period


async def test_it_comes_again(serve: MakeClient) -> None:
    """Each time in a step of its own, by its nominal times, until it is unset."""
    client = await serve(clock())
    await client.start(NS, "p")
    await client.call(NS, "p", "tick_every", 40)
    check_whole(await until_ticks(client, 5), TICK)
    await client.call(NS, "p", "stop")
    count = len(await ticks(client))
    assert (await client.get(NS, "p")).timers == {}
    trace = [entry for entry in await client.trace(NS, "p") if entry.task_type == "timeout"]
    assert [entry.status for entry in trace if entry.status != "cancelled"] == ["finished"] * count


async def test_a_timer_that_another_release_has_stored(serve: MakeClient, tables: Tables) -> None:
    """The first releases did not note whether it has begun. One that cannot be read holds up no other."""
    client = await serve(clock())
    for name in ("old", "odd", "p"):
        await client.start(NS, name)
        await client.call(NS, name, "tick_every", 3_600_000)
    of = "process_no = (SELECT process_no FROM progressor.processes WHERE process_id = %s)"
    cut = """convert_to(replace(convert_from(args, 'UTF8'), ',"begun":false', ''), 'UTF8')"""
    with tables.connection.transaction():
        tables.execute(f"UPDATE progressor.tasks SET args = {cut} WHERE name = 'tick' AND {of}", "old")
        tables.execute(f"UPDATE progressor.tasks SET args = '{{}}' WHERE name = 'tick' AND {of}", "odd")
        due = "SET scheduled_time = now() WHERE process_no IN (SELECT process_no FROM progressor.processes)"
        tables.execute(f"UPDATE progressor.tasks {due} AND name = 'tick'")
        tables.execute(f"UPDATE progressor.schedule {due}")
    for name in ("old", "p"):
        await until(lambda name=name: ticks(client, name), lambda found: len(found) == 1)
    broken = await until(lambda: client.get(NS, "odd"), lambda found: found.status == "error")
    assert "in a form of another release" in str(broken.detail)
    # What cannot be read may stay in no database.
    await client.remove(NS, "odd")


async def test_two_versions_of_the_code_serve_one_timer(
    engine: MakeEngine, dsn: str, mode: Options
) -> None:
    """A new one comes beside the old one, which then leaves: each nominal time is run once."""
    names = ["p", "q", "r", "s"]
    async with Engine(dsn, [clock("old")], **mode) as old:
        for name in names:
            await old.client.start(NS, name)
            await old.client.set_timer(NS, name, "tick", every=TICK, catch_up="all")
        await until(lambda: ticks(old.client), lambda found: len(found) >= 2)
        new = await engine(clock("new"))
        before = len(await ticks(new.client))
        await until(lambda: ticks(new.client), lambda found: len(found) >= before + 5)
    for name in names:
        before = len(await ticks(new.client, name))
        found = await until(lambda name=name: ticks(new.client, name), lambda f, n=before: len(f) >= n + 3)
        assert all(after - earlier == TICK for (earlier, _), (after, _) in itertools.pairwise(found))
        assert {missed for _, missed in found} == {0}
        served = [event.payload["by"] for event in (await new.client.get(NS, name)).history]
        assert (served[0], served[-1]) == ("old", "new")
        await new.client.call(NS, name, "stop")


async def test_all_that_was_missed(serve: MakeClient) -> None:
    """Set from a time in the past on, `all` runs each time since then, in order."""
    client = await serve(clock())
    await client.start(NS, "p")
    since = datetime.now(UTC) - 10 * HOUR - HOUR / 2
    await client.set_timer(NS, "p", "tick", every=HOUR, at=since, catch_up="all")
    found = await until_ticks(client, 11)
    assert found == [(since + n * HOUR, 0) for n in range(11)]
    (timer,) = (await client.get(NS, "p")).timers.values()
    assert timer.due == since + 11 * HOUR


@pytest.mark.parametrize(
    ("more", "ran"),
    [
        ({"catch_up": "one"}, [(0, 10)]),
        ({"catch_up": "skip"}, []),
        ({"catch_up": "all", "within": 3 * HOUR}, [(8, 8), (9, 0), (10, 0)]),
    ],
)
async def test_what_becomes_of_missed_times(
    serve: MakeClient, more: dict[str, Any], ran: list[tuple[int, int]]
) -> None:
    """One step for all, none, or those that are young enough; then it goes on at its times."""
    client = await serve(clock())
    await client.start(NS, "p")
    since = datetime.now(UTC) - 10 * HOUR - HOUR / 2
    await client.set_timer(NS, "p", "tick", every=HOUR, at=since, **more)
    await until(lambda: client.get(NS, "p"), lambda p: p.timers["tick"].due == since + 11 * HOUR)
    assert await ticks(client) == [(since + n * HOUR, missed) for n, missed in ran]


async def test_the_same_time_until_it_succeeds(serve: MakeClient) -> None:
    """Retries, a break and a repair are for one nominal time; the others follow."""
    client = await serve(clock())
    await client.start(NS, "p")
    await client.call(NS, "p", "spoil", 1)
    since = datetime.now(UTC) - HOUR / 2
    await client.set_timer(NS, "p", "tick", every=HOUR, at=since)
    broken = await until(lambda: client.get(NS, "p"), lambda p: p.status == "error")
    (held,) = broken.timers.values()
    assert (held.name, held.status) == ("tick", "held")
    await client.repair(NS, "p")
    assert await until_ticks(client, 1) == [(since, 0)]
    assert (await client.get(NS, "p")).timers["tick"].due == since + HOUR


async def test_fired_by_hand(serve: MakeClient) -> None:
    """The time that it waits for comes early, once; the next is the one behind it."""
    client = await serve(clock())
    await client.start(NS, "p")
    at = datetime.now(UTC) + 10 * HOUR
    await client.set_timer(NS, "p", "tick", every=HOUR, at=at)
    await client.fire_timer(NS, "p", "tick")
    assert await until_ticks(client, 1) == [(at, 0)]
    assert (await client.get(NS, "p")).timers["tick"].due == at + HOUR
    await client.set_timer(NS, "p", "once", after=HOUR, remove=True)
    await client.fire_timer(NS, "p", "tick")
    assert await until_ticks(client, 2) == [(at, 0), (at + HOUR, 0)]
    assert list((await client.get(NS, "p")).timers) == ["once", "tick"]


async def test_another_rule_fires_nothing(serve: MakeClient) -> None:
    """From daily to hourly: the next step is at the first time of the new rule."""
    client = await serve(clock())
    await client.start(NS, "p")
    await client.set_timer(NS, "p", "tick", every=Cron("30 3 * * *"))
    before = datetime.now(UTC)
    await client.set_timer(NS, "p", "tick", every=Cron("0 * * * *"))
    (timer,) = (await client.get(NS, "p")).timers.values()
    assert timer.due == (before + HOUR).replace(minute=0, second=0, microsecond=0)
    assert timer.due > before
    assert await ticks(client) == []


async def test_in_place_as_imported(serve: MakeClient) -> None:
    """An import says when it is due first."""
    client = await serve(clock())
    at = datetime.now(UTC) + HOUR
    rule = SetTimer(name="tick", every=HOUR, at=at)
    await client.put(NS, "p", state={"ill": 0}, action=[rule, SetTimer(name="b", at=at, jitter=HOUR)])
    await client.fire_timer(NS, "p", "tick")
    assert await until_ticks(client, 1) == [(at, 0)]
    assert at <= (await client.get(NS, "p")).timers["b"].due < at + HOUR
    with pytest.raises(InvalidRequest, match="needs at="):
        await client.put(NS, "q", state={"ill": 0}, action=SetTimer(every=HOUR))


def deciding() -> Namespace[Any]:
    """The first step of its timer `tick` changes timers, as its state says; the second ends it."""
    namespace: Namespace[Any] = Namespace(NS, retry_policy=RetryPolicy(max_attempts=1))

    @namespace.init
    async def begin(process: Process[Any], others: int | None) -> None:
        process.state = others
        process.set_timer("tick", every=TICK)

    @namespace.timeout
    async def other(process: Process[Any]) -> None:
        process.emit(f"other {process.task.nominal}")

    @namespace.timeout("tick")
    async def tick(process: Process[Any]) -> None:
        process.emit("tick")
        if process.last_event_id:
            process.unset_timer("tick")
        elif process.state is None:
            process.set_timer("tick", after=HOUR)
        else:
            for number in range(process.state):
                process.set_timer(f"t{number}", after=HOUR)

    return namespace


async def test_what_a_handler_decides_counts(serve: MakeClient) -> None:
    """A step that changes its own timer arms no other time; one that sets others keeps its rule."""
    client = await serve(deciding())
    await client.start(NS, "p", None)
    await until_events(client, "p", "tick")
    (timer,) = (await client.get(NS, "p")).timers.values()
    assert timer.due > datetime.now(UTC) + HOUR / 2
    await client.start(NS, "q", MAX_TIMERS - 1)
    await until_events(client, "q", "tick", "tick")
    assert len((await client.get(NS, "q")).timers) == MAX_TIMERS - 1
    await client.start(NS, "r", MAX_TIMERS)
    broken = await until(lambda: client.get(NS, "r"), lambda r: r.status == "error")
    assert "at most 32 timers, not 33" in (broken.detail or "")


async def test_a_raw_handler(serve: MakeClient) -> None:
    """It returns the rule in its action, and sees the same times."""

    class Raw:
        async def process(self, task: Task, process: Process[Any], /) -> Intent:
            if task.task_type == "init":
                return Intent(action=SetTimer(every=TICK))
            return Intent(events=(Event(b"1", {"name": f"{task.nominal is not None} {task.missed >= 0}"}),))

    client = await serve(Namespace(NS, handler=Raw()))
    await client.start(NS, "p")
    found = await until(lambda: client.get(NS, "p"), lambda p: p.last_event_id >= 3)
    assert {event.name for event in found.history} == {"True True"}


class Reversed:
    """A codec of bytes that are no JSON as they are stored."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1] + b"!"

    def decode(self, data: bytes) -> bytes:
        assert data.endswith(b"!")
        return data[-2::-1]


async def test_behind_a_codec(serve: MakeClient) -> None:
    """The rule is the engine's own: it is stored as it is, and shown in the trace."""
    client = await serve(clock(codec=Reversed()))
    await client.start(NS, "p")
    await client.call(NS, "p", "tick_every", 40)
    await until_ticks(client, 2)
    rules = [entry.args for entry in await client.trace(NS, "p") if entry.task_type == "timeout"]
    assert {rule["every"]["seconds"] for rule in rules} == {0.04}
    await client.call(NS, "p", "stop")


async def test_what_cannot_be_set_from_outside(serve: MakeClient) -> None:
    """The process lives on, and its timers stay."""
    client = await serve(clock())
    await client.start(NS, "p")
    with pytest.raises(InvalidRequest, match="has no time after"):
        await client.set_timer(NS, "p", "tick", every=OVER)
    with pytest.raises(InvalidRequest, match="must have 5 fields"):
        await client.set_timer(NS, "p", "tick", every=Cron("* * *"))
    with pytest.raises((Rejected, InvalidRequest), match="a rule must be"):
        await client.call(NS, "p", "progressor:set_timer", {"every": {"moon": "full"}})
    assert (await client.get(NS, "p")).timers == {}
    assert (await client.get(NS, "p")).status == "running"
