"""Dry runs of a repair: the handler runs, its process stays as it is, and what it would do is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from progressor import (
    Client,
    DryRun,
    Engine,
    HandlerFailed,
    IdempotencyConflict,
    InvalidRequest,
    Message,
    Namespace,
    Process,
    ProcessNotBroken,
    ProcessNotFound,
    Reject,
    Rejected,
    RepairConflict,
    Task,
)
from progressor.client.dispatch import dispatcher
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import until_status
from tests.support import Tables

NS = "orders"
DUE = datetime(2040, 1, 31, 9, tzinfo=UTC)


class Order(BaseModel):
    """The state of an order."""

    total: int = 0


class Mend(BaseModel):
    """What a repair is told to do."""

    total: int = 7
    ending: str = "answer"


class Shop:
    """A namespace of orders whose repair handler takes dry runs, and what it did outside."""

    def __init__(self, *, dry_run: bool = True, **options: Any) -> None:
        self.charged: list[str] = []
        self.namespace = Namespace(NS, state=Order, **options)
        self._decorate(self.namespace, dry_run)

    def _decorate(self, orders: Namespace[Order], dry_run: bool) -> None:
        @orders.init
        async def place(process: Process[Order], total: int) -> None:
            process.state = Order(total=total)
            process.metadata["plan"] = "pro"
            process.set_timer("dunning", at=DUE)

        @orders.call
        async def pay(process: Process[Order]) -> None:
            raise ValueError("the gateway is down")

        @orders.timeout
        async def remind(process: Process[Order]) -> None:
            process.emit("reminded")

        @orders.repair(dry_run=dry_run)
        async def mend(process: Process[Order], wanted: Mend) -> int:
            process.state.total = wanted.total
            process.metadata["mended"] = True
            process.emit("mended", total=wanted.total)
            process.set_timer(at=DUE + timedelta(days=1))
            process.send(NS, "other", "pay")
            if not process.task.is_dry_run:
                self.charged.append(process.process_id)
            if wanted.ending == "fail":
                raise ValueError("no luck")
            if wanted.ending == "reject":
                raise Reject("not mine")
            if wanted.ending == "remove":
                process.remove()
            return wanted.total


async def broken(client: Client, process_id: str = "o1") -> None:
    """Start an order, and have it break."""
    await client.start(NS, process_id, 3)
    with pytest.raises(HandlerFailed):
        await client.call(NS, process_id, "pay")
    await until_status(client, process_id, "error", namespace=NS)


async def test_it_shows_what_a_repair_would_do_and_changes_nothing(serve: MakeClient) -> None:
    """The answer, state, metadata, events, timers and messages of the repair that follows."""
    shop = Shop()
    client = await serve(shop.namespace)
    await broken(client)
    before = await client.get(NS, "o1")
    run = await client.dry_run_repair(NS, "o1", Mend())
    assert isinstance(run, DryRun)
    assert (run.answer, run.state, run.removed, run.begins_anew) == (7, {"total": 7}, False, False)
    assert run.metadata == {"plan": "pro", "mended": True}
    assert [(each.name, each.payload) for each in run.events] == [("mended", {"total": 7})]
    assert {name: each.at for name, each in run.timers.items()} == {
        "dunning": DUE,
        "": DUE + timedelta(days=1),
    }
    assert [(each.process_id, each.name) for each in run.messages] == [("other", "pay")]
    assert (await client.get(NS, "o1")).snapshot == before.snapshot
    assert shop.charged == []
    assert await client.repair(NS, "o1", Mend()) == 7
    after = await client.get(NS, "o1")
    assert (after.state, after.metadata) == (Order.model_validate(run.state), run.metadata)
    assert {name: timer.due for name, timer in after.timers.items()} == {
        name: each.at for name, each in run.timers.items()
    }
    assert [each.payload for each in after.history] == [each.payload for each in run.events]
    assert shop.charged == ["o1"]


async def test_its_trace_names_it_with_its_arguments(serve: MakeClient) -> None:
    """The trace tells it from a repair, and shows its arguments and its answer as values."""
    client = await serve(Shop().namespace)
    await broken(client)
    await client.dry_run_repair(NS, "o1", Mend(total=9))
    entry = (await client.trace(NS, "o1"))[-1]
    assert (entry.task_type, entry.name, entry.status) == ("repair", "dry_run", "finished")
    assert entry.args == {"total": 9, "ending": "answer"}
    assert DryRun.of(entry.response).answer == 9


@pytest.mark.parametrize("ending", ["fail", "reject", "remove"])
async def test_a_repair_that_would_end_otherwise(serve: MakeClient, ending: str) -> None:
    """One that fails or refuses raises the repair's error; one that removes its process says so."""
    client = await serve(Shop().namespace)
    await broken(client)
    before = await client.get(NS, "o1")
    match ending:
        case "fail":
            with pytest.raises(HandlerFailed, match="no luck"):
                await client.dry_run_repair(NS, "o1", Mend(ending=ending))
        case "reject":
            with pytest.raises(Rejected, match="not mine"):
                await client.dry_run_repair(NS, "o1", Mend(ending=ending))
        case _:
            run = await client.dry_run_repair(NS, "o1", Mend(ending=ending))
            assert (run.removed, run.timers) == (True, {})
    assert (await client.get(NS, "o1")).snapshot == before.snapshot


