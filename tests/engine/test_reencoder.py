"""The reencoder: what it writes anew, what it leaves alone, and that nobody waits for it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from progressor import Client, Engine, InvalidRequest, KeyMissing, Namespace, Process
from progressor.codecs import Keyring, ValuePlace
from progressor.config import ConnectionOptions
from progressor.node.node import Node
from progressor.services.reencoder import Reencoded, Reencoder
from progressor.storage import RowKey, Storage, ValueTable
from tests.acceptance.support import until
from tests.support import check_invariants

K1, K2 = bytes(range(32)), bytes(range(32, 64))
BEFORE = Keyring("k1", {"k1": K1, "k2": K2})
AFTER = Keyring("k2", {"k1": K1, "k2": K2})
TWO = Keyring("k2", {"k2": K2})
NS, OTHER = "vault", "office"


def vault(codec: Keyring | None, name: str = NS) -> Namespace:
    """Processes that count, and note each call in an event."""
    namespace = Namespace(name, codec=codec)

    @namespace.init
    async def open_(process: Process, start: int) -> int:
        process.state = {"count": start}
        process.emit("opened", start=start)
        process.set_timer(after=timedelta(days=365))
        return start

    @namespace.call
    async def add(process: Process, by: int) -> int:
        process.state["count"] += by
        process.emit("added", by=by, told=process.context)
        return process.state["count"]

    @namespace.call
    async def send(process: Process, to: str) -> None:
        process.send(NS, to, "add", 1)

    @namespace.call
    async def every(process: Process) -> None:
        process.set_timer("daily", every=timedelta(days=1))

    @namespace.call
    async def fail(process: Process, reason: str) -> None:
        raise ValueError("it fails")

    @namespace.timeout
    async def fire(process: Process) -> None:
        process.state["count"] += 1

    @namespace.repair
    async def mend(process: Process, count: int) -> None:
        process.state = {"count": count}

    return namespace


@pytest.fixture
async def storage(dsn: str) -> AsyncIterator[Storage]:
    node = Node(dsn, ConnectionOptions(signals=False), ring=lambda *_: None)
    await node.connected()
    yield node.storage
    await node.stop()
    check_invariants(dsn)


def made(storage: Storage, codec: Keyring | None = AFTER, **options: Any) -> Reencoder:
    given: dict[str, Any] = {"chosen": [NS], "rate": None, "progress": lambda so_far: None, **options}
    return Reencoder(storage, [vault(codec), vault(None, OTHER)], **given)


def found(result: Reencoded) -> dict[str, int]:
    return {key: share.values for key, share in result.found.items()}


def run(dsn: str, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(statement), values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


async def some_of_everything(client: Client) -> None:
    """Values of each kind: waiting, finished and failed tasks, timers, a bulk, a broken process."""
    await client.start(NS, "p", 1, context="who")
    await client.call(NS, "p", "add", 2, context="told", idempotency_key="k")
    await client.call(NS, "p", "every")
    await client.start(NS, "broken", 5)
    with pytest.raises(Exception, match="it fails"):
        await client.call(NS, "broken", "fail", "why")
    with pytest.raises(InvalidRequest):
        await client.call(NS, "p", "add", "no number")
    await client.repair_all(NS, 7, detail_like="nothing like it")
    await client.pause(NS)
    await client.notify(NS, "p", "add", 4)


async def all_is_read(dsn: str, codec: Keyring) -> None:
    """What was there before is there, read with these keys alone; a key of a request is the same one."""
    async with Engine(dsn, [vault(codec)]) as engine:
        client = engine.client
        await client.resume(NS)
        assert await client.call(NS, "p", "add", 2, context="told", idempotency_key="k") == 3
        assert await client.call(NS, "p", "add", 0) == 7
        process = await client.get(NS, "p")
        assert [each.payload.get("by") for each in process.history] == [None, 2, 4, 0]
        assert process.history[1].payload["told"] == "told"
        assert process.timers["daily"].every == timedelta(days=1)
        trace = await client.trace(NS, "p")
        assert (trace[0].args, trace[0].context, trace[0].response) == (1, "who", 1)
        assert {each.name: each.args for each in trace}["add"] == 0
        assert (await client.trace(NS, "broken"))[-1].args == "why"
        await client.repair(NS, "broken", 9)
        assert (await client.get(NS, "broken")).state == {"count": 9}


@pytest.mark.parametrize("before", [BEFORE, None], ids=["another key", "plain"])
async def test_everything_is_of_the_active_key_after_a_run(
    dsn: str, storage: Storage, before: Keyring | None
) -> None:
    """States, args, contexts, answers, events and bulks; a second run finds nothing to write."""
    async with Engine(dsn, [vault(before), vault(None, OTHER)]) as engine:
        await some_of_everything(engine.client)
        await engine.client.start(OTHER, "o", 1)
    old = "k1" if before else "plain"
    counted = await made(storage).count()
    assert set(found(counted)) == {old}
    assert not counted.written.values
    result = await made(storage).run()
    assert found(result) == found(counted)
    assert result.written.values == found(counted)[old]
    assert result.is_whole
    again = await made(storage).run()
    assert (found(again), again.written.values) == ({"k2": result.written.values}, 0)
    await all_is_read(dsn, TWO)
    # What is no value of the namespace is as it was.
    assert run(dsn, "SELECT args FROM progressor.tasks WHERE task_type = 'timeout' AND args LIKE '{%%'")
    ((state,),) = run(dsn, "SELECT aux_state FROM progressor.processes WHERE process_id = 'o'")
    assert state == b'{"count":1}'


async def test_a_message_and_a_bulk_become_tasks_of_the_active_key(dsn: str, storage: Storage) -> None:
    """They are written before the tasks are: what is delivered meanwhile is found there."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        await engine.client.start(NS, "p", 0)
        await engine.client.start(NS, "q", 0)
        await engine.client.put(NS, "r", state={"count": 0}, status="error")
    # Nobody delivers: the sender's step is the last thing that the engine does.
    run(dsn, "UPDATE progressor.namespaces SET paused = true")
    async with Client(dsn, [vault(BEFORE)]) as client:
        await client.repair_all(NS, 7)
    place = BEFORE.seal(b"1", ValuePlace(NS, "q", "args"))
    run(
        dsn,
        "INSERT INTO progressor.outbox (process_no, task_id, created_at, due, n, task_type, namespace, "
        "process_id, name, idempotency_key, request_hash, args) "
        "VALUES (99, 1, now(), now(), 0, 'notify', %s, 'q', 'add', 'key', '', %s)",
        NS,
        place,
    )
    assert (await made(storage).run()).is_whole
    ((message,), (bulk,)) = run(
        dsn, "SELECT args FROM progressor.outbox UNION ALL SELECT args FROM progressor.bulks"
    )
    assert message.startswith(TWO.active_prefix)
    assert bulk.startswith(TWO.active_prefix)
    async with Engine(dsn, [vault(TWO)], zombie_interval=timedelta(milliseconds=200)) as engine:
        await engine.client.resume(NS)
        await until(lambda: engine.client.get(NS, "r"), lambda process: process.state == {"count": 7})
        await until(lambda: engine.client.get(NS, "q"), lambda process: process.state == {"count": 1})


