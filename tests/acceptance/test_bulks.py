"""repair_all: from the client to the last process, with engines that come and go."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from progressor import (
    Bulk,
    BulkNotFound,
    BulkStatus,
    Client,
    HandlerFailed,
    IdempotencyConflict,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    NonRetryable,
    Process,
    ProcessStatus,
    SyncClient,
    TaskStatus,
)
from progressor.client.handle import ProcessHandle
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Flaky, Gate, Scripted, until


async def break_all(client: Client, names: list[str], fail: str = "gateway is down") -> None:
    for name in names:
        await client.start(NS, name, Act(add=1))
        with pytest.raises(HandlerFailed):
            await client.call(NS, name, "act", Act(fail=fail))


async def ended(client: Client, bulk: Bulk) -> Bulk:
    return await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.status.is_final)


async def statuses(client: Client) -> dict[str, ProcessStatus]:
    return {process.process_id: process.status for process in (await client.search(namespace=NS)).items}


def repairs(scripted: Scripted) -> list[str]:
    return sorted(name for name, kind in scripted.ran if kind == "repair")


NAMES = [f"p{n}" for n in range(5)]


async def test_all_that_match_are_repaired(serve: MakeClient) -> None:
    """The repair handler of each gets the arguments, once; what does not match stays broken."""
    scripted = Scripted()
    client = await serve(scripted.namespace)
    await break_all(client, NAMES)
    await break_all(client, ["other"], fail="a bug")
    preview = await client.preview_repair_all(NS, detail_like="%gateway%", handler="act")
    assert (preview.processes, preview.looked_at) == (5, 6)
    bulk = await client.repair_all(NS, Act(add=10), detail_like="%gateway%", handler="act", rate=1000)
    done = await ended(client, bulk)
    assert (done.status, done.begun, done.repaired, done.left) == (BulkStatus.FINISHED, 5, 5, 0)
    assert repairs(scripted) == NAMES
    asked = [(await client.trace(NS, name))[-1].args["add"] for name in NAMES]
    assert asked == [10] * 5
    assert (await statuses(client))["other"] is ProcessStatus.ERROR
    assert [each.bulk_id for each in await client.bulks()] == [bulk.bulk_id]


@pytest.mark.parametrize("simple", [False, True], ids=["handler", "simple"])
async def test_requests_that_broke_are_run_again(serve: MakeClient, simple: bool) -> None:
    """Once each, after its repair, with its own arguments; and linked in the trace."""
    flaky = Flaky()
    client = await serve(flaky.namespace)
    for place, name in enumerate(NAMES):
        await client.start("flaky", name)
        with pytest.raises(HandlerFailed):
            await client.call("flaky", name, "add", place)
    broke = [(await client.get("flaky", name)).corrupted_by for name in NAMES]
    flaky.is_mended = True
    done = await ended(client, await client.repair_all("flaky", simple=simple, redo=True, rate=1000))
    assert (done.redo, done.repaired, done.redone, done.last_error) == (True, 5, 5, None)
    for place, name in enumerate(NAMES):
        (redo,) = [each for each in await client.trace("flaky", name) if each.redoes is not None]
        assert (redo.redoes, redo.args) == (broke[place], place)
        assert await client.result("flaky", name, redo.task_id) == place
    assert len(flaky.ran) == 2 * len(NAMES)
    assert (await client.search(namespace="flaky", status="error")).items == []


async def test_requests_that_were_cancelled_are_run_again(serve: MakeClient) -> None:
    """Notices behind the one that broke their process are not lost: they run after it, in their order."""
    flaky = Flaky()
    client = await serve(flaky.namespace)
    for name in NAMES:
        await client.start("flaky", name)
    await client.pause("flaky")
    for name in NAMES:
        for place in range(3):
            await client.notify("flaky", name, "add", place, idempotency_key=f"event-{place}")
    await client.resume("flaky")
    for name in NAMES:
        await until(partial(client.get, "flaky", name), lambda found: found.status is ProcessStatus.ERROR)
    flaky.is_mended = True
    done = await ended(client, await client.repair_all("flaky", simple=True, redo=True, rate=1000))
    assert (done.repaired, done.redone, done.last_error) == (5, 15, None)
    for name in NAMES:
        redone = [each for each in await client.trace("flaky", name) if each.redoes is not None]
        assert [each.args for each in redone] == [0, 1, 2]
        for each in redone:
            await client.result("flaky", name, each.task_id)


class LateTimer:
    """A namespace whose timer breaks its process, behind which requests wait; repairs may be tried dry."""

    def __init__(self) -> None:
        self.namespace = Namespace("late", state=list)
        self.goes_on = asyncio.Event()

        @self.namespace.init
        async def begin(process: Process[list[int]]) -> None:
            process.state = []
            process.set_timer(after=timedelta(0))

        @self.namespace.timeout
        async def fire(process: Process[list[int]]) -> None:
            if not self.goes_on.is_set():
                await self.goes_on.wait()
                raise NonRetryable("gateway is down")
            process.state.append(0)

        @self.namespace.call
        async def pay(process: Process[list[int]], amount: int) -> None:
            process.state.append(amount)

        @self.namespace.repair(dry_run=True)
        async def mend(process: Process[list[int]], fails: bool = False) -> None:
            if fails:
                raise ValueError("a bug in the repair")


@pytest.mark.parametrize("tried", ["nothing", "dry run", "failed repair"])
async def test_what_a_timer_cancelled_is_run_again(serve: MakeClient, tried: str) -> None:
    """Behind the timer, in its order, whether or not a repair was tried before that mended nothing."""
    late = LateTimer()
    client = await serve(late.namespace)
    await client.start("late", "p")
    await until(lambda: client.trace("late", "p"), lambda trace: trace[-1].status is TaskStatus.RUNNING)
    for amount in (1, 2):
        await client.notify("late", "p", "pay", amount)
    late.goes_on.set()
    await until(partial(client.get, "late", "p"), lambda found: found.status is ProcessStatus.ERROR)
    if tried == "dry run":
        await client.dry_run_repair("late", "p")
    elif tried == "failed repair":
        with pytest.raises(HandlerFailed):
            await client.repair("late", "p", True)
    done = await ended(client, await client.repair_all("late", redo=True, rate=1000))
    assert (done.repaired, done.redone, done.last_error) == (1, 2, None)
    found = await until(partial(client.get, "late", "p"), lambda found: len(found.state) == 3)
    assert [each for each in found.state if each] == [1, 2]


@pytest.mark.parametrize("simple", [False, True], ids=["handler", "simple"])
async def test_a_dry_run_keeps_no_bulk_away(serve: MakeClient, simple: bool) -> None:
    """It waits for the end of the dry run, and repairs that process too."""
    tried, gate = Namespace("tried", state=int), Gate()

    @tried.init
    async def begin(process: Process[int]) -> None:
        process.state = 0

    @tried.call
    async def boom(process: Process[int]) -> None:
        raise ValueError("a bug")

    @tried.repair(dry_run=True)
    async def mend(process: Process[int]) -> None:
        if process.task.is_dry_run:
            await gate.pass_through()
        process.state += 1

    client = await serve(tried)
    for name in NAMES:
        await client.start("tried", name)
        with pytest.raises(HandlerFailed):
            await client.call("tried", name, "boom")
    trying = asyncio.create_task(client.process("tried", NAMES[2]).dry_run_repair())
    await gate.entered()
    bulk = await client.repair_all("tried", simple=simple, rate=1000)
    waits = await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.repaired == 2)
    assert (waits.status, waits.begun, waits.left) == (BulkStatus.RUNNING, 2, 3)
    gate.open()
    assert (await trying).state == 1
    done = await ended(client, bulk)
    assert (done.looked_at, done.repaired, done.passed_by) == (5, 5, 0)


async def test_what_a_handler_says_is_counted(serve: MakeClient) -> None:
    """Refused and failed repairs leave their processes broken, and are told."""
    client = await serve(Scripted().namespace)
    await break_all(client, ["a"])
    refused = await ended(client, await client.repair_all(NS, Act(reject="not now")))
    assert (refused.refused, refused.last_error) == (1, "a: rejected: not now")
    failed = await ended(client, await client.repair_all(NS, Act(fail="no")))
    assert (failed.failed, failed.last_error) == (1, "a: ValueError: no")
    assert await statuses(client) == {"a": ProcessStatus.ERROR}


async def test_engines_that_stop_and_start(engine: MakeEngine, dsn: str) -> None:
    """A bulk goes on in the next engine, where it was; nothing is repaired twice."""
    scripted = Scripted()
    first = await engine(scripted.namespace)
    await break_all(first.client, NAMES)
    bulk = await first.client.repair_all(NS, Act(add=1), rate=5)
    await until(lambda: first.client.bulk(bulk.bulk_id), lambda found: found.begun)
    await first.stop()
    async with Client(dsn) as client:
        between = await client.bulk(bulk.bulk_id)
        assert between.status is BulkStatus.RUNNING
        await engine(scripted.namespace)
        done = await ended(client, bulk)
    assert (done.status, done.repaired) == (BulkStatus.FINISHED, 5)
    assert repairs(scripted) == NAMES


async def test_two_engines_share_the_work(engine: MakeEngine) -> None:
    """However many run bulks, each process is repaired once."""
    scripted = Scripted()
    one = await engine(scripted.namespace)
    await engine(scripted.namespace)
    await break_all(one.client, NAMES)
    made = await asyncio.gather(*(one.client.repair_all(NS, Act(add=1), rate=1000) for _ in range(3)))
    done = [await ended(one.client, bulk) for bulk in made]
    assert sum(bulk.repaired for bulk in done) == 5
    assert repairs(scripted) == NAMES


async def test_stopping(serve: MakeClient) -> None:
    """What it has not begun stays broken."""
    client = await serve(Scripted().namespace)
    await break_all(client, NAMES)
    bulk = await client.repair_all(NS, simple=True, rate=1 / 3600)
    await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.begun)
    stopped = await client.stop_bulk(bulk.bulk_id)
    assert (stopped.status, stopped.begun, stopped.repaired) == (BulkStatus.STOPPED, 1, 1)
    found = list((await statuses(client)).values())
    assert found.count(ProcessStatus.ERROR) == 4


async def test_nothing_runs_bulks_where_no_zombies_are_collected(engine: MakeEngine) -> None:
    """An engine without a zombie collector leaves bulks alone; keys make one bulk."""
    scripted = Scripted()
    running = await engine(scripted.namespace, zombie_collector=False)
    await break_all(running.client, ["a"])
    bulk = await running.client.repair_all(NS, simple=True, idempotency_key="tonight")
    again = await running.client.repair_all(NS, simple=True, idempotency_key="tonight")
    assert again.bulk_id == bulk.bulk_id
    with pytest.raises(IdempotencyConflict, match="for another bulk") as caught:
        await running.client.repair_all(NS, simple=True, handler="act", idempotency_key="tonight")
    assert (caught.value.field, caught.value.process_id) == ("idempotency_key", None)
    assert (await running.client.bulk(bulk.bulk_id)).left == 1
    await engine(scripted.namespace)
    assert (await ended(running.client, bulk)).repaired == 1


async def test_what_is_refused(serve: MakeClient) -> None:
    """By the field's name, before anything is written."""
    client = await serve(Scripted().namespace)
    wrong = {
        "rate": (0, 0.0001, 1001, float("nan"), "50", True),
        "detail_like": ("", "x\0", "x\\", 5),
        "handler": ("", "\0"),
        "idempotency_key": ("",),
    }
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidRequest) as caught:
                await client.repair_all(NS, **{field: value})
            assert caught.value.field == field
    with pytest.raises(InvalidRequest) as caught:
        await client.repair_all(NS, Act(), simple=True)
    assert caught.value.field == "args"
    with pytest.raises(NamespaceNotFound):
        await client.repair_all("no.such", simple=True)
    with pytest.raises(NamespaceNotFound):
        await client.preview_repair_all("no.such")
    assert await client.bulks() == []
    with pytest.raises(BulkNotFound):
        await client.bulk(1)
    with pytest.raises(BulkNotFound):
        await client.stop_bulk(1)
    assert not hasattr(ProcessHandle, "repair_all")


async def test_without_await(serve: MakeClient, dsn: str) -> None:
    """SyncClient has the same methods."""
    client = await serve(Scripted().namespace)
    await break_all(client, ["a"])

    def ask() -> tuple[Bulk, int]:
        with SyncClient(dsn) as blocking:
            made = blocking.repair_all(NS, simple=True, rate=90 / timedelta(minutes=1).total_seconds())
            return blocking.bulk(made.bulk_id), len(blocking.bulks())

    bulk, many = await asyncio.to_thread(ask)
    assert (bulk.rate, many) == (1.5, 1)
    assert (await ended(client, bulk)).repaired == 1
