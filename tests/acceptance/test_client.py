"""What a client can ask, from inside the engine's process and from outside."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from progressor import (
    Client,
    Health,
    HistoryRange,
    InvalidRequest,
    Namespace,
    Process,
    ProcessNotFound,
    ProcessStatus,
    SetTimer,
    TaskStatus,
)
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Account, Act, Scripted, until, until_events, until_status


async def test_start_runs_init_and_returns_its_answer(serve: MakeClient) -> None:
    """`start` creates the process and returns what the init handler returned."""
    client = await serve(Scripted().namespace)
    assert await client.start(NS, "p", Act(add=5, emit="opened")) == 5
    process = await client.get(NS, "p")
    assert (process.status, process.previous_status) == (ProcessStatus.RUNNING, ProcessStatus.INIT)
    assert process.state == Account(balance=5)
    assert [(e.event_id, e.name, e.payload) for e in process.history] == [(1, "opened", {"balance": 5})]


async def test_call_returns_the_handlers_answer(serve: MakeClient) -> None:
    """`call` runs the named handler and returns its answer; args are a model or plain JSON."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", {"add": 1})
    assert await client.call(NS, "p", "act", Act(add=2)) == 3
    assert await client.call(NS, "p", "act", {"add": 4}) == 7


async def test_notify_returns_once_accepted(serve: MakeClient) -> None:
    """`notify` returns without waiting for the handler, which runs in its turn."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    assert await client.notify(NS, "p", "act", Act(emit="noted", gate="g")) is None
    await scripted.gates["g"].entered()
    assert (await client.get(NS, "p")).last_event_id == 0
    scripted.gates["g"].open()
    await until_events(client, "p", "noted")


async def test_repair_runs_the_repair_handler(serve: MakeClient) -> None:
    """`repair` of a broken process runs its repair handler and makes the process work again."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    await client.notify(NS, "p", "act", Act(fail="broken on purpose"))
    await until_status(client, "p", "error")
    assert await client.repair(NS, "p", Act(add=10, emit="mended")) == 11
    process = await client.get(NS, "p")
    assert (process.status, process.detail, process.corrupted_by) == (ProcessStatus.RUNNING, None, None)
    assert await client.call(NS, "p", "act", Act()) == 11


async def test_simple_repair_needs_no_handler(serve: MakeClient) -> None:
    """`simple_repair` puts a broken process back to running without any handler."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(add=1))
    await client.notify(NS, "p", "act", Act(fail="broken on purpose"))
    await until_status(client, "p", "error")
    assert await client.simple_repair(NS, "p") is None
    assert (await client.get(NS, "p")).status is ProcessStatus.RUNNING
    assert ("p", "repair") not in scripted.ran


async def test_remove_deletes_the_process(serve: MakeClient) -> None:
    """`remove` deletes the process with all it has; the id is free again."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1, emit="opened", after=60))
    await client.remove(NS, "p")
    for ask in (client.get, client.trace, client.remove):
        with pytest.raises(ProcessNotFound):
            await ask(NS, "p")
    assert await client.start(NS, "p", Act(add=2)) == 2
    assert (await client.get(NS, "p")).last_event_id == 0


async def test_health_says_who_serves_what(engine: MakeEngine, client: MakeClient) -> None:
    """`health` counts the live workers and lists the namespaces that any worker ever served."""
    dispatcher = await client()
    assert await dispatcher.health() == Health(ok=True, detail=None, workers=0, namespaces=())
    await engine(Scripted("b.second").namespace, Scripted("a.first").namespace)
    await engine(Scripted("a.first").namespace)
    assert await dispatcher.health() == Health(True, None, 2, ("a.first", "b.second"))


async def test_handles_leave_out_namespace_and_id(serve: MakeClient) -> None:
    """`client.process(namespace, id)` has the client's methods without the first two arguments."""
    client = await serve(Scripted().namespace)
    process = client.process(NS, "p")
    assert await process.start(Act(add=1, emit="opened"), idempotency_key="s", metadata={"k": 1}) == 1
    assert await process.call("act", Act(add=1), idempotency_key="c") == 2
    await process.notify("act", Act(fail="broken on purpose"))
    await until_status(client, "p", "error")
    assert await process.repair(Act(add=1)) == 3
    await process.notify("act", Act(fail="broken again"))
    await until_status(client, "p", "error")
    await process.simple_repair()
    assert (await process.get(range=None)).metadata == {"k": 1}
    assert [t.task_type for t in await process.trace()] == [
        "init", "call", "notify", "repair", "notify", "repair",
    ]  # fmt: skip
    await process.remove()
    await process.put(state=Account(balance=7), events=[{"name": "old"}])
    assert await process.call("act", Act()) == 7


