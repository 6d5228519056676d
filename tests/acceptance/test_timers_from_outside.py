"""set_timer, unset_timer and fire_timer of a client: calls that every namespace has."""

from datetime import UTC, datetime, timedelta

import pytest

from progressor import (
    Engine,
    InvalidRequest,
    Namespace,
    ProcessBroken,
    ProcessNotFound,
    Rejected,
)
from progressor.model import Intent, Task
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted, timers, until, until_events

HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=20)


async def test_a_timer_is_set_and_fires(serve: MakeClient) -> None:
    """The timeout handler runs when it is due; the trace names the call that set it."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    await client.set_timer(NS, "p", after=SOON)
    await until(lambda: timers(client, "p"), lambda found: [each.status for each in found] == ["finished"])
    called = [entry.name for entry in await client.trace(NS, "p") if entry.task_type == "call"]
    assert called == ["progressor:set_timer"]


async def test_it_replaces_the_one_that_there_is(serve: MakeClient) -> None:
    """A process has one timer: the old one is cancelled."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600))
    at = datetime.now(UTC) + 2 * HOUR
    await client.set_timer(NS, "p", at=at, remove=True)
    timer = (await client.get(NS, "p")).timer
    assert timer is not None
    assert (timer.task_type, timer.due) == ("remove", at)
    assert [entry.status for entry in await timers(client, "p")] == ["cancelled"]


async def test_it_is_unset(serve: MakeClient) -> None:
    """It never fires; where there is none nothing happens."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600))
    await client.unset_timer(NS, "p")
    await client.unset_timer(NS, "p")
    assert (await client.get(NS, "p")).timer is None
    assert [entry.status for entry in await timers(client, "p")] == ["cancelled"]


async def test_it_is_fired(serve: MakeClient) -> None:
    """Its step runs now; a removal removes the process."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600, then=Act(emit="fired")))
    await client.fire_timer(NS, "p")
    await until_events(client, "p", "fired")
    await client.set_timer(NS, "p", after=HOUR, remove=True)
    await client.fire_timer(NS, "p")

    async def gone() -> bool:
        try:
            await client.get(NS, "p")
        except ProcessNotFound:
            return True
        return False

    await until(gone, bool)


async def test_one_that_is_not_there_is_not_fired(serve: MakeClient) -> None:
    """The caller hears it; nothing else happens."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    with pytest.raises(Rejected, match="has no timer"):
        await client.fire_timer(NS, "p")
    assert await timers(client, "p") == []


async def test_a_key_changes_it_once(serve: MakeClient) -> None:
    """Repeated under its key it is the same call."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    for _ in range(2):
        await client.set_timer(NS, "p", after=HOUR, idempotency_key="dunning")
    assert [entry.status for entry in await timers(client, "p")] == ["waiting"]


async def test_a_broken_process_keeps_its_timer(serve: MakeClient) -> None:
    """It is held, and comes back with the repair; until then no call is taken."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600))
    with pytest.raises(Exception, match="boom"):
        await client.call(NS, "p", "act", Act(fail="boom"))
    with pytest.raises(ProcessBroken):
        await client.set_timer(NS, "p", after=HOUR)
    assert [entry.status for entry in await timers(client, "p")] == ["held"]


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({}, "args.at"),
        ({"after": 1, "at": "2099-01-01T00:00:00Z"}, "args.at"),
        ({"at": "2099-01-01T00:00:00"}, "args.at"),
        ({"after": 9e15}, "args.after"),
        ({"after": 9e12}, "args.after"),
        ({"after": "PT1S", "later": True}, "args.later"),
        ("soon", "args"),
    ],
)
async def test_bad_arguments_are_refused_and_the_process_lives_on(
    serve: MakeClient, args: object, field: str
) -> None:
    """Also of a client that makes the call by itself, in any language."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    with pytest.raises(InvalidRequest) as told:
        await client.call(NS, "p", "progressor:set_timer", args)
    assert told.value.field == field
    assert (await client.get(NS, "p")).status == "running"


async def test_what_is_no_timer_is_refused_before_it_is_sent(serve: MakeClient) -> None:
    """As SetTimer refuses it in a handler."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    for wrong in ({}, {"after": HOUR, "at": datetime.now(UTC)}, {"at": datetime(2099, 1, 1)}):
        with pytest.raises(InvalidRequest, match=r"SetTimer"):
            await client.set_timer(NS, "p", **wrong)  # type: ignore[arg-type]
    assert [entry.task_type for entry in await client.trace(NS, "p")] == ["init"]


def test_no_function_takes_such_a_name() -> None:
    """The calls of the engine are in nobody's way, and nobody in theirs."""
    namespace = Namespace("shop")
    with pytest.raises(InvalidRequest, match="progressor:"):

        @namespace.call(name="progressor:anything")
        async def anything(process: object) -> None: ...


async def test_a_raw_handler_does_not_see_them(dsn: str) -> None:
    """They are answered before it is asked."""
    seen: list[tuple[str, str | None]] = []

    class Raw:
        async def process(self, task: Task, _process: object) -> Intent:
            seen.append((task.task_type, task.name))
            return Intent()

    async with Engine(dsn, [Namespace("raw", handler=Raw())]) as engine:
        client = engine.client
        await client.start("raw", "p", b"")
        await client.set_timer("raw", "p", after=HOUR)
        await client.fire_timer("raw", "p")

        async def look() -> list[tuple[str, str | None]]:
            return seen

        await until(look, lambda found: len(found) == 2)
    assert seen == [("init", None), ("timeout", None)]
