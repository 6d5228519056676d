"""Several timers of a process, through the public API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from progressor import (
    HandlerFailed,
    InvalidRequest,
    Namespace,
    Process,
    ProcessBroken,
    Rejected,
    RetryPolicy,
    SetTimer,
    UnsetTimer,
)
from progressor.inputs import MAX_TIMERS
from progressor.model import Intent, Task
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, until, until_events

HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=20)


def billing() -> Namespace[dict[str, int]]:
    """Fires emit their timer's name; the timer `bad` fails while the state says so."""
    namespace = Namespace(NS, state=dict[str, int], retry_policy=RetryPolicy(initial_interval=SOON))

    @namespace.init
    async def begin(process: Process[dict[str, int]]) -> None:
        process.state = {"bad": 0}

    @namespace.call
    async def plan(process: Process[dict[str, int]], timers: dict[str, float | None]) -> list[str]:
        for name, after in timers.items():
            if after is None:
                process.unset_timer(name)
            else:
                process.set_timer(name, after=timedelta(seconds=after))
        return sorted(process.timers)

    @namespace.call
    async def fail(process: Process[dict[str, int]]) -> None:
        raise ValueError("boom")

    @namespace.call
    async def spoil(process: Process[dict[str, int]], bad: int) -> None:
        process.state = {"bad": bad}

    @namespace.call
    async def cure(process: Process[dict[str, int]]) -> None:
        process.state = {"bad": 0}
        process.set_timer("bad", after=timedelta(0))

    add_timeouts(namespace)
    return namespace


def add_timeouts(namespace: Namespace[dict[str, int]]) -> None:
    """The functions of its timers: two by name, and one for all others."""

    @namespace.timeout
    async def any_other(process: Process[dict[str, int]]) -> None:
        process.emit(f"other {process.task.name or 'unnamed'}")

    @namespace.timeout("dunning")
    async def dunning(process: Process[dict[str, int]]) -> None:
        process.emit("dunning")

    @namespace.timeout("bad")
    async def bad(process: Process[dict[str, int]]) -> None:
        if process.state["bad"]:
            raise ValueError("not yet")
        process.emit(f"bad after {process.task.attempts_count} tries")


async def test_each_fires_as_a_step_of_its_own(serve: MakeClient) -> None:
    """In the order of due times, by the function of its name or the one for all others."""
    client = await serve(billing())
    await client.start(NS, "p")
    await client.call(NS, "p", "plan", {"dunning": 0.2, "": 0.1, "renewal": 0.3})
    await until_events(client, "p", "other unnamed", "dunning", "other renewal")
    fired = [entry for entry in await client.trace(NS, "p") if entry.task_type == "timeout"]
    assert sorted((entry.name or "", entry.status) for entry in fired) == [
        ("", "finished"),
        ("dunning", "finished"),
        ("renewal", "finished"),
    ]


async def test_they_are_shown_and_changed_one_by_one(serve: MakeClient) -> None:
    """From handlers and from outside; others keep their tasks and times."""
    client = await serve(billing())
    await client.start(NS, "p")
    assert await client.call(NS, "p", "plan", {"dunning": 7200, "": 3600, "far": 9000}) == []
    assert await client.call(NS, "p", "plan", {}) == ["", "dunning", "far"]
    shown = await client.get(NS, "p")
    assert list(shown.timers) == ["", "dunning", "far"]
    assert {timer.status for timer in shown.timers.values()} == {"waiting"}
    assert shown.timer == shown.timers[""]
    waiting = [entry for entry in await client.trace(NS, "p") if entry.task_type == "timeout"]
    assert [(entry.name, entry.status) for entry in waiting] == [
        ("dunning", "waiting"),
        (None, "waiting"),
        ("far", "waiting"),
    ]
    at = datetime.now(UTC) + 10 * HOUR
    await client.set_timer(NS, "p", "dunning", at=at)
    await client.unset_timer(NS, "p", "far")
    await client.unset_timer(NS, "p", "never set")
    after = await client.get(NS, "p")
    assert list(after.timers) == ["", "dunning"]
    assert after.timers["dunning"].due == at
    assert after.timers[""] == shown.timers[""]
    await client.fire_timer(NS, "p", "dunning")
    await until_events(client, "p", "dunning")
    with pytest.raises(Rejected, match="no timer 'dunning'"):
        await client.fire_timer(NS, "p", "dunning")
    assert list((await client.get(NS, "p")).timers) == [""]


async def test_one_that_fails_keeps_no_other_from_firing(serve: MakeClient) -> None:
    """It is tried again with its own back-off; set anew it begins its attempts anew."""
    client = await serve(billing())
    await client.start(NS, "p")
    await client.call(NS, "p", "spoil", 1)
    await client.call(NS, "p", "plan", {"bad": 0, "dunning": 0.2, "far": 3600})
    await until_events(client, "p", "dunning")
    bad = [entry for entry in await client.trace(NS, "p") if entry.name == "bad"]
    assert [entry.attempts_count > 0 for entry in bad] == [True]
    # In one step: a try in between would succeed.
    await client.call(NS, "p", "cure")
    await until_events(client, "p", "dunning", "bad after 0 tries")
    assert list((await client.get(NS, "p")).timers) == ["far"]