async def test_get_of_a_client_without_namespaces_is_plain(engine: MakeEngine, client: MakeClient) -> None:
    """A client that knows no code of the namespace gets the state as plain JSON."""
    await engine(Scripted().namespace)
    plain = await client()
    await plain.start(NS, "p", {"add": 3})
    assert (await plain.get(NS, "p")).state == {"balance": 3, "then": None}


async def test_requests_carry_context_to_the_handler(serve: MakeClient) -> None:
    """`context=` of start, call, notify and repair reaches the handler, and the trace shows it."""
    seen: list[object] = []
    namespace = Namespace("seen")

    @namespace.init
    async def init(process: Process) -> None:
        seen.append(process.context)

    @namespace.call
    async def look(process: Process) -> None:
        seen.append(process.context)
        if process.context == "break":
            raise ValueError("as told")

    @namespace.repair
    async def repair(process: Process) -> None:
        seen.append(process.context)

    client = await serve(namespace)
    await client.start("seen", "p", context={"user": 1})
    await client.call("seen", "p", "look", context=["a", None])
    await client.call("seen", "p", "look")
    await client.notify("seen", "p", "look", context="break")
    await until_status(client, "p", "error", namespace="seen")
    await client.repair("seen", "p", context=7.5)
    assert seen == [{"user": 1}, ["a", None], None, "break", 7.5]
    assert [t.context for t in await client.trace("seen", "p")] == seen


