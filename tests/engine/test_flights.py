"""What may come between a fused request and its commit: callers who go, stops, losses, other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor import Client, Engine, HandlerFailed, Namespace, Process, StorageUnavailable
from progressor.storage import Prepared, Request
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from tests.engine.test_fusing import Served
from tests.support import NS, Tables, check_invariants, eventually

pytestmark = pytest.mark.filterwarnings("error")


class Gate:
    """Stands before a message of a flight: the look, the commit, or the preparing after a doubt."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.opened.set()

    def shut(self) -> None:
        self.reached.clear()
        self.opened.clear()

    async def come(self) -> None:
        """Return once somebody stands before it."""
        async with asyncio.timeout(30):
            await self.reached.wait()

    async def passed(self) -> None:
        self.reached.set()
        await self.opened.wait()


class Way:
    """The way of a flight, with gates on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates = {name: Gate() for name in ("the look", "the commit", "the preparing")}
        self.refused = self.lost = 0
        begin, commit, prepare = Session.begin, Session.commit, Storage.prepare_call

        async def gated_begin(session: Session, statements: Transaction) -> Results:
            if "fused_look" in statements:
                await self.gates["the look"].passed()
            return await begin(session, statements)

        async def gated_commit(
            session: Session, statements: Transaction, hints: Hints | None = None
        ) -> Results:
            await self.gates["the commit"].passed()
            if self.refused:
                self.refused -= 1
                # PostgreSQL never gets it.
                await session.close()
                raise psycopg.OperationalError("the connection was lost before COMMIT")
            told = await commit(session, statements, hints)
            if self.lost:
                self.lost -= 1
                await session.close()
                raise psycopg.OperationalError("the connection was lost at COMMIT")
            return told

        async def gated_prepare(
            storage: Storage, requests: Sequence[Request], **options: Any
        ) -> list[Prepared]:
            # Whoever has a worker is the flight.
            if any(request.worker_id is not None for request in requests):
                await self.gates["the preparing"].passed()
            return await prepare(storage, requests, **options)

        monkeypatch.setattr(Session, "begin", gated_begin)
        monkeypatch.setattr(Session, "commit", gated_commit)
        monkeypatch.setattr(Storage, "prepare_call", gated_prepare)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(monkeypatch)


@pytest.fixture
async def served(dsn: str, way: Way) -> AsyncIterator[Served]:
    """Built when the gates are there."""
    served = Served(dsn)
    async with served.engine:
        await served.start("p1")
        yield served
        served.gate.set()
        await served.all_slots_are_free()
    check_invariants(dsn)


# A caller who gives up.


@pytest.mark.parametrize("name", ["add", "wait"])
@pytest.mark.parametrize("where", ["the look", "the handler", "the commit", "after it"])
async def test_a_caller_who_gives_up(
    served: Served, way: Way, tables: Tables, name: str, where: str
) -> None:
    """What had left is done, once, and whoever asks again with its key gets the answer."""
    gate = way.gates.get(where, Gate())
    if where in way.gates:
        gate.shut()
    asked = asyncio.create_task(served.call(name, idempotency_key="key"))
    if where == "the handler":
        served.act = lambda _: asked.cancel()
    if where in way.gates:
        await gate.come()
    elif name == "wait":
        await eventually(lambda: served.begun, "it has begun")
    else:
        await asyncio.wait({asked})
    asked.cancel()
    await asyncio.wait({asked})
    served.act = lambda _: None
    gate.opened.set()
    served.gate.set()
    await served.all_slots_are_free()
    assert [row["status"] for row in tables.tasks()] == ["finished", "finished"]
    assert await served.call(name, idempotency_key="key") == 1
    assert served.begun == ["p1"]


async def test_a_caller_who_gives_up_before_it_leaves(served: Served, way: Way, tables: Tables) -> None:
    """What waited for others to land is never sent."""
    looks = way.gates["the look"]
    others = []
    for process_id in ("p2", "p3"):
        await served.engine.client.start(NS, process_id)
        looks.shut()
        others.append(asyncio.create_task(served.call("add", process_id)))
        await looks.come()
    asked = asyncio.create_task(served.call("add"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait({asked})
    looks.opened.set()
    assert await asyncio.gather(*others) == [1, 1]
    assert await served.call("add", "p2") == 2
    assert sorted(served.begun) == ["p2", "p2", "p3"]
    assert len(tables.tasks()) == 1


# The stop.


@pytest.mark.parametrize("name", ["add", "wait"])
@pytest.mark.parametrize("where", ["the look", "the commit"])
async def test_a_stop_waits_for_a_flight(dsn: str, way: Way, where: str, name: str) -> None:
    """It has a slot: it is let through, with what goes on after it."""
    served = Served(dsn)
    async with served.engine:
        await served.start("p1")
        way.gates[where].shut()
        asked = asyncio.create_task(served.call(name))
        await way.gates[where].come()
        stopping = asyncio.create_task(served.engine.stop())
        await eventually(lambda: not served.pool.is_open, "the stop has begun")
        way.gates[where].opened.set()
        served.gate.set()
        assert await asked == 1
        await stopping
    assert served.begun == ["p1"]
    check_invariants(dsn)


@pytest.mark.parametrize("name", ["add", "wait"])
@pytest.mark.parametrize("where", ["the look", "the commit"])
async def test_a_stop_that_gives_a_flight_up(
    dsn: str, tables: Tables, way: Way, where: str, name: str
) -> None:
    """Nothing of it is committed, its caller is told to ask again, and no slot or handler is left."""
    served = Served(dsn, stop_grace=timedelta(seconds=0.1))
    async with served.engine:
        await served.start("p1")
        way.gates[where].shut()
        asked = asyncio.create_task(served.call(name))
        await way.gates[where].come()
        await served.engine.stop()
        with pytest.raises(StorageUnavailable, match="same key"):
            await asked
        await served.all_slots_are_free()
    await eventually(lambda: not tables.in_transaction(), "its connection is closed")
    assert len(tables.tasks()) == 1
    assert served.ended == ["p1"] * (name == "wait" and where == "the commit")
    check_invariants(dsn)


# In doubt, while the same is asked from elsewhere.


@pytest.mark.parametrize("gives_up", [False, True], ids=["it waits on", "it gives up"])
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("name", ["add", "wait"])
async def test_who_asks_again_from_elsewhere(
    served: Served, way: Way, tables: Tables, dsn: str, name: str, committed: bool, gives_up: bool
) -> None:
    """With its key another client finds what was committed, or has it done; the flight finds that."""
    way.lost, way.refused = int(committed), int(not committed)
    doubt = way.gates["the preparing"]
    doubt.shut()
    asked = asyncio.create_task(served.call(name, idempotency_key="key"))
    await doubt.come()
    async with Client(dsn) as elsewhere:
        if gives_up:
            asked.cancel()
            await asyncio.wait({asked})
        again = asyncio.create_task(elsewhere.call(NS, "p1", name, idempotency_key="key"))
        await eventually(lambda: len(tables.tasks()) == 2, "it is accepted, by one of both")
        if committed and name == "add":
            assert await again == 1
        if not committed:
            # The worker claims it, and runs it: what the flight has begun is of no use any more.
            await eventually(lambda: len(served.begun) == 2, "it runs")
        doubt.opened.set()
        served.gate.set()
        assert await again == 1
        if not gives_up:
            assert await asked == 1
    await served.all_slots_are_free()
    assert len(served.begun) == (1 if committed else 2)
    assert (await served.engine.client.get(NS, "p1")).state == {"calls": 1}
    assert [row["status"] for row in tables.tasks()] == ["finished", "finished"]


async def test_the_receipt_of_what_was_in_doubt(served: Served, way: Way) -> None:
    """That its own flight had committed it is no earlier use of its key; that it is asked for again, is."""
    way.lost = 1
    client = served.engine.client
    receipts = [await client.submit_call(NS, "p1", "add", idempotency_key="key") for _ in range(2)]
    assert [await client.answer(receipt) for receipt in receipts] == [1, 1]
    assert [receipt.replayed for receipt in receipts] == [False, True]


async def test_a_connection_that_postgresql_ends(served: Served, tables: Tables) -> None:
    """Between the look and the commit: nothing was saved, and what was decided is saved alone."""
    ended: list[Any] = []

    def act(_: Process[Any]) -> None:
        if not ended:
            ended.extend(
                tables.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND state = 'idle in transaction'"
                )
            )

    served.act = act
    assert await served.call("add") == 1
    assert len(ended) == 1
    assert served.begun == ["p1"]
    assert len(tables.tasks()) == 2


# Handlers.


async def test_a_handler_that_ends_before_its_commit_is_known(
    served: Served, way: Way, tables: Tables
) -> None:
    """It was committed as running: what it did meanwhile is saved as of any other step."""
    commit = way.gates["the commit"]
    commit.shut()
    asked = asyncio.create_task(served.call("wait"))
    await commit.come()
    served.gate.set()
    await eventually(lambda: served.ended == ["p1"], "its handler has ended")
    assert len(tables.tasks()) == 1
    commit.opened.set()
    assert await asked == 1
    assert served.begun == ["p1"]


@pytest.mark.parametrize("others", [{}, {"p1": "add", "p3": "wait"}], ids=["alone", "beside others"])
async def test_a_result_that_postgresql_refuses(
    served: Served, tables: Tables, others: dict[str, str]
) -> None:
    """Nothing of its flight is saved: who had decided is saved by itself, but for that one, which fails."""
    tables.execute("ALTER TABLE processes ADD CONSTRAINT poison CHECK (NOT metadata ? 'poison')")
    for process_id in ("p2", "p3"):
        await served.start(process_id)

    def act(process: Process[Any]) -> None:
        if process.process_id == "p2":
            process.metadata["poison"] = True

    served.act = act
    bad, *asked = [
        asyncio.create_task(served.call(name, each)) for each, name in {"p2": "add", **others}.items()
    ]
    with pytest.raises(HandlerFailed, match="could not be saved"):
        await bad
    if others:
        await eventually(lambda: served.begun.count("p3") == 2, "it begins anew")
        assert served.ended == ["p3"]
        served.gate.set()
        assert await asyncio.gather(*asked) == [1, 1]
    assert (served.begun.count("p1"), served.begun.count("p2")) == (len(others) // 2, 1)
    assert all(len(tables.tasks(each)) == 2 for each in ("p2", *others))
    tables.execute("ALTER TABLE processes DROP CONSTRAINT poison")


async def test_a_handler_that_cancels_itself(served: Served) -> None:
    """It fails, as elsewhere; it is nobody else's cancellation."""

    def act(_: Process[Any]) -> None:
        raise asyncio.CancelledError

    served.act = act
    with pytest.raises(HandlerFailed):
        await served.call("add")
    assert (await served.engine.client.get(NS, "p1")).status.value == "error"