@pytest.mark.parametrize("simple", [True, False])
async def test_all_survive_a_break(serve: MakeClient, simple: bool) -> None:
    """Held with their times; after the repair those that are overdue fire at once."""
    namespace = billing()

    @namespace.repair
    async def repair(process: Process[dict[str, int]]) -> None:
        process.emit("repaired")

    client = await serve(namespace)
    await client.start(NS, "p")
    await client.call(NS, "p", "plan", {"dunning": 0.3, "far": 3600, "farther": 7200})
    with pytest.raises(HandlerFailed, match="boom"):
        await client.call(NS, "p", "fail")
    before = (await client.get(NS, "p")).timers
    assert {name: timer.status for name, timer in before.items()} == dict.fromkeys(
        ("dunning", "far", "farther"), "held"
    )
    await until(
        lambda: client.get(NS, "p"), lambda process: process.timers["dunning"].due < datetime.now(UTC)
    )
    with pytest.raises(ProcessBroken):
        await client.set_timer(NS, "p", "far", after=HOUR)
    await (client.simple_repair(NS, "p") if simple else client.repair(NS, "p"))
    await until_events(client, "p", *([] if simple else ["repaired"]), "dunning")
    after = (await client.get(NS, "p")).timers
    assert {name: timer.due for name, timer in after.items()} == {
        name: before[name].due for name in ("far", "farther")
    }


async def test_no_more_than_the_limit(serve: MakeClient) -> None:
    """The step of a handler fails; a client is refused, and the process lives on."""
    client = await serve(billing())
    await client.start(NS, "p")
    many = {f"t{number}": 3600.0 for number in range(MAX_TIMERS)}
    await client.call(NS, "p", "plan", many)
    with pytest.raises(InvalidRequest, match="at most 32 timers, not 33"):
        await client.set_timer(NS, "p", "one more", after=HOUR)
    await client.set_timer(NS, "p", "t7", after=HOUR)
    assert len((await client.get(NS, "p")).timers) == MAX_TIMERS
    with pytest.raises(HandlerFailed, match="at most 32 timers, not 33"):
        await client.call(NS, "p", "plan", {"one more": 3600})


@pytest.mark.parametrize("name", ["default", "progressor:x", "~x", "x" * 257, "\x00"])
async def test_names_that_no_timer_can_have(serve: MakeClient, name: str) -> None:
    """They are refused before anything is sent, and in a handler they fail the step alone."""
    client = await serve(billing())
    await client.start(NS, "p")
    with pytest.raises(InvalidRequest, match="timer"):
        await client.set_timer(NS, "p", name, after=HOUR)
    with pytest.raises(InvalidRequest, match="timer"):
        SetTimer(after=HOUR, name=name)
    with pytest.raises(InvalidRequest, match="timer"):
        Namespace("other").timeout(name)(lambda process: None)  # type: ignore[arg-type, call-overload]


async def test_a_timer_that_nothing_serves(serve: MakeClient) -> None:
    """A namespace of named timers alone says which it has."""
    namespace = Namespace(NS)

    @namespace.init
    async def begin(process: Process[None]) -> None: ...

    @namespace.timeout("dunning")
    async def dunning(process: Process[None]) -> None: ...

    client = await serve(namespace)
    await client.start(NS, "p")
    with pytest.raises(InvalidRequest, match=r"no timeout handler for the timer 'dunnig' .*dunning"):
        await client.set_timer(NS, "p", "dunnig", after=HOUR)
    with pytest.raises(InvalidRequest, match="no timeout handler"):
        await client.set_timer(NS, "p", after=HOUR)
    await client.set_timer(NS, "p", "goodbye", after=HOUR, remove=True)
    with pytest.raises(InvalidRequest, match="timeout 'dunning'"):
        namespace.timeout("dunning")(dunning)


async def test_a_timer_that_other_code_has_set(serve: MakeClient) -> None:
    """A worker without its function may set it anew, and fire it: another one has it."""
    namespace = Namespace(NS)

    @namespace.call
    async def snooze(process: Process[None]) -> None:
        for name in process.timers:
            process.set_timer(name, after=2 * HOUR)

    client = await serve(namespace)
    await client.put(NS, "p", action=[SetTimer(after=HOUR, name="escalation")])
    before = (await client.get(NS, "p")).timers["escalation"].due
    await client.call(NS, "p", "snooze")
    assert (await client.get(NS, "p")).timers["escalation"].due - before > HOUR / 2
    await client.fire_timer(NS, "p", "escalation")


async def test_a_raw_handler_changes_several(serve: MakeClient) -> None:
    """Its action may be a tuple; the same name twice fails the step."""

    class Raw:
        async def process(self, task: Task, process: Process[bytes], /) -> Intent:
            if task.name == "twice":
                return Intent(action=(SetTimer(after=HOUR, name="a"), UnsetTimer("a")))
            if task.name == "set":
                return Intent(action=(SetTimer(after=2 * HOUR, name="a"), SetTimer(after=HOUR)))
            return Intent()

    client = await serve(Namespace(NS, handler=Raw()))
    await client.start(NS, "p")
    await client.call(NS, "p", "set")
    assert list((await client.get(NS, "p")).timers) == ["", "a"]
    with pytest.raises(HandlerFailed, match="each timer at most once"):
        await client.call(NS, "p", "twice")


async def test_an_import_with_several(serve: MakeClient) -> None:
    """`put` takes a list of them, each name once."""
    client = await serve(billing())
    timers = [SetTimer(after=SOON, name="dunning"), SetTimer(after=HOUR), UnsetTimer("gone")]
    await client.put(NS, "p", state={"bad": 0}, action=timers)
    await until_events(client, "p", "dunning")
    assert list((await client.get(NS, "p")).timers) == [""]
    with pytest.raises(InvalidRequest, match="each timer once"):
        await client.put(NS, "q", action=[SetTimer(after=HOUR), UnsetTimer()])