async def test_get_waits_for_a_running_init(serve: MakeClient) -> None:
    """`get` of a process whose init still runs waits until it is a process."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(client.start(NS, "p", Act(add=4, gate="g")))
    await scripted.gates["g"].entered()
    getting = asyncio.create_task(client.get(NS, "p"))
    assert (await client.search(namespace=NS)).items[0].status is ProcessStatus.INIT
    assert not getting.done()
    scripted.gates["g"].open()
    assert (await getting).state.balance == 4
    await starting


async def test_history_ranges(serve: MakeClient) -> None:
    """`get` loads the range asked for: at most `limit` events behind event `offset`, in order."""
    client = await serve(Scripted().namespace)
    await client.put(NS, "p", state=Account(), events=[{"name": f"e{n}"} for n in range(1, 11)])

    async def numbers(*args: object) -> list[int]:
        process = await client.get(NS, "p", range=HistoryRange(*args))
        assert process.last_event_id == 10
        return [event.event_id for event in process.history]

    assert await numbers() == list(range(1, 11))
    assert await numbers(3) == [4, 5, 6, 7, 8, 9, 10]
    assert await numbers(3, 2) == [4, 5]
    assert await numbers(0, 0) == []
    assert await numbers(9, 5) == [10]
    assert await numbers(10) == []
    assert await numbers(0, None, "backward") == list(range(10, 0, -1))
    assert await numbers(0, 3, "backward") == [10, 9, 8]
    assert await numbers(9, 3, "backward") == [8, 7, 6]
    assert await numbers(3, 5, "backward") == [2, 1]
    assert await numbers(3, 0, "backward") == []
    assert await numbers(1, 5, "backward") == []
    assert await numbers(12, 3, "backward") == [10, 9, 8]
    assert await numbers(12, None, "backward") == list(range(10, 0, -1))
    assert await numbers(2**63 - 1, 2**63 - 1) == []
    assert await numbers(2**63 - 1, 2**63 - 1, "backward") == list(range(10, 0, -1))
    assert (await client.get(NS, "p", range=None)).history == ()


@pytest.mark.parametrize(
    ("direction", "seen"),
    [("forward", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), ("backward", [7, 6, 5, 4, 3, 2, 1])],
)
async def test_pages_stay_while_events_are_appended(
    serve: MakeClient, direction: Literal["forward", "backward"], seen: list[int]
) -> None:
    """The last event id of a page is the offset of the next: nothing is skipped and nothing comes twice."""
    client = await serve(Scripted().namespace)
    await client.put(NS, "p", state=Account(), events=[{"name": "old"}] * 7)
    pages: list[int] = []
    appended = 0
    while True:
        wanted = HistoryRange(pages[-1] if pages else 0, 2, direction)
        page = (await client.get(NS, "p", range=wanted)).history
        if not page:
            break
        pages += [event.event_id for event in page]
        if appended < 4:
            await client.call(NS, "p", "act", Act(emit="new"))
            appended += 1
    assert pages == seen


async def test_put_imports_state_history_metadata_and_timer(serve: MakeClient) -> None:
    """`put` makes a process as it is: events numbered from 1, state, metadata, and a timer that fires."""
    client = await serve(Scripted().namespace)
    await client.put(
        NS,
        "p",
        state=Account(balance=70),
        events=[{"name": "opened", "plan": "pro"}, {"name": "paid", "payload": [1, 2]}, Act(add=1)],
        metadata={"city": "Oslo"},
        action=SetTimer(after=timedelta(milliseconds=50)),
    )
    process = await until(lambda: client.get(NS, "p"), lambda process: process.last_event_id == 4)
    assert [(e.event_id, e.name) for e in process.history] == [
        (1, "opened"), (2, "paid"), (3, "Act"), (4, "fired"),
    ]  # fmt: skip
    assert process.history[0].payload == {"plan": "pro"}
    assert process.history[1].payload == [1, 2]
    assert process.history[2].payload["add"] == 1
    assert (process.state.balance, process.metadata) == (70, {"city": "Oslo"})
    assert await client.call(NS, "p", "act", Act(add=5)) == 75


async def test_names_may_be_of_a_class_of_the_users_own(serve: MakeClient) -> None:
    """A text is a text, whatever its class is called."""

    class Id(str):
        __slots__ = ()

    client = await serve(Scripted().namespace)
    namespace, of_init, of_put = Id(NS), Id("p"), Id("q")
    await client.start(namespace, of_init, Act(add=1), idempotency_key=Id("first"))
    await client.put(namespace, of_put, state=Account(balance=1))
    await client.pause(namespace)
    await client.resume(namespace)
    for process_id in (of_init, of_put):
        assert await client.call(namespace, process_id, Id("act"), Act(add=1)) == 2
        await client.remove(namespace, process_id)
    assert not (await client.search(namespace=namespace)).items


async def test_put_imports_a_broken_process(serve: MakeClient) -> None:
    """`put(status="error")` makes a broken process, to be repaired."""
    client = await serve(Scripted().namespace)
    await client.put(NS, "p", state=Account(balance=1), status="error")
    assert (await client.get(NS, "p")).status is ProcessStatus.ERROR
    assert await client.repair(NS, "p", Act(add=1)) == 2


async def test_put_with_a_timed_remove(serve: MakeClient) -> None:
    """`put(action=SetTimer(remove=True))` makes a process that goes away at its time."""
    client = await serve(Scripted().namespace)
    await client.put(
        NS, "p", state=Account(), action=SetTimer(after=timedelta(milliseconds=50), remove=True)
    )
    await until(lambda: client.search(namespace=NS), lambda page: not page.items)


async def test_event_ids_far_beyond_two_bytes(serve: MakeClient) -> None:
    """A history goes on behind its 40,000th event, and ranges reach its end."""
    client = await serve(Scripted().namespace)
    await client.put(NS, "p", state=Account(), events=[{"name": "old"}] * 40_000)
    await client.call(NS, "p", "act", Act(emit="new"))
    await client.call(NS, "p", "act", Act(emit="newer"))
    process = await client.get(NS, "p", range=HistoryRange(limit=3, direction="backward"))
    assert [(e.event_id, e.name) for e in process.history] == [
        (40_002, "newer"), (40_001, "new"), (40_000, "old"),
    ]  # fmt: skip
    process = await client.get(NS, "p", range=HistoryRange(32_766, 3))
    assert [event.event_id for event in process.history] == [32_767, 32_768, 32_769]


async def test_trace_tells_every_task(serve: MakeClient) -> None:
    """`trace` lists the tasks in order, with args, answers or errors, times, worker and events."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(emit="opened", after=3600), idempotency_key="s-1")
    await client.call(NS, "p", "act", Act(add=2, emit="added"), idempotency_key="c-1", context="who")
    await client.notify(NS, "p", "act", Act(fail="no"))
    await until_status(client, "p", "error")
    init, timer, call, notify = await client.trace(NS, "p")
    assert init.task_id < timer.task_id < call.task_id < notify.task_id

    assert (init.task_type, init.status, init.idempotency_key) == ("init", TaskStatus.FINISHED, "s-1")
    assert [(e.event_id, e.name, e.task_id) for e in init.events] == [(1, "opened", init.task_id)]

    assert (timer.task_type, timer.status) == ("timeout", TaskStatus.HELD)
    assert (timer.running_time, timer.worker_id, timer.events) == (None, None, ())
    assert timer.scheduled_time - init.finished_time == timedelta(hours=1)

    assert (call.name, call.args["add"], call.response, call.error) == ("act", 2, 2, None)
    assert (call.context, call.idempotency_key, call.attempts_count) == ("who", "c-1", 0)
    assert call.scheduled_time <= call.running_time <= call.finished_time
    assert call.worker_id
    assert [e.payload for e in call.events] == [{"balance": 2}]

    assert (notify.task_type, notify.status, notify.error) == ("notify", "error", "ValueError: no")
    assert (notify.response, notify.events) == (None, ())
    broken = await client.get(NS, "p")
    assert (broken.detail, broken.corrupted_by) == ("ValueError: no", notify.task_id)

    assert await client.trace(NS, "p", after=timer.task_id, limit=1) == [call]
    assert await client.trace(NS, "p", last=2) == [call, notify]
    assert await client.trace(NS, "p", after=call.task_id, last=2) == [notify]
    with pytest.raises(InvalidRequest, match="one of limit and last"):
        await client.trace(NS, "p", limit=1, last=1)


