"""A request that did not begin in its time is refused, and its caller is told; one that began goes on."""

import asyncio
import logging
from datetime import timedelta

import pytest

from progressor import App, Engine, Expired, InvalidRequest, Process, Rejected, SyncClient, TaskStatus
from progressor.app.middleware import CallNext, StepView
from progressor.model import Intent
from tests.acceptance.conftest import MakeClient, Options, of_a_client
from tests.acceptance.support import NS, Act, Scripted, until

# Over before anything can begin that has to wait.
AT_ONCE = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


async def test_a_call_that_could_not_begin_in_time_is_refused(serve: MakeClient) -> None:
    """Its handler does not run, the process is as it was, and its trace says why."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(add=1))
    running = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, gate="g")))
    await scripted.gates["g"].entered()
    late = await client.submit_call(NS, "p", "act", Act(add=10), expires=AT_ONCE)
    behind = await client.submit_call(NS, "p", "act", Act(add=100), expires=HOUR)
    scripted.gates["g"].open()
    assert await running == 2
    with pytest.raises(Expired) as refused:
        await client.answer(late)
    assert await client.answer(behind) == 102
    assert isinstance(refused.value, Rejected)
    entries = {entry.task_id: entry for entry in await client.trace(NS, "p")}
    expired = entries[late.task_id]
    assert expired.status is TaskStatus.ERROR
    assert expired.expires_at == expired.scheduled_time + AT_ONCE
    assert refused.value.details == {"expires_at": expired.expires_at.isoformat()}
    assert expired.error == f"expired: {refused.value.reason}"
    assert entries[behind.task_id].expires_at == entries[behind.task_id].scheduled_time + HOUR
    assert (await client.get(NS, "p")).status == "running"
    assert scripted.ran.count(("p", "call")) == 2


async def test_a_call_that_begins_in_time_is_run(serve: MakeClient) -> None:
    """On every way of a request, also if its time ends while it runs."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    assert await client.call(NS, "p", "act", Act(add=1), expires=HOUR) == 1
    await client.process(NS, "p").notify("act", Act(add=1), expires=HOUR)
    assert await client.process(NS, "p").call("act", Act(add=1), expires=HOUR) == 3
    *_, entry = await client.trace(NS, "p")
    assert entry.expires_at == entry.scheduled_time + HOUR


async def test_a_notice_that_expired_is_logged_and_in_the_trace(
    serve: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it, so the log and its trace tell."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    running = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g")))
    await scripted.gates["g"].entered()
    with caplog.at_level(logging.WARNING, "progressor.worker"):
        await client.notify(NS, "p", "act", Act(add=10), expires=AT_ONCE)
        scripted.gates["g"].open()
        await running
        *_, entry = await until(
            lambda: client.trace(NS, "p"), lambda found: found if found[-1].status.is_final else None
        )
    assert (entry.error or "").startswith("expired: it was not begun by ")
    assert "notice refused" in caplog.text
    assert (await client.get(NS, "p")).state.balance == 0


async def test_a_repetition_gets_the_answer_of_the_first(serve: MakeClient) -> None:
    """The expiry is no part of what the key stands for; with another key the request is a new one."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    running = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g")))
    await scripted.gates["g"].entered()
    late = await client.submit_call(NS, "p", "act", Act(add=1), idempotency_key="k", expires=AT_ONCE)
    scripted.gates["g"].open()
    await running
    for expires in (AT_ONCE, HOUR, None):
        with pytest.raises(Expired):
            await client.call(NS, "p", "act", Act(add=1), idempotency_key="k", expires=expires)
    with pytest.raises(Expired):
        await client.result(NS, "p", late.task_id)
    assert await client.call(NS, "p", "act", Act(add=1), idempotency_key="other") == 1


async def test_a_redo_of_it_has_no_expiry(serve: MakeClient) -> None:
    """Who runs it again wants it to run."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    running = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g")))
    await scripted.gates["g"].entered()
    late = await client.submit_call(NS, "p", "act", Act(add=5), expires=AT_ONCE)
    scripted.gates["g"].open()
    await running
    with pytest.raises(Expired):
        await client.answer(late)
    assert await client.redo(NS, "p", late.task_id) == 5


async def test_nothing_of_the_users_code_runs_for_it(dsn: str, mode: Options) -> None:
    """No middleware either."""
    scripted = Scripted()
    seen: list[str | None] = []

    async def watch(step: StepView, call_next: CallNext) -> Intent:
        seen.append(step.name)
        return await call_next(step)

    async with Engine(dsn, App([scripted.namespace], middleware=[watch]), **mode) as engine:
        client = engine.client
        await client.start(NS, "p", Act())
        running = asyncio.create_task(client.call(NS, "p", "act", Act(gate="g")))
        await scripted.gates["g"].entered()
        late = await client.submit_call(NS, "p", "act", Act(add=5), expires=AT_ONCE)
        scripted.gates["g"].open()
        await running
        with pytest.raises(Expired):
            await client.answer(late)
    assert seen == [None, "act"]


async def test_functions_and_sync_clients_take_it(serve: MakeClient, dsn: str, mode: Options) -> None:
    """A typed request has the same keyword, and so has a client without an event loop."""
    scripted = Scripted()
    namespace = scripted.namespace

    @namespace.call
    async def bow(process: Process) -> str:
        return "bow"

    client = await serve(namespace)
    await client.start(NS, "p", Act())
    assert await client.call(bow, "p", expires=HOUR) == "bow"
    await client.notify(bow, "p", expires=HOUR)

    def ask() -> str:
        with SyncClient(dsn, **of_a_client(mode)) as sync:
            return sync.call(NS, "p", "bow", expires=HOUR)

    assert await asyncio.to_thread(ask) == "bow"


@pytest.mark.parametrize("expires", [timedelta(), timedelta(seconds=-1), timedelta(days=365_001), 5, "5"])
async def test_no_request_has_such_an_expiry(serve: MakeClient, expires: timedelta) -> None:
    """It is refused by its name, before anything is written."""
    client = await serve(Scripted().namespace)
    with pytest.raises(InvalidRequest, match="expires must be ") as wrong:
        await client.call(NS, "p", "act", expires=expires)
    assert wrong.value.field == "expires"