async def test_one_key_is_one_dry_run_and_no_repair(serve: MakeClient) -> None:
    """A repeated dry run answers as the first did; its key is taken for a repair."""
    client = await serve(Shop().namespace)
    await broken(client)
    first = await client.dry_run_repair(NS, "o1", Mend(), idempotency_key="k")
    assert await client.dry_run_repair(NS, "o1", Mend(), idempotency_key="k") == first
    assert len([each for each in await client.trace(NS, "o1") if each.name == "dry_run"]) == 1
    with pytest.raises(IdempotencyConflict):
        await client.repair(NS, "o1", Mend(), idempotency_key="k")


async def test_a_handler_that_does_not_take_dry_runs(serve: MakeClient) -> None:
    """Its dry run is refused before it is accepted, whatever else it could do."""
    shop = Shop(dry_run=False)
    client = await serve(shop.namespace)
    await broken(client)
    tasks = await client.trace(NS, "o1")
    with pytest.raises(InvalidRequest, match="takes no dry runs"):
        await client.dry_run_repair(NS, "o1", Mend())
    assert (await client.trace(NS, "o1"), shop.charged) == (tasks, [])


async def test_a_worker_that_knows_no_dry_runs_refuses_one(
    serve: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of an older release, which takes it for a repair, cannot read its arguments."""
    shop = Shop(dry_run=False)

    async def accepts(*_: object) -> None:
        """Accept a dry run that its namespace does not publish, as it did a moment ago."""

    monkeypatch.setattr(dispatcher, "require_dry_runs", accepts)
    monkeypatch.setattr(Task, "is_dry_run", False)
    client = await serve(shop.namespace)
    await broken(client)
    before = await client.get(NS, "o1")
    with pytest.raises(InvalidRequest, match="args"):
        await client.dry_run_repair(NS, "o1", Mend())
    assert (await client.get(NS, "o1")).snapshot == before.snapshot
    assert shop.charged == []


async def test_only_broken_processes_have_one(serve: MakeClient) -> None:
    """A process that lives or that is not there raises what a repair raises; so do wrong arguments."""
    client = await serve(Shop().namespace)
    with pytest.raises(ProcessNotFound):
        await client.dry_run_repair(NS, "none", Mend())
    await client.start(NS, "lives", 1)
    with pytest.raises(ProcessNotBroken):
        await client.dry_run_repair(NS, "lives", Mend())
    await broken(client)
    with pytest.raises(InvalidRequest, match=r"args\.total"):
        await client.dry_run_repair(NS, "o1", {"total": "many"})


async def test_rows_of_the_handler_are_rolled_back(serve: MakeClient, dsn: str) -> None:
    """A handler with a connection of its own writes rows, and a dry run leaves none of them."""
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("CREATE TABLE mends (process_id text)")
    orders = Namespace(NS, state=Order)

    @orders.init
    async def place(process: Process[Order]) -> None:
        process.state = Order()
        raise ValueError("broken from the begin")

    @orders.repair(dry_run=True)
    async def mend(process: Process[Order], *, connection: psycopg.AsyncConnection) -> str:
        await connection.execute("INSERT INTO mends VALUES (%s)", [process.process_id])
        process.state = Order(total=1)
        return "mended"

    client = await serve(orders)
    with pytest.raises(HandlerFailed):
        await client.start(NS, "o1")
    run = await client.dry_run_repair(NS, "o1")
    assert (run.answer, run.state, run.begins_anew) == ("mended", {"total": 1}, True)
    with psycopg.connect(dsn) as own:
        assert own.execute("SELECT count(*) FROM mends").fetchone() == (0,)
    await client.repair(NS, "o1")
    with psycopg.connect(dsn) as own:
        assert own.execute("SELECT count(*) FROM mends").fetchone() == (1,)


async def test_one_that_would_wait_keeps_no_repair_away(serve: MakeClient) -> None:
    """It is refused in a paused namespace, and where no live worker serves repairs."""
    client = await serve(Shop().namespace)
    await broken(client)
    await client.pause(NS)
    with pytest.raises(RepairConflict, match="is paused: a dry run would wait"):
        await client.dry_run_repair(NS, "o1", Mend())
    await client.resume(NS)
    await client.simple_repair(NS, "o1")


async def test_one_without_a_worker(dsn: str, tables: Tables) -> None:
    """It is refused, and the process can be repaired without one."""
    async with Engine(dsn, [Shop().namespace]) as engine:
        await broken(engine.client)
    async with Client(dsn) as client:
        with pytest.raises(RepairConflict, match="no live worker that serves repairs"):
            await client.dry_run_repair(NS, "o1", Mend())
        await client.simple_repair(NS, "o1")


Doing = Callable[[Process[Order]], object]


def _many_events(process: Process[Order]) -> None:
    for number in range(10_001):
        process.emit("one", number=number)


def _many_messages(process: Process[Order]) -> None:
    for number in range(101):
        process.send(NS, f"o{number}", "pay")


def _large(process: Process[Order]) -> None:
    process.metadata["note"] = "x" * 10
    process.emit("large", text="x" * 5_000_000)
    process.emit("large", text="y" * 5_000_000)


@pytest.mark.parametrize(
    ("doing", "said"),
    [(_many_events, "max_step_events"), (_many_messages, "at most 100 messages")],
)
async def test_it_has_the_limits_of_the_repair(serve: MakeClient, doing: Doing, said: str) -> None:
    """What the repair could not save fails its dry run with the same error."""
    client = await serve(_mended_by(doing))
    await broken(client)
    for asked in (client.dry_run_repair(NS, "o1"), client.repair(NS, "o1")):
        with pytest.raises(HandlerFailed, match=said):
            await asked


async def test_one_that_shows_too_much_says_so(serve: MakeClient) -> None:
    """It blames its own size, for the repair succeeds."""
    client = await serve(_mended_by(_large))
    await broken(client)
    with pytest.raises(HandlerFailed, match=r"what this dry run shows has .* the repair itself is within"):
        await client.dry_run_repair(NS, "o1")
    await client.repair(NS, "o1")


class _Sealing:
    """A codec whose values cannot be read any more once `is_lost`."""

    is_lost = False

    def encode(self, plain: bytes) -> bytes:
        return plain

    def decode(self, stored: bytes) -> bytes:
        if self.is_lost and b"total" in stored:
            raise ValueError("the key is lost")
        return stored


async def test_a_state_that_cannot_be_read(serve: MakeClient) -> None:
    """The dry run fails, though its handler does not read the state; the process takes its repair."""
    codec = _Sealing()
    client = await serve(_mended_by(lambda _: None, codec=codec))
    await broken(client)
    codec.is_lost = True
    with pytest.raises(HandlerFailed, match="key is lost"):
        await client.dry_run_repair(NS, "o1")
    codec.is_lost = False
    await client.repair(NS, "o1")


def _mended_by(doing: Doing, **options: Any) -> Namespace[Order]:
    orders = Namespace(NS, state=Order, **options)

    @orders.init
    async def place(process: Process[Order], total: int) -> None:
        process.state = Order(total=total)

    @orders.call
    async def pay(process: Process[Order]) -> None:
        raise ValueError("the gateway is down")

    @orders.repair(dry_run=True)
    async def mend(process: Process[Order]) -> bytes:
        doing(process)
        return b"\xff\xfe"

    return orders


async def test_bytes_that_are_no_text(serve: MakeClient) -> None:
    """An answer in bytes is shown in base64."""
    client = await serve(_mended_by(lambda _: None))
    await broken(client)
    assert (await client.dry_run_repair(NS, "o1")).answer == "__4="


def test_a_document_of_a_later_release() -> None:
    """What it has besides is left out."""
    run = DryRun(None, {}, {}, (), {}, (Message(NS, "o1", "pay"),), removed=False)
    document = run.document | {"later": 1}
    document["messages"] = [each | {"later": 1} for each in document["messages"]]
    assert DryRun.of(document) == run
