"""What clients and handlers see of a process's timer, and the searches by it."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from typing import Any
from unittest import mock

import pytest

from progressor import (
    Client,
    InvalidRequest,
    Monthly,
    Namespace,
    Process,
    RetryPolicy,
    SetTimer,
    TaskType,
    Timer,
    TimerStatus,
)
from progressor.storage.queries import searches
from progressor.testing import BrokenInWorld, World
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Scripted, until, until_status, until_waiting
from tests.support import Tables

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def timer_of(client: Client, process_id: str = "p") -> Timer | None:
    """As `get` shows it; `search` must show the same."""
    process = await client.get(NS, process_id)
    page = await client.search(namespace=NS)
    (found,) = [each for each in page.items if each.process_id == process_id]
    assert found.timer == process.timer
    return process.timer


async def found(client: Client, timer: str, **more: object) -> list[str]:
    """The ids of all processes that a search finds, page by page."""
    ids: list[str] = []
    cursor = None
    while True:
        page = await client.search(timer=timer, limit=2, cursor=cursor, **more)
        ids += [process.process_id for process in page.items]
        cursor = page.cursor
        if cursor is None:
            return ids


async def test_get_and_search_show_the_timer(serve: MakeClient) -> None:
    """Kind, due time and how it stands: waiting, blocked, running, held; None without one."""
    scripted = Scripted(retry_policy={"max_attempts": 1})
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(remove_after=3600))
    waiting = await timer_of(client)
    assert waiting is not None
    assert (waiting.task_type, waiting.status) == (TaskType.REMOVE, TimerStatus.WAITING)
    created = (await client.get(NS, "p")).created_at
    assert timedelta(hours=1) <= waiting.due - created <= timedelta(hours=1, minutes=1)

    calling = asyncio.create_task(
        client.call(NS, "p", "act", Act(gate="call", after=0, then=Act(gate="t")))
    )
    await scripted.gates["call"].entered()
    # A handler may begin before its task is committed.
    blocked = waiting._replace(status=TimerStatus.BLOCKED)
    await until(lambda: client.get(NS, "p"), lambda process: process.timer == blocked)
    assert await timer_of(client) == blocked
    scripted.gates["call"].open()
    await calling
    await scripted.gates["t"].entered()
    running = await timer_of(client)
    assert running is not None
    assert (running.task_type, running.status) == (TaskType.TIMEOUT, TimerStatus.RUNNING)
    scripted.gates["t"].open()
    await until(lambda: client.get(NS, "p"), lambda process: process.timer is None)
    assert await timer_of(client) is None

    await client.call(NS, "p", "act", Act(after=3600))
    before = await timer_of(client)
    await client.notify(NS, "p", "act", Act(fail="no"))
    await until_status(client, "p", "error")
    assert before is not None
    assert await timer_of(client) == before._replace(status=TimerStatus.HELD)
    await client.simple_repair(NS, "p")
    assert await timer_of(client) == before


async def test_what_nobody_serves_is_overdue(engine: MakeEngine, client: MakeClient) -> None:
    """A timer whose time has passed, and that no worker takes, is overdue; the earliest is found first."""
    for name in ("second", NS):
        stopped = await engine(Scripted(name).namespace)
        await stopped.stop()
    alone = await client()
    for name, after in (("late", -DAY), ("later", -2 * DAY), ("soon", DAY), ("latest", -3 * DAY)):
        await alone.put(NS, name, action=SetTimer(after=after))
    await alone.put("second", "other", action=SetTimer(after=-DAY))
    await alone.put(NS, "held", status="error", action=SetTimer(after=-DAY))
    assert await found(alone, "overdue", namespace=NS) == ["latest", "later", "late"]
    assert await found(alone, "overdue") == ["other", "latest", "later", "late"]
    assert await found(alone, "held") == ["held"]
    timer = await timer_of(alone, "late")
    assert timer is not None
    assert (timer.task_type, timer.status) == (TaskType.TIMEOUT, TimerStatus.OVERDUE)
    assert [each.timer.status for each in (await alone.search(timer="overdue")).items if each.timer] == [
        TimerStatus.OVERDUE
    ] * 4


async def test_handlers_see_the_timer(serve: MakeClient) -> None:
    """As it stands when the step begins: behind a call, held at a repair, running in its own handler."""
    seen: list[Timer | None] = []
    watched = Namespace("watched", state=int, retry_policy={"max_attempts": 1})

    @watched.init
    async def init(process: Process[int], args: float) -> None:
        seen.append(process.timer)
        process.set_timer(after=timedelta(seconds=args))

    @watched.call
    async def look(process: Process[int], args: bool) -> None:
        seen.append(process.timer)
        if args:
            raise ValueError("a bug")

    @watched.timeout
    async def fire(process: Process[int]) -> None:
        seen.append(process.timer)

    @watched.repair
    async def mend(process: Process[int]) -> None:
        seen.append(process.timer)

    client = await serve(watched)
    await client.start("watched", "p", 3600.0)
    timer = (await client.get("watched", "p")).timer
    assert timer is not None
    await client.call("watched", "p", "look", False)
    await client.notify("watched", "p", "look", True)
    await until_status(client, "p", "error", namespace="watched")
    await client.repair("watched", "p")
    blocked, held = timer._replace(status=TimerStatus.BLOCKED), timer._replace(status=TimerStatus.HELD)
    assert seen == [None, blocked, blocked, held]
    seen.clear()
    await client.start("watched", "q", 0.0)
    await until(lambda: client.trace("watched", "q"), lambda trace: trace[-1].status == "finished")
    await client.call("watched", "q", "look", False)
    none, running, gone = seen
    assert (none, gone) == (None, None)
    assert running is not None
    assert running.status is TimerStatus.RUNNING


async def test_a_chain_of_calls_sees_the_timer(serve: MakeClient) -> None:
    """A call that goes on after another step sees the timer that this one set."""
    seen: list[Timer | None] = []
    chained = Namespace("chained", state=int)
    entered, opened = asyncio.Event(), asyncio.Event()

    @chained.init
    async def init(process: Process[int]) -> None:
        process.set_timer(after=DAY)
        entered.set()
        await opened.wait()

    @chained.timeout
    async def timeout(process: Process[int]) -> None:
        pass

    @chained.call
    async def look(process: Process[int], args: int) -> None:
        seen.append(process.timer)
        if args:
            process.set_timer(after=args * DAY, remove=True)

    client = await serve(chained)
    starting = asyncio.create_task(client.start("chained", "p"))
    await entered.wait()
    # An init that is run behind its lock is committed once it waits.
    await until(lambda: client.search(namespace="chained"), lambda page: len(page.items) == 1)
    for number in (2, 0, 3):
        await client.notify("chained", "p", "look", number)
    await until_waiting(client, "p", 3, namespace="chained")
    opened.set()
    await starting
    await until(lambda: client.trace("chained", "p"), lambda trace: trace[3].status == "finished")
    assert [timer and (timer.task_type.value, timer.status.value) for timer in seen] == [
        ("timeout", "blocked"),
        ("remove", "blocked"),
        ("remove", "blocked"),
    ]
    first, second, third = seen
    assert first is not None
    assert second is not None
    assert second == third
    assert timedelta(hours=20) < second.due - first.due < timedelta(hours=28)


async def test_search_by_timer(serve: MakeClient) -> None:
    """none, overdue and held find what they say, page by page, beside the other conditions."""
    scripted = Scripted(retry_policy={"max_attempts": 1})
    client = await serve(scripted.namespace)
    for name in ("held 1", "held 2", "held 3", "broken"):
        after = None if name == "broken" else 3600.0
        await client.start(NS, name, Act(after=after), metadata={"n": name[-1]})
        await client.notify(NS, name, "act", Act(fail="no"))
        await until_status(client, name, "error")
    for name in ("waits", "bare 1", "bare 2", "bare 3"):
        await client.start(NS, name, Act(after=3600 if name == "waits" else None), metadata={"n": name[-1]})
    assert await found(client, "held") == ["held 1", "held 2", "held 3"]
    assert await found(client, "held", namespace=NS, metadata={"n": "2"}) == ["held 2"]
    assert await found(client, "held", status="running") == []
    assert await found(client, "none") == ["broken", "bare 1", "bare 2", "bare 3"]
    assert await found(client, "none", status="running", metadata={"n": "3"}) == ["bare 3"]
    assert await found(client, "none", status="error") == ["broken"]
    assert await found(client, "overdue") == []


async def test_pages_of_those_without_a_timer_end(serve: MakeClient) -> None:
    """However many processes a page looks at, the pages find each process once, and end."""
    client = await serve(Scripted().namespace)
    for number in range(9):
        await client.start(NS, f"p{number}", Act(after=None if number % 4 == 0 else 3600))
    for looked_at in (1, 2, 3, 9, 10):
        with mock.patch.object(searches, "MOST_LOOKED_AT", looked_at):
            assert await found(client, "none") == ["p0", "p4", "p8"]


async def test_search_by_the_name_of_a_timer(serve: MakeClient) -> None:
    """It finds each process with a timer of this name, waiting, held or running, however pages end."""
    named = Namespace("named", state=int)
    opened = asyncio.Event()

    @named.init
    async def init(process: Process[int], args: list[str]) -> None:
        for name in args:
            process.set_timer(name, after=HOUR)

    @named.call
    async def begin(process: Process[int], args: None) -> None:
        process.set_timer("dunning", after=timedelta())

    @named.call
    async def fail(process: Process[int], args: None) -> None:
        raise RuntimeError

    @named.timeout
    async def wait(process: Process[int]) -> None:
        await opened.wait()

    client = await serve(named)
    for process_id, timers in {
        "a": [""],
        "b": ["dunning"],
        "c": [],
        "d": ["", "dunning"],
        "e": ["none"],
    }.items():
        await client.start(named.name, process_id, timers)
    await client.notify(named.name, "d", "fail")
    await until_status(client, "d", "error", namespace=named.name)
    await client.call(named.name, "c", "begin")
    await until(
        lambda: client.get(named.name, "c"),
        lambda process: [each.status for each in process.timers.values()] == [TimerStatus.RUNNING],
    )
    for looked_at in (1, 2, 5, 10):
        with mock.patch.object(searches, "MOST_LOOKED_AT", looked_at):
            assert await found(client, "dunning") == ["b", "c", "d"]
            assert await found(client, "default") == ["a", "d"]
            assert await found(client, "nobody's") == []
    assert await found(client, "dunning", status="error") == ["d"]
    assert await found(client, "none") == []
    opened.set()


async def test_a_running_timer_is_one(serve: MakeClient) -> None:
    """A process whose timer runs just now is not without one."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0, then=Act(gate="g")))
    await scripted.gates["g"].entered()
    assert await found(client, "none") == []
    scripted.gates["g"].open()
    await until(lambda: found(client, "none"), lambda ids: ids == ["p"])