async def test_a_namespace_that_is_not_chosen_is_left_alone(dsn: str, storage: Storage) -> None:
    """With --namespace, and where a namespace has no keyring at all."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        await engine.client.start(NS, "p", 0)
    reencoder = Reencoder(
        storage,
        [vault(AFTER), vault(AFTER, OTHER)],
        chosen=[OTHER],
        rate=None,
        progress=lambda so_far: None,
    )
    result = await reencoder.run()
    assert (found(result), result.written.values) == ({}, 0)
    with pytest.raises(InvalidRequest, match="active key"):
        made(storage, None)


async def test_what_cannot_be_read_is_counted_and_stays(dsn: str, storage: Storage) -> None:
    """A missing key and a damaged value: the others are written, and these are as they were."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        for process_id in ("p", "q", "r"):
            await engine.client.start(NS, process_id, 0)
    run(dsn, "UPDATE progressor.processes SET aux_state = %s WHERE process_id = 'q'", b"\x00prg1\x02k9rest")
    run(dsn, "UPDATE progressor.processes SET aux_state = %s WHERE process_id = 'r'", b"\x00prg1\xff")
    states = "SELECT aux_state FROM progressor.processes WHERE process_id IN ('q', 'r') ORDER BY 1"
    before = run(dsn, states)
    result = await made(storage).run()
    assert {key: share.values for key, share in result.unreadable.items()} == {"k9": 1, "damaged": 1}
    assert result.written.values == found(result)["k1"]
    assert not result.is_whole
    assert run(dsn, states) == before
    lost = Reencoder(
        storage,
        [vault(Keyring("k3", {"k3": K1}))],
        chosen=[NS],
        rate=None,
        progress=lambda so_far: None,
    )
    assert (await lost.run()).unreadable["k2"].values == result.written.values