@pytest.mark.parametrize("together", [1, 12], ids=["alone", "in a crowd"])
async def test_handlers_that_call_each_other(dsn: str, together: int) -> None:
    """Behind its lock a handler calls a process that the same flight has locked: none waits for ever."""
    ns = Namespace(NS, concurrency=32)
    flows: list[Callable[..., Any]] = []

    @ns.init
    async def start(process: Process[Any]) -> None:
        process.state = 0

    @ns.call
    async def add(process: Process[Any]) -> int:
        process.state += 1
        return int(process.state)

    @ns.call
    async def relay(process: Process[Any], args: dict[str, str]) -> int:
        process.state += 1
        return int(await flows[0](NS, args["to"], "add"))

    async with Engine(dsn, [ns], fuse="always", connections=2) as engine:
        pool, call = engine.pools[NS], engine.client.call
        flows.append(call)
        await eventually(lambda: pool.is_idle, "its slots are free")
        for place in range(together):
            await engine.client.start(NS, f"a{place}")
            await engine.client.start(NS, f"b{place}")
        asked = [
            each
            for place in range(together)
            for each in (call(NS, f"a{place}", "relay", {"to": f"b{place}"}), call(NS, f"b{place}", "add"))
        ]
        answers = await asyncio.gather(*asked)
        pairs = list(zip(answers[::2], answers[1::2], strict=True))
        assert all(sorted(pair) == [1, 2] for pair in pairs), pairs
        await eventually(lambda: pool.free == pool.size, "all slots are free")
    check_invariants(dsn)