@pytest.mark.parametrize("timer", ["", "~own", "t" * 257, 3, True])
async def test_other_words_are_refused(serve: MakeClient, timer: object) -> None:
    """What is no filter is named."""
    client = await serve(Scripted().namespace)
    with pytest.raises(InvalidRequest) as caught:
        await client.search(timer=timer)  # type: ignore[arg-type]
    assert caught.value.field == "timer"


async def test_a_cursor_belongs_to_its_search(serve: MakeClient) -> None:
    """A cursor of a search in one order is refused by one in another."""
    client = await serve(Scripted().namespace)
    for name in ("p", "q"):
        await client.start(NS, name, Act())
    cursor = (await client.search(limit=1)).cursor
    assert cursor is not None
    with pytest.raises(InvalidRequest) as caught:
        await client.search(timer="overdue", cursor=cursor)
    assert caught.value.field == "cursor"


MONTHLY = Monthly(31, at=time(9), tz="Europe/Berlin")


def recurring() -> Namespace[list[str]]:
    """Its timers recur by a rule, by a period from the end of a step, and not at all."""
    namespace = Namespace("billing.shown", state=list[str], retry_policy=RetryPolicy(max_attempts=1))

    @namespace.init
    async def begin(process: Process[list[str]]) -> None:
        process.state = []
        process.set_timer("invoice", every=MONTHLY, jitter=HOUR)
        process.set_timer("poll", every=DAY, drift="after")
        process.set_timer("once", after=2 * DAY)

    @namespace.timeout
    async def fire(process: Process[list[str]]) -> None:
        process.state.append(process.task.name or "")

    @namespace.call
    async def fail(process: Process[list[str]]) -> None:
        raise ValueError

    return namespace