async def test_a_value_that_was_changed_meanwhile_is_not_replaced(
    dsn: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the read and the write a step saves another state: it stays, and is of the active key."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        await engine.client.start(NS, "p", 0)
    renew = storage.renew

    async def late(table: ValueTable, values: Any, **acts: Any) -> set[RowKey]:
        if table is ValueTable.STATES:
            async with Engine(dsn, [vault(AFTER)]) as engine:
                await engine.client.call(NS, "p", "add", 5)
        return await renew(table, values, **acts)

    monkeypatch.setattr(storage, "renew", late)
    assert (await made(storage).run()).is_whole
    monkeypatch.undo()
    async with Client(dsn, [vault(TWO)]) as client:
        assert (await client.get(NS, "p")).state == {"count": 5}


async def test_a_locked_process_is_passed_over_and_tried_again(dsn: str, storage: Storage) -> None:
    """Nobody is waited for: the others are written, and this one once it is free."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        for process_id in ("p", "q"):
            await engine.client.start(NS, process_id, 0)
    lines: list[int] = []
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT FROM progressor.processes WHERE process_id = 'p' FOR UPDATE")
        task = asyncio.create_task(made(storage, progress=lambda so_far: lines.append(1)).run())
        await until(lambda: asyncio.to_thread(_count, dsn, "process_id = 'q'"), bool)
        assert not _count(dsn, "process_id = 'p'")
        connection.rollback()
        result = await task
    assert result.is_whole
    assert _count(dsn, "true") == 2
    assert lines


def _count(dsn: str, where: str) -> int:
    ((count,),) = run(
        dsn,
        f"SELECT count(*) FROM progressor.processes WHERE {where} AND substr(aux_state, 1, 8) = %s",
        TWO.active_prefix,
    )
    return count


async def test_a_run_goes_on_where_another_was_killed(
    dsn: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any write: what is written stays, and is read by workers; the next run does the rest."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        for number in range(12):
            await engine.client.start(NS, f"p{number}", number)
            await engine.client.call(NS, f"p{number}", "add", 1)
    whole = (await made(storage).count()).found["k1"].values
    renew, writes, written = storage.renew, 0, 0

    async def dies(table: ValueTable, values: Any, **acts: Any) -> set[RowKey]:
        nonlocal writes
        done = await renew(table, values, **acts)
        writes += 1
        raise ConnectionAbortedError(f"after write {writes} of {len(done)} rows")

    runs = 0
    while True:
        monkeypatch.setattr(storage, "renew", dies)
        try:
            await made(storage).run()
        except ConnectionAbortedError:
            runs += 1
            monkeypatch.undo()
            async with Client(dsn, [vault(AFTER)]) as client:
                for number in range(12):
                    assert (await client.get(NS, f"p{number}")).state == {"count": number + 1}
            written = (await made(storage).count()).found["k2"].values
            continue
        break
    assert runs >= 3
    assert written == whole
    async with Client(dsn, [vault(TWO)]) as client:
        for number in range(12):
            assert [each.args for each in await client.trace(NS, f"p{number}")][:1] == [number]
    async with Client(dsn, codec=Keyring("k1", {"k1": K1})) as client:
        with pytest.raises(KeyMissing):
            await client.trace(NS, "p0")


class Load:
    """Calls to a few processes by any number of clients, until it is stopped."""

    def __init__(self) -> None:
        self.processes = [f"p{number}" for number in range(8)]
        self.stopped = asyncio.Event()
        self.calls = 0

    async def by(self, client: Client) -> None:
        """Add one to each process, again and again; any error is raised."""
        while not self.stopped.is_set():
            for process_id in self.processes:
                await client.call(NS, process_id, "add", 1, context={"by": self.calls})
                self.calls += 1

    async def counts(self, client: Client) -> int:
        return sum([(await client.get(NS, each)).state["count"] for each in self.processes])


async def test_steps_go_on_beside_it(dsn: str, storage: Storage) -> None:
    """Two workers under load, of which one rotates before the other, and so their clients; runs that are
    cut off and begun again: no step fails, every count is right, and at the end the old key can go."""
    load = Load()
    async with Engine(dsn, [vault(BEFORE)]) as first, Engine(dsn, [vault(AFTER)]) as second:
        for process_id in load.processes:
            await first.client.start(NS, process_id, 0)
        async with Client(dsn, [vault(BEFORE)]) as early, Client(dsn, codec=AFTER) as late:
            clients = (first.client, second.client, early, late)
            tasks = [asyncio.create_task(load.by(each)) for each in clients]
            for _ in range(3):
                cut = asyncio.create_task(made(storage, rate=200).run())
                await asyncio.wait([cut], timeout=0.5)
                cut.cancel()
                await asyncio.gather(cut, return_exceptions=True)
            load.stopped.set()
            await asyncio.gather(*tasks)
    load.stopped.clear()
    async with Engine(dsn, [vault(AFTER)]) as engine:
        more = asyncio.create_task(load.by(engine.client))
        result = await made(storage).run()
        assert not more.done()
        load.stopped.set()
        await more
        assert (result.left, result.unreadable) == (0, {})
    assert found(await made(storage).run()).keys() == {"k2"}
    async with Client(dsn, [vault(TWO)]) as client:
        assert await load.counts(client) == load.calls
        assert all(not each.error for each in await client.trace(NS, "p0"))


async def test_it_keeps_to_its_rate(dsn: str, storage: Storage) -> None:
    """It sleeps for as long as what it wrote takes at the rate, and says how far it is."""
    async with Engine(dsn, [vault(BEFORE)]) as engine:
        for number in range(10):
            await engine.client.start(NS, f"p{number}", number)
    slept: list[float] = []
    seen: list[int] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    told = {"progress": lambda so_far: seen.append(so_far.written.values), "sleep": sleep}
    await made(storage, rate=1.0, **told).run()
    # 10 states, then 20 of tasks, then 10 events.
    assert seen[-1] == 40
    assert max(slept) > 30
