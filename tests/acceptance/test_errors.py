"""Every error of the tree, as a caller of the public API meets it."""

import asyncio
from datetime import timedelta

import pytest

from progressor import (
    Client,
    Engine,
    HandlerFailed,
    IdempotencyConflict,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    NonRetryable,
    Process,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProcessNotFound,
    ProcessStatus,
    ProgressorError,
    Rejected,
    ReplyTimeout,
    SchemaMismatch,
    StorageUnavailable,
    SyncClient,
)
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, Act, Scripted

NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"


async def test_process_not_found(serve: MakeClient) -> None:
    """Whatever is asked of a process that is not there raises ProcessNotFound, with its name."""
    client = await serve(Scripted().namespace)
    asked = [
        client.call(NS, "gone", "act", Act()),
        client.notify(NS, "gone", "act", Act()),
        client.repair(NS, "gone", Act()),
        client.simple_repair(NS, "gone"),
        client.get(NS, "gone"),
        client.trace(NS, "gone"),
        client.remove(NS, "gone"),
    ]
    for asking in asked:
        with pytest.raises(ProcessNotFound, match=r"'bank\.account/gone'") as caught:
            await asking
        assert (caught.value.namespace, caught.value.process_id) == (NS, "gone")


async def test_process_already_exists(serve: MakeClient) -> None:
    """`start` and `put` of an id that is taken raise ProcessAlreadyExists and change nothing."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1))
    with pytest.raises(ProcessAlreadyExists):
        await client.start(NS, "p", Act(add=2))
    with pytest.raises(ProcessAlreadyExists):
        await client.put(NS, "p", state={"balance": 2})
    assert (await client.get(NS, "p")).state.balance == 1
    assert len(await client.trace(NS, "p")) == 1


async def test_process_broken_and_not_broken(serve: MakeClient) -> None:
    """A broken process takes repairs and no calls, one that is not broken takes calls and no repairs."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    for repairing in (client.repair(NS, "p", Act()), client.simple_repair(NS, "p")):
        with pytest.raises(ProcessNotBroken):
            await repairing
    with pytest.raises(HandlerFailed):
        await client.call(NS, "p", "act", Act(fail="why not"))
    for asking in (client.call(NS, "p", "act", Act()), client.notify(NS, "p", "act", Act())):
        with pytest.raises(ProcessBroken, match="why not") as caught:
            await asking
        assert caught.value.detail == "ValueError: why not"


async def test_namespace_not_found(serve: MakeClient) -> None:
    """A namespace that no worker ever served raises NamespaceNotFound, whatever is asked."""
    client = await serve(Scripted().namespace)
    asked = [
        client.start("no.such", "p", {}),
        client.call("no.such", "p", "act", {}),
        client.notify("no.such", "p", "act", {}),
        client.repair("no.such", "p", {}),
        client.simple_repair("no.such", "p"),
        client.get("no.such", "p"),
        client.put("no.such", "p"),
        client.trace("no.such", "p"),
        client.remove("no.such", "p"),
    ]
    for asking in asked:
        with pytest.raises(NamespaceNotFound, match=r"no\.such") as caught:
            await asking
        assert caught.value.namespace == "no.such"


async def test_unknown_namespaces_have_similar_ones(serve: MakeClient) -> None:
    """A name that is misspelt is answered with the one that was meant, whatever is asked."""
    client = await serve(Scripted().namespace)
    misspelt = NS[:-1] + "x"
    asked = [
        client.start(misspelt, "p", {}),
        client.get(misspelt, "p"),
        client.put(misspelt, "p"),
        client.pause(misspelt),
        client.retire(misspelt),
        client.published(misspelt),
        client.status(misspelt),
        client.errors(namespace=misspelt),
    ]
    for asking in asked:
        with pytest.raises(NamespaceNotFound, match=f"did you mean '{NS}'") as caught:
            await asking
        assert caught.value.similar == (NS,)
    with pytest.raises(InvalidRequest, match="status must be one of running, ") as refused:
        await client.search(status="runing")
    assert refused.value.field == "status"


