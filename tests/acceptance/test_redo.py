"""A request that ended is run again, once: the same call, with the values that are stored."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from progressor import (
    Client,
    HandlerFailed,
    InvalidRequest,
    Namespace,
    Process,
    ProcessBroken,
    ProcessNotFound,
    Rejected,
    ReplyTimeout,
    RequestLost,
    SyncClient,
    TaskNotEnded,
    TaskNotFound,
    TaskType,
    TraceEntry,
)
from tests.acceptance.conftest import MakeClient, MakeEngine, Options, of_a_client
from tests.acceptance.support import NS, Act, Flaky, Gate, Scripted, Xor, until, until_status

LAST_ID = 2**63 - 1


async def entry(client: Client, task_id: int, process_id: str = "p", *, namespace: str = NS) -> TraceEntry:
    (found,) = [each for each in await client.trace(namespace, process_id) if each.task_id == task_id]
    return found


async def last(client: Client, process_id: str = "p", *, namespace: str = NS) -> int:
    """The id of the newest task of a process."""
    return (await client.trace(namespace, process_id))[-1].task_id


async def test_what_broke_a_process_is_run_again_after_its_repair(serve: MakeClient) -> None:
    """Same call, arguments and context; the trace links both; asked again it answers the same."""
    flaky = Flaky()
    client = await serve(flaky.namespace)
    await client.start("flaky", "p")
    with pytest.raises(HandlerFailed):
        await client.call("flaky", "p", "add", 5, context={"who": "me"})
    broken = await client.get("flaky", "p")
    old = broken.corrupted_by
    assert old is not None
    with pytest.raises(ProcessBroken):
        await client.redo("flaky", "p", old)
    flaky.is_mended = True
    await client.repair("flaky", "p")
    assert await client.redo("flaky", "p", old) == 5
    assert await client.redo("flaky", "p", old) == 5
    assert flaky.ran == [(5, {"who": "me"})] * 2
    assert (await client.get("flaky", "p")).state == 5
    new = await last(client, namespace="flaky")
    redone, redo = [await entry(client, each, namespace="flaky") for each in (old, new)]
    assert (redone.redone_by, redone.redoes, redo.redoes, redo.redone_by) == (new, None, old, None)
    assert (redo.name, redo.args, redo.context) == ("add", 5, {"who": "me"})


async def test_sealed_values_are_run_again_by_a_client_that_cannot_read_them(
    engine: MakeEngine, client: MakeClient
) -> None:
    """They are copied as they are stored: the handler gets them opened."""
    flaky = Flaky(codec=Xor())
    flaky.is_mended = True
    await engine(flaky.namespace)
    sealing, blind = await client(codec=Xor()), await client()
    await sealing.start("flaky", "p")
    first = await sealing.submit_call("flaky", "p", "add", 5, context={"who": "me"})
    assert await sealing.answer(first) == 5
    redo = await blind.submit_redo("flaky", "p", first.task_id)
    assert await sealing.answer(redo) == 10
    assert flaky.ran == [(5, {"who": "me"})] * 2
    (stored,) = [each for each in await sealing.trace("flaky", "p") if each.task_id == redo.task_id]
    assert (stored.args, stored.context, stored.redoes) == (5, {"who": "me"}, first.task_id)


async def test_what_finished_was_refused_or_cancelled_is_run_again(serve: MakeClient) -> None:
    """Each is run with its own arguments, and answers as a call does."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    process = client.process(NS, "p")
    await process.start(Act())
    assert await process.call("act", Act(add=3)) == 3
    finished = await last(client)
    with pytest.raises(Rejected):
        await process.call("act", Act(reject="no"))
    refused = await last(client)
    held = asyncio.create_task(process.call("act", Act(gate="held", fail="oops")))
    await scripted.gates["held"].entered()
    waiting = await process.submit_call("act", Act(add=7))
    with pytest.raises(TaskNotEnded) as early:
        await process.redo(waiting.task_id)
    assert early.value.task_id == waiting.task_id
    scripted.gates["held"].open()
    with pytest.raises(HandlerFailed):
        await held
    await until_status(client, "p", "error")
    await process.simple_repair()
    assert await process.redo(finished) == 6
    with pytest.raises(Rejected, match="no"):
        await process.redo(refused)
    assert await process.redo(waiting.task_id) == 13
    again = await last(client)
    assert await process.redo(again) == 20, "a redo is a request as any other"
    assert await process.redo(waiting.task_id, fingerprint=waiting.fingerprint) == 13