async def started(client: Client, process_id: str, note: dict[str, object]) -> None:
    await client.start(NS, process_id, Act(), metadata=note)


async def test_search_pages_through_all_that_match(serve: MakeClient) -> None:
    """`search` pages with a cursor, by creation, without a gap or a repetition; None ends it."""
    other = Scripted("other")
    client = await serve(Scripted().namespace, other.namespace)
    await client.start("other", "x", Act())
    for number in range(7):
        await started(client, f"p{number}", {})
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = await client.search(namespace=NS, limit=3, cursor=cursor)
        found += [process.process_id for process in page.items]
        cursor, pages = page.cursor, pages + 1
    assert (found, pages) == ([f"p{number}" for number in range(7)], 3)
    assert len((await client.search()).items) == 8
    exact = await client.search(namespace=NS, limit=7)
    assert (len(exact.items), exact.cursor) == (7, None)


async def test_search_by_metadata_status_and_time(serve: MakeClient) -> None:
    """`search` finds by what metadata contains, by status, and by time of creation, in any mix."""
    client = await serve(Scripted().namespace)
    await started(client, "a", {"city": "Oslo", "tags": ["new", "big"]})
    await started(client, "b", {"city": "Oslo"})
    await started(client, "c", {"city": "Rome"})
    await client.notify(NS, "b", "act", Act(fail="no"))
    await until_status(client, "b", "error")

    async def found(**wanted: object) -> list[str]:
        page = await client.search(namespace=NS, **wanted)
        return [process.process_id for process in page.items]

    assert await found(metadata={"city": "Oslo"}) == ["a", "b"]
    assert await found(metadata={"tags": ["big"]}) == ["a"]
    assert await found(metadata={"city": "Bonn"}) == []
    assert await found(status="error") == ["b"]
    assert await found(status="running", metadata={"city": "Oslo"}) == ["a"]
    assert await found(status="init") == []
    second = (await client.get(NS, "b")).created_at
    assert await found(created_after=second) == ["b", "c"]
    assert await found(created_before=second) == ["a"]
    assert await found(created_after=second, status="running") == ["c"]


async def test_metadata_changed_in_a_handler_is_found(serve: MakeClient) -> None:
    """A handler changes the metadata dict in place; `search` then finds the process by it."""
    client = await serve(Scripted().namespace)
    await started(client, "p", {"city": "Oslo", "kept": True})
    await client.call(NS, "p", "act", Act(note={"city": "Rome"}))
    (process,) = (await client.search(metadata={"city": "Rome"})).items
    assert process.metadata == {"city": "Rome", "kept": True}
    assert (await client.search(metadata={"city": "Oslo"})).items == []