async def test_idempotency_conflict(serve: MakeClient) -> None:
    """A key used again for another name, other arguments or another verb raises IdempotencyConflict."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(), idempotency_key="k")
    await client.call(NS, "p", "act", Act(add=1), idempotency_key="c")
    conflicting = [
        client.start(NS, "p", Act(add=1), idempotency_key="k"),
        client.call(NS, "p", "act", Act(add=2), idempotency_key="c"),
        client.call(NS, "p", "other", Act(add=1), idempotency_key="c"),
        client.notify(NS, "p", "act", Act(add=1), idempotency_key="c"),
    ]
    for asking in conflicting:
        with pytest.raises(IdempotencyConflict) as caught:
            await asking
        assert caught.value.field == "idempotency_key"
        assert caught.value.idempotency_key in {"k", "c"}
    assert (await client.get(NS, "p")).state.balance == 1


async def test_rejected_carries_reason_and_details(serve: MakeClient) -> None:
    """`raise Reject(reason, …)` in a handler reaches the caller as Rejected, with both."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=3))
    with pytest.raises(Rejected, match="too late") as caught:
        await client.call(NS, "p", "act", Act(reject="too late"))
    assert (caught.value.reason, caught.value.details) == ("too late", {"balance": 3})
    assert (caught.value.namespace, caught.value.process_id) == (NS, "p")


async def test_handler_failed_in_init_call_and_repair(serve: MakeClient) -> None:
    """Any other exception reaches the caller as HandlerFailed, with its type and text."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    asked = [
        client.start(NS, "q", Act(fail="in init")),
        client.call(NS, "p", "act", Act(fail="in call")),
        client.repair(NS, "p", Act(fail="in repair")),
    ]
    for asking, where in zip(asked, ("init", "call", "repair"), strict=True):
        with pytest.raises(HandlerFailed, match=f"ValueError: in {where}") as caught:
            await asking
        assert caught.value.error == f"ValueError: in {where}"
    assert (await client.get(NS, "q")).status is ProcessStatus.ERROR


async def test_reply_timeout_then_asking_again(serve: MakeClient) -> None:
    """ReplyTimeout names the key under which the same request, asked again, gets its answer."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    act = Act(add=5, gate="g")
    with pytest.raises(ReplyTimeout) as caught:
        await client.call(NS, "p", "act", act, timeout=2)
    key = caught.value.idempotency_key
    assert caught.value.task_id == (await client.trace(NS, "p"))[-1].task_id
    again = asyncio.create_task(client.call(NS, "p", "act", act, idempotency_key=key))
    scripted.gates["g"].open()
    assert await again == 5
    assert await client.call(NS, "p", "act", act, idempotency_key=key) == 5
    assert (await client.get(NS, "p")).state.balance == 5


async def test_each_caller_has_its_own_time(serve: MakeClient) -> None:
    """Callers of many timeouts end in the order of these, whoever asked first, and the others go on."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act())
    ended: list[float] = []

    async def ask(seconds: float) -> None:
        with pytest.raises(ReplyTimeout):
            await client.call(NS, "p", "act", Act(gate="g"), timeout=seconds)
        ended.append(seconds)

    patient = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, gate="g")))
    await asyncio.gather(*map(ask, (2.0, 1.0, 1.5, 1.0)))
    assert ended == [1.0, 1.0, 1.5, 2.0]
    scripted.gates["g"].open()
    assert await patient == 1


async def test_a_caller_with_an_answer_leaves_no_timer(
    serve: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many timeouts callers choose, the loop keeps none of them."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_at = loop.call_at

    def noted(when: float, *args: object, **options: object) -> asyncio.TimerHandle:
        timer = call_at(when, *args, **options)  # type: ignore[arg-type]
        if when > loop.time() + 5000:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_at", noted)
    for number in range(20):
        await client.call(NS, "p", "act", Act(add=1), timeout=6000 + number)
    assert len(timers) == 20
    assert all(timer.cancelled() for timer in timers)


async def test_reply_timeout_where_no_worker_serves(engine: MakeEngine, client: MakeClient) -> None:
    """It says that, and how many requests wait before it."""
    scripted = Scripted()
    running = await engine(scripted.namespace)
    await running.client.start(NS, "p", Act())
    await running.stop()
    outside = await client()
    await outside.notify(NS, "p", "act", Act())
    with pytest.raises(ReplyTimeout, match=f"no live worker serves namespace '{NS}'") as late:
        await outside.call(NS, "p", "act", Act(), timeout=2)
    assert (late.value.served, late.value.requests_before, late.value.paused) == (False, 1, False)
    assert str(late.value).endswith("; requests that wait before it: 1")


async def test_get_gives_up_waiting_for_an_init(serve: MakeClient) -> None:
    """`get(timeout=…)` of a process whose init does not end in time raises ReplyTimeout."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    starting = asyncio.create_task(client.start(NS, "p", Act(gate="g")))
    await scripted.gates["g"].entered()
    with pytest.raises(ReplyTimeout):
        await client.get(NS, "p", timeout=2)
    scripted.gates["g"].open()
    await starting


