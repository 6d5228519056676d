"""Broken processes and their repair."""

import asyncio

import pytest

from progressor import (
    Client,
    HandlerFailed,
    Namespace,
    Process,
    ProcessStatus,
    Rejected,
    RepairConflict,
)
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import (
    NS,
    Act,
    Scripted,
    outline,
    timers,
    until_events,
    until_status,
)

ONCE = {"max_attempts": 1}


async def broken_by_timer(client: Client, scripted: Scripted, **act: object) -> int:
    """Start a process that its timer breaks; the timer's task id."""
    scripted.faults["p"].append(ValueError("timer broke it"))
    await client.start(NS, "p", Act(after=0, **act))
    await until_status(client, "p", "error")
    timer, _ = await timers(client, "p")
    return timer.task_id


async def test_a_failed_repair_leaves_everything_as_it_was(serve: MakeClient) -> None:
    """A repair that raises or refuses leaves status, detail and corrupted_by; another one may follow."""
    scripted = Scripted(retry_policy=ONCE)
    client = await serve(scripted.namespace)
    task_id = await broken_by_timer(client, scripted)
    before = await client.get(NS, "p")
    assert (before.corrupted_by, before.detail) == (task_id, "ValueError: timer broke it")
    with pytest.raises(HandlerFailed, match="worse"):
        await client.repair(NS, "p", Act(emit="no", add=1, fail="worse"))
    assert (await client.get(NS, "p")).snapshot == before.snapshot
    with pytest.raises(Rejected, match="not mine"):
        await client.repair(NS, "p", Act(emit="no", add=1, reject="not mine"))
    assert (await client.get(NS, "p")).snapshot == before.snapshot
    assert await client.repair(NS, "p", Act(add=2)) == 2
    await until_events(client, "p", "fired")


async def test_repair_without_action_reruns_the_broken_timer(serve: MakeClient) -> None:
    """A repair that says nothing of timers lets the timer that broke the process run again at once."""
    scripted = Scripted(retry_policy=ONCE)
    client = await serve(scripted.namespace)
    await broken_by_timer(client, scripted, then=Act(emit="at last"))
    await client.repair(NS, "p", Act(emit="mended"))
    await until_events(client, "p", "mended", "at last")
    process = await client.get(NS, "p")
    assert (process.status, process.detail, process.corrupted_by) == (ProcessStatus.RUNNING, None, None)
    assert (await outline(client, "p"))[1:] == [
        ("timeout", "error"), ("timeout", "finished"), ("repair", "finished"),
    ]  # fmt: skip


async def test_repair_with_an_action_obeys_it(serve: MakeClient) -> None:
    """A repair that sets or unsets a timer decides what becomes of the one that broke the process."""
    scripted = Scripted(retry_policy=ONCE)
    client = await serve(scripted.namespace)
    await broken_by_timer(client, scripted)
    await client.repair(NS, "p", Act(emit="mended", unset=True))
    assert [timer.status for timer in await timers(client, "p")] == ["error", "cancelled"]
    await client.call(NS, "p", "act", Act(after=0))
    await until_events(client, "p", "mended", "fired")
    scripted.faults["p"].append(ValueError("again"))
    await client.call(NS, "p", "act", Act(after=0))
    await until_status(client, "p", "error")
    await client.repair(NS, "p", Act(after=0.02, then=Act(emit="other")))
    await until_events(client, "p", "mended", "fired", "other")


async def test_repair_may_remove(serve: MakeClient) -> None:
    """A repair handler can end its process for good."""
    scripted = Scripted(retry_policy=ONCE)
    client = await serve(scripted.namespace)
    await broken_by_timer(client, scripted)
    assert await client.repair(NS, "p", Act(add=1, remove=True)) == 1
    assert (await client.search(namespace=NS)).items == []


async def test_repair_after_a_broken_call_runs_no_call(serve: MakeClient) -> None:
    """A process that a call broke goes on with its timer alone: who called was told."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(after=3600))
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    await client.repair(NS, "p", Act(emit="mended"))
    assert (await outline(client, "p"))[1:] == [
        ("timeout", "waiting"), ("notify", "error"), ("repair", "finished"),
    ]  # fmt: skip
    assert await client.call(NS, "p", "act", Act(add=1)) == 1


async def test_simple_repair_after_a_timer_makes_it_due(serve: MakeClient) -> None:
    """simple_repair of a process that its timer broke lets it run again, as a fresh task."""
    scripted = Scripted(retry_policy=ONCE)
    client = await serve(scripted.namespace)
    task_id = await broken_by_timer(client, scripted)
    await client.simple_repair(NS, "p")
    await until_events(client, "p", "fired")
    first, second = await timers(client, "p")
    assert (first.task_id, first.status) == (task_id, "error")
    assert (second.status, second.attempts_count) == ("finished", 0)


async def test_simple_repair_after_a_call_runs_nothing(serve: MakeClient) -> None:
    """simple_repair of a process that a call broke only puts it back to running."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    await client.simple_repair(NS, "p")
    assert await outline(client, "p") == [
        ("init", "finished"), ("notify", "error"), ("repair", "finished"),
    ]  # fmt: skip
    process = await client.get(NS, "p")
    assert (process.status, process.previous_status) == ("running", "error")
    assert (process.detail, process.corrupted_by) == (None, None)