async def test_a_notice_is_run_again_without_waiting(serve: MakeClient) -> None:
    """The redo of a notice returns once it is accepted, with no answer."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    receipt = await client.submit_notify(NS, "p", "act", Act(add=2, gate="g"))
    scripted.gates["g"].open()
    await client.answer(receipt)
    scripted.gates["g"] = Gate()
    assert await client.redo(NS, "p", receipt.task_id) is None
    await scripted.gates["g"].entered()
    scripted.gates["g"].open()
    redo = await until(lambda: entry(client, receipt.task_id), lambda found: found.redone_by)
    assert await client.result(NS, "p", redo.redone_by or 0) == 4
    assert (await entry(client, redo.redone_by or 0)).task_type is TaskType.NOTIFY


async def test_many_who_redo_at_once_run_it_once(
    engine: MakeEngine, client: MakeClient, mode: dict[str, Any]
) -> None:
    """Clients that share nothing get the answer of one execution."""
    scripted = Scripted()
    running = await engine(scripted.namespace)
    await running.client.start(NS, "p", Act())
    assert await running.client.call(NS, "p", "act", Act(add=1)) == 1
    old = await last(running.client)
    clients = [running.client, await client(), await client(), await client()]
    assert await asyncio.gather(*(each.redo(NS, "p", old) for each in clients * 3)) == [2] * 12
    receipts = [await each.submit_redo(NS, "p", old) for each in clients]
    assert len({receipt.task_id for receipt in receipts}) == 1
    assert all(receipt.replayed for receipt in receipts)
    assert [kind for _, kind in scripted.ran] == ["init", "call", "call"]


async def test_only_calls_and_notices_are_run_again(serve: MakeClient) -> None:
    """An init, a repair and a timer have verbs of their own; a number of nothing is refused too."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=3600))
    await client.set_timer(NS, "p", after=timedelta(hours=1))
    with pytest.raises(HandlerFailed):
        await client.call(NS, "p", "act", Act(fail="oops"))
    await client.repair(NS, "p", Act())
    kinds = {(each.task_type.value, each.name): each.task_id for each in await client.trace(NS, "p")}
    for kind, task_id in kinds.items():
        if kind != ("call", "act"):
            with pytest.raises(InvalidRequest, match="only calls and notices") as wrong:
                await client.redo(NS, "p", task_id)
            assert wrong.value.field == "task_id", kind
    for bad in (0, -1, LAST_ID + 1, "7", True):
        with pytest.raises(InvalidRequest) as wrong:
            await client.redo(NS, "p", bad)  # type: ignore[arg-type] # the point of it
        assert wrong.value.field == "task_id"


async def test_a_task_of_nobody_of_another_or_of_an_earlier_life(serve: MakeClient) -> None:
    """It is not found; nothing is accepted in the life of now."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    for process_id in ("p", "q"):
        await client.start(NS, process_id, Act())
    await client.call(NS, "q", "act", Act())
    other = await last(client, "q")
    for task_id in (other, LAST_ID):
        with pytest.raises(TaskNotFound):
            await client.redo(NS, "p", task_id)
    with pytest.raises(ProcessNotFound):
        await client.redo(NS, "nobody", other)
    await client.call(NS, "p", "act", Act(add=1, remove=True), idempotency_key="end")
    ended = (
        await client.submit_call(NS, "p", "act", Act(add=1, remove=True), idempotency_key="end")
    ).task_id
    with pytest.raises(ProcessNotFound):
        await client.redo(NS, "p", ended)
    await client.start(NS, "p", Act())
    with pytest.raises(TaskNotFound):
        await client.redo(NS, "p", ended)
    with pytest.raises(RequestLost):
        await client.redo(NS, "q", other, fingerprint="A" * 16)
    assert [each.task_type for each in await client.trace(NS, "p")] == [TaskType.INIT]


async def test_a_redo_that_removes_its_process_answers_the_same_afterwards(serve: MakeClient) -> None:
    """Its answer is kept as that of any request which ended its process."""
    removal = Namespace("removal", state=int)

    @removal.init
    async def begin(process: Process[int]) -> None:
        process.state = 0

    @removal.call
    async def count(process: Process[int]) -> int:
        process.state += 1
        if process.state > 1:
            process.remove()
        return process.state

    client = await serve(removal)
    await client.start("removal", "p")
    assert await client.call("removal", "p", "count") == 1
    old = await last(client, namespace="removal")
    assert await client.redo("removal", "p", old) == 2
    assert await client.redo("removal", "p", old) == 2
    await client.start("removal", "p")
    assert await client.redo("removal", "p", old) == 2


async def test_callers_do_not_make_the_keys_of_redos(serve: MakeClient) -> None:
    """Every method that takes a key refuses one that begins as theirs."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    for ask in (
        client.start(NS, "p", Act(), idempotency_key="progressor:redo:1"),
        client.call(NS, "p", "act", Act(), idempotency_key="progressor:redo:1"),
        client.notify(NS, "p", "act", Act(), idempotency_key="progressor:x"),
        client.repair(NS, "p", Act(), idempotency_key="progressor:"),
        client.fire_timer(NS, "p", idempotency_key="progressor:redo:1"),
        client.repair_all(NS, Act(), idempotency_key="progressor:redo:1"),
    ):
        with pytest.raises(InvalidRequest, match="must not begin with") as wrong:
            await ask
        assert wrong.value.field == "idempotency_key"


async def test_a_redo_without_an_answer_in_time_names_no_key(serve: MakeClient) -> None:
    """It goes on, and another redo of the same task gets its answer."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    receipt = await client.submit_call(NS, "p", "act", Act(add=1, gate="g"))
    scripted.gates["g"].open()
    await client.answer(receipt)
    scripted.gates["g"] = Gate()
    with pytest.raises(ReplyTimeout) as late:
        await client.redo(NS, "p", receipt.task_id, timeout=2)
    assert late.value.idempotency_key is None
    assert "idempotency_key" not in str(late.value)
    scripted.gates["g"].open()
    assert await client.redo(NS, "p", receipt.task_id) == 2


async def test_from_code_without_an_event_loop(engine: MakeEngine, dsn: str, mode: Options) -> None:
    """SyncClient and its handles have it too."""
    scripted = Scripted()
    running = await engine(scripted.namespace)

    def ask() -> tuple[Any, Any, int]:
        with SyncClient(dsn, **of_a_client(mode)) as client:
            process = client.process(NS, "p")
            process.start({})
            process.call("act", {"add": 1})
            old = process.trace()[-1].task_id
            return client.redo(NS, "p", old), process.redo(old), process.submit_redo(old).task_id

    first, second, task_id = await asyncio.to_thread(ask)
    assert (first, second) == (2, 2)
    assert task_id == await last(running.client)