async def test_storage_unavailable_at_start(mode: Options) -> None:
    """Where no PostgreSQL answers, engine and client say StorageUnavailable when they start."""
    with pytest.raises(StorageUnavailable):
        async with Client(NOWHERE):
            pass
    with pytest.raises(StorageUnavailable):
        async with Engine(NOWHERE, [Scripted().namespace], **mode):
            pass


def test_storage_unavailable_for_the_sync_client() -> None:
    """The blocking client says StorageUnavailable at its first use."""
    with pytest.raises(StorageUnavailable):
        SyncClient(NOWHERE).get(NS, "p")


async def test_schema_mismatch_of_an_empty_database(empty_dsn: str, mode: Options) -> None:
    """On a database without our tables, engine and client refuse to start and say what to run."""
    with pytest.raises(SchemaMismatch, match="progressor migrate"):
        async with Client(empty_dsn):
            pass
    with pytest.raises(SchemaMismatch, match="progressor migrate"):
        async with Engine(empty_dsn, [Scripted().namespace], **mode):
            pass


async def test_unknown_call_and_bad_arguments_leave_the_process_alone(serve: MakeClient) -> None:
    """An unknown call name and arguments that do not fit are InvalidRequest; the process lives on."""
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act(add=1, after=3600))
    wrong = [
        (client.call(NS, "p", "nope", Act()), "name", "no call named 'nope'"),
        (client.call(NS, "p", "act", {"add": "many"}), "args.add", "args.add"),
        (client.call(NS, "p", "act", [1]), "args", "args"),
        (client.start(NS, "q", {"add": []}), "args.add", "args.add"),
    ]
    for asking, field, text in wrong:
        with pytest.raises(InvalidRequest, match=text) as caught:
            await asking
        assert caught.value.field == field
    assert await client.call(NS, "p", "act", Act(add=1)) == 2
    with pytest.raises(ProcessNotFound):
        await client.get(NS, "q")


async def test_missing_handlers(serve: MakeClient) -> None:
    """start and repair without a handler are InvalidRequest; a timer without one cannot be set."""
    bare = Namespace("bare")

    @bare.call
    async def arm(process: Process) -> None:
        process.set_timer(after=timedelta(0))

    once = Namespace("once", retry_policy={"max_attempts": 1})
    once.call(arm)
    client = await serve(bare, once)
    with pytest.raises(InvalidRequest, match="no init handler"):
        await client.start("bare", "p")
    await client.put("once", "p")
    with pytest.raises(HandlerFailed, match="no timeout handler"):
        await client.call("once", "p", "arm")
    assert "no timeout handler" in ((await client.get("once", "p")).detail or "")
    with pytest.raises(InvalidRequest, match="no repair handler"):
        await client.repair("once", "p")
    with pytest.raises(InvalidRequest, match="once has no repair handler: repair simply"):
        await client.repair_all("once")


def test_the_tree() -> None:
    """One `except ProgressorError` catches every error a caller can meet, and no handler's own."""
    errors = [
        ProcessNotFound, ProcessAlreadyExists, ProcessBroken, ProcessNotBroken, NamespaceNotFound,
        IdempotencyConflict, Rejected, HandlerFailed, ReplyTimeout, InvalidRequest, StorageUnavailable,
        SchemaMismatch,
    ]  # fmt: skip
    assert all(issubclass(error, ProgressorError) for error in errors)
    assert issubclass(IdempotencyConflict, InvalidRequest)
    assert not issubclass(NonRetryable, ProgressorError)