async def test_get_and_search_show_the_rule(progressor_world: Any) -> None:
    """What it was set by, the time that it means, and the one after it: also while it is held."""
    async with progressor_world([recurring()], now=datetime(2028, 1, 1, tzinfo=UTC)) as world:
        await world.client.start("billing.shown", "acme")
        await world.settle()
        timers = (await world.client.get("billing.shown", "acme")).timers
        invoice, poll, once = timers["invoice"], timers["poll"], timers["once"]
        nominal, after_it = (datetime(2028, *day, 8, tzinfo=UTC) for day in ((1, 31), (2, 29)))
        assert (invoice.every, invoice.drift, invoice.nominal) == (MONTHLY, "fixed", nominal)
        assert nominal < invoice.due < nominal + HOUR
        assert invoice.next == after_it
        assert (poll.every, poll.drift, poll.nominal, poll.next) == (DAY, "after", poll.due, None)
        assert (once.every, once.drift, once.nominal, once.next) == (None, None, None, None)
        (found,) = (await world.client.search(namespace="billing.shown")).items
        assert found.timers == timers
        await world.client.notify("billing.shown", "acme", "fail")
        with pytest.raises(BrokenInWorld):
            await world.settle()
        held = (await world.client.get("billing.shown", "acme")).timers
        assert held == {name: each._replace(status=TimerStatus.HELD) for name, each in timers.items()}


async def test_a_rule_of_a_newer_release(dsn: str, tables: Tables) -> None:
    """It is not known here; that there is one is shown, and the time that it means."""
    async with World(dsn, [recurring()], now=datetime(2028, 1, 1, tzinfo=UTC)) as world:
        await world.client.start("billing.shown", "acme")
        await world.settle()
        known = (await world.client.get("billing.shown", "acme")).timers["invoice"]
        tables.execute(
            """
            UPDATE tasks
            SET args = convert_to(replace(convert_from(args, 'UTF8'), '"day":31', '"moon":1'), 'UTF8')
            WHERE name = 'invoice'
            """
        )
        shown = (await world.client.get("billing.shown", "acme")).timers["invoice"]
        assert shown == known._replace(every=None)
        assert shown.next is None
        tables.execute("DELETE FROM schedule WHERE timer = 'invoice'")
        tables.execute("DELETE FROM tasks WHERE name = 'invoice'")
