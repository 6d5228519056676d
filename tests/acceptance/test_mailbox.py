"""The order in which a process does what it is asked, and what becomes of requests that wait."""

import asyncio

import pytest

from progressor import HandlerFailed, ProcessBroken, ProcessNotFound, Rejected
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import (
    NS,
    Act,
    Scripted,
    outline,
    start_and_call,
    timers,
    until_events,
    until_past,
    until_status,
    until_waiting,
)


async def test_a_call_during_init_waits_for_it(serve: MakeClient) -> None:
    """A call that arrives while init runs is accepted, and answered after it."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(client.start(NS, "p", Act(add=1, emit="opened", gate="g")))
    await scripted.gates["g"].entered()
    calling = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, emit="called")))
    await until_waiting(client, "p", 1)
    assert scripted.ran == [("p", "init")]
    scripted.gates["g"].open()
    assert (await starting, await calling) == (1, 2)
    await until_events(client, "p", "opened", "called")


async def test_calls_during_a_failing_init_fail_with_it(serve: MakeClient) -> None:
    """When init fails, calls that waited for it fail at once with the reason."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(client.start(NS, "p", Act(fail="no good", gate="g")))
    await scripted.gates["g"].entered()
    calling = asyncio.create_task(client.call(NS, "p", "act", Act()))
    await until_waiting(client, "p", 1)
    scripted.gates["g"].open()
    with pytest.raises(HandlerFailed, match="no good"):
        await starting
    with pytest.raises(ProcessBroken, match="no good"):
        await calling


async def test_calls_run_in_the_order_of_acceptance(serve: MakeClient) -> None:
    """Calls and notifies on one process run one by one, in the order in which they were accepted."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    await client.notify(NS, "p", "act", Act(gate="g"))
    await scripted.gates["g"].entered()
    asked = []
    for number in range(1, 9):
        ask = client.call if number % 2 else client.notify
        asked.append(asyncio.create_task(ask(NS, "p", "act", Act(add=1, emit=f"e{number}"))))
        await until_waiting(client, "p", number)
    scripted.gates["g"].open()
    assert [await each for each in asked] == [1, None, 3, None, 5, None, 7, None]
    await until_events(client, "p", *(f"e{number}" for number in range(1, 9)))
    assert scripted.overlaps == []


async def test_concurrent_calls_each_run_once(serve: MakeClient) -> None:
    """Fifty callers at once on one process: each gets an answer of its own, one step at a time."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    answers = await asyncio.gather(*(client.call(NS, "p", "act", Act(add=1, emit="e")) for _ in range(50)))
    assert sorted(answers) == list(range(1, 51))
    process = await client.get(NS, "p")
    assert [event.event_id for event in process.history] == list(range(1, 51))
    assert scripted.overlaps == []


async def test_waiting_calls_go_before_a_due_timer(serve: MakeClient) -> None:
    """A timer that falls due while calls wait runs after them."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    first = await start_and_call(client, scripted, Act(after=0.5), Act(gate="g", emit="first"))
    await scripted.gates["g"].entered()
    calls = [first]
    for number, name in enumerate(("second", "third"), start=1):
        calls.append(asyncio.create_task(client.call(NS, "p", "act", Act(emit=name))))
        await until_waiting(client, "p", number)
    (timer,) = await timers(client, "p")
    assert timer.status == "blocked"
    await until_past(client, timer.scheduled_time)
    scripted.gates["g"].open()
    await asyncio.gather(*calls)
    await until_events(client, "p", "first", "second", "third", "fired")


async def test_waiting_callers_of_a_process_that_breaks_fail_at_once(serve: MakeClient) -> None:
    """When a process breaks, everyone who waits on it gets ProcessBroken with the reason."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=3600))
    breaking = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g", fail="bad luck")))
    await scripted.gates["g"].entered()
    waiting = [asyncio.create_task(client.call(NS, "p", "act", Act())) for _ in range(5)]
    await until_waiting(client, "p", 5)
    await client.notify(NS, "p", "act", Act())
    await until_waiting(client, "p", 6)
    scripted.gates["g"].open()
    with pytest.raises(HandlerFailed):
        await breaking
    for each in waiting:
        with pytest.raises(ProcessBroken) as caught:
            await each
        assert caught.value.detail == "ValueError: bad luck"
    assert await outline(client, "p") == [
        ("init", "finished"),
        ("timeout", "held"),
        ("call", "error"),
        *[("call", "cancelled")] * 5,
        ("notify", "cancelled"),
    ]
    assert [entry.error for entry in await client.trace(NS, "p")][-1] == "ValueError: bad luck"