async def test_one_repair_at_a_time(serve: MakeClient) -> None:
    """While one repair runs another one is told RepairConflict, and calls that the process is broken."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    await client.notify(NS, "p", "act", Act(fail="oops"))
    await until_status(client, "p", "error")
    repairing = asyncio.create_task(client.repair(NS, "p", Act(gate="g", add=1)))
    await scripted.gates["g"].entered()
    for second in (client.repair(NS, "p", Act()), client.simple_repair(NS, "p")):
        with pytest.raises(RepairConflict, match="another repair of it runs or waits"):
            await second
    scripted.gates["g"].open()
    assert await repairing == 1


async def broken_at_birth(client: Client, scripted: Scripted, *, times: int = 1) -> None:
    """Ask for a process whose first inits fail, with the key "signup"."""
    scripted.births["p"] += [ValueError("at birth")] * times
    with pytest.raises(HandlerFailed, match="at birth"):
        await client.start(NS, "p", Act(add=3, after=3600), idempotency_key="signup")
    process = await client.get(NS, "p")
    assert (process.status, process.previous_status, process.state) == ("error", "init", None)


async def test_simple_repair_after_an_init_runs_it_anew(serve: MakeClient) -> None:
    """With the same arguments: the process has its state and its timer, and the key its new answer."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await broken_at_birth(client, scripted)
    await client.simple_repair(NS, "p")
    process = await client.get(NS, "p")
    assert (process.status, process.state.balance) == (ProcessStatus.RUNNING, 3)
    assert await client.start(NS, "p", Act(add=3, after=3600), idempotency_key="signup") == 3
    assert await outline(client, "p") == [
        ("init", "finished"), ("repair", "finished"), ("timeout", "waiting"),
    ]  # fmt: skip
    assert scripted.ran == [("p", "fault"), ("p", "init")]


async def test_a_start_asked_again_waits_for_the_init_that_runs_anew(serve: MakeClient) -> None:
    """Whoever asks again with the same key is told how that run ends."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    scripted.births["p"].append(ValueError("at birth"))
    act = Act(gate="g", add=3)
    receipt = await client.submit_start(NS, "p", act, idempotency_key="signup")
    with pytest.raises(HandlerFailed):
        await client.answer(receipt)
    await client.simple_repair(NS, "p")
    await scripted.gates["g"].entered()
    again = asyncio.create_task(client.start(NS, "p", act, idempotency_key="signup"))
    called = asyncio.create_task(client.call(NS, "p", "act", Act(add=1)))
    scripted.gates["g"].open()
    assert await again == 3
    assert await called == 4
    assert await client.answer(receipt) == 3


async def test_an_init_that_fails_again_breaks_its_process_again(serve: MakeClient) -> None:
    """Until it succeeds the process is never running."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await broken_at_birth(client, scripted, times=2)
    await client.simple_repair(NS, "p")
    process = await client.get(NS, "p")
    assert (process.status, process.previous_status) == ("error", "init")
    await client.simple_repair(NS, "p")
    assert (await client.get(NS, "p")).status is ProcessStatus.RUNNING


async def test_a_repair_after_an_init_runs_it_anew(serve: MakeClient) -> None:
    """The handler's answer is the caller's; then the init runs, and sees what the repair left."""
    namespace = Namespace(NS)
    seen = list[object]()

    @namespace.init
    async def open_(process: Process, plan: str) -> str:
        seen.append(process.state and dict(process.state))
        if process.state is None:
            raise ValueError("at birth")
        process.state |= {"plan": plan}
        return plan

    @namespace.repair
    async def mend(process: Process) -> str:
        process.state = {"account": 7}
        process.emit("mended")
        return "mended"

    client = await serve(namespace)
    with pytest.raises(HandlerFailed):
        await client.start(NS, "p", "pro", idempotency_key="signup")
    assert await client.repair(NS, "p") == "mended"
    process = await client.get(NS, "p")
    assert (process.status, process.state) == (ProcessStatus.RUNNING, {"account": 7, "plan": "pro"})
    assert await client.start(NS, "p", "pro", idempotency_key="signup") == "pro"
    assert (seen, await outline(client, "p")) == (
        [None, {"account": 7}], [("init", "finished"), ("repair", "finished")],
    )  # fmt: skip