async def test_a_timer_that_breaks_a_process_fails_its_waiting_callers(serve: MakeClient) -> None:
    """Callers who wait while a timeout handler runs are told when it breaks the process for good."""
    scripted = Scripted(retry_policy={"max_attempts": 1})
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0, then=Act(gate="g", fail="overdue")))
    await scripted.gates["g"].entered()
    calling = asyncio.create_task(client.call(NS, "p", "act", Act()))
    await until_waiting(client, "p", 1)
    scripted.gates["g"].open()
    with pytest.raises(ProcessBroken, match="overdue"):
        await calling


async def test_a_refused_call_changes_nothing(serve: MakeClient) -> None:
    """Reject leaves state, events, metadata and timer as they were, and the next call runs."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1, emit="opened", note={"a": 1}, after=3600))
    before, (timer,) = await client.get(NS, "p"), await timers(client, "p")
    for change in (Act(after=1), Act(unset=True), Act(remove=True)):
        act = change.model_copy(update={"add": 9, "emit": "no", "note": {"a": 2}, "reject": "no"})
        with pytest.raises(Rejected):
            await client.call(NS, "p", "act", act)
    assert (await client.get(NS, "p")).snapshot == before.snapshot
    (same,) = await timers(client, "p")
    assert (same.task_id, same.status, same.scheduled_time) == (
        timer.task_id, "waiting", timer.scheduled_time,
    )  # fmt: skip
    refused = (await client.trace(NS, "p"))[-1]
    assert (refused.status, refused.error, refused.response) == ("error", "rejected: no", None)
    assert await client.call(NS, "p", "act", Act(add=1)) == 2


async def test_a_refused_init_leaves_no_process(serve: MakeClient) -> None:
    """A rejected start leaves nothing behind; calls that waited get ProcessNotFound; it can be repeated."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(
        client.start(NS, "p", Act(emit="opened", gate="g", reject="not today"), idempotency_key="k")
    )
    await scripted.gates["g"].entered()
    calling = asyncio.create_task(client.call(NS, "p", "act", Act()))
    await until_waiting(client, "p", 1)
    scripted.gates["g"].open()
    with pytest.raises(Rejected, match="not today"):
        await starting
    with pytest.raises(ProcessNotFound):
        await calling
    with pytest.raises(ProcessNotFound):
        await client.get(NS, "p")
    assert (await client.search(namespace=NS)).items == []
    assert await client.start(NS, "p", Act(add=2)) == 2
    assert (await client.get(NS, "p")).last_event_id == 0


async def test_a_failing_notify_breaks_the_process(serve: MakeClient) -> None:
    """A notify whose handler raises breaks its process, like a call; one that is refused does not."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    await client.notify(NS, "p", "act", Act(reject="no"))
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    assert await outline(client, "p") == [("init", "finished"), ("notify", "error"), ("notify", "error")]


async def test_two_processes_run_side_by_side(serve: MakeClient) -> None:
    """A handler that waits holds up its own process only."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "slow", Act())
    await client.start(NS, "fast", Act())
    slow = asyncio.create_task(client.call(NS, "slow", "act", Act(gate="g")))
    await scripted.gates["g"].entered()
    assert await client.call(NS, "fast", "act", Act(add=1)) == 1
    scripted.gates["g"].open()
    await slow
