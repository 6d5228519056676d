"""A fused request whose answer was lost: what was committed is run, whoever has given up meanwhile."""

import asyncio
from typing import Any

import psycopg
import pytest

from progressor import Engine, Namespace, Process
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from tests.support import NS, Tables, check_invariants, eventually


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next answers to commits that are lost, by the statement that stands in them."""
    to_lose: list[str] = []
    commit = Session.commit

    async def losing(self: Session, statements: Any, hints: Any = None) -> Any:
        told = await commit(self, statements, hints)
        if to_lose and to_lose[0] in statements:
            to_lose.pop()
            raise psycopg.OperationalError("the connection was lost at COMMIT")
        return told

    monkeypatch.setattr(Session, "commit", losing)
    return to_lose


@pytest.mark.parametrize("gives_up", [True, False])
async def test_what_goes_on(lost: list[str], dsn: str, tables: Tables, gives_up: bool) -> None:
    """It was committed as running: its flight finds that, and runs it; no collector has to."""
    shop, runs, proceed = Namespace(NS), [], asyncio.Event()

    @shop.init
    async def begin(process: Process) -> None:
        process.state = 0

    @shop.call(fused=True)
    async def pay(process: Process) -> int:
        runs.append(process.task.task_id)
        await proceed.wait()
        process.state += 1
        return process.state

    async with Engine(dsn, [shop]) as engine:
        await eventually(lambda: engine.pools[NS].is_idle, "its slots are free")
        await engine.client.start(NS, "p1")
        lost.append("fused_run")
        call = asyncio.create_task(engine.client.call(NS, "p1", "pay", idempotency_key="key"))
        await eventually(lambda: runs, "its handler runs")
        if gives_up:
            call.cancel()
            await asyncio.wait({call})
        await eventually(lambda: not lost, "its answer is lost")
        proceed.set()
        if not gives_up:
            assert await call == 1
        await eventually(lambda: tables.running("p1") is None, "it came to its end")
        assert await engine.client.call(NS, "p1", "pay", idempotency_key="key") == 1
        await eventually(lambda: engine.pools[NS].free == engine.pools[NS].size, "its slots are free")
    assert len(runs) == 1
    check_invariants(dsn)


async def test_what_came_to_its_end(lost: list[str], dsn: str) -> None:
    """Its flight finds the answer that was committed; its handler does not run again."""
    shop, runs = Namespace(NS, state=int), []

    @shop.init(fused=True)
    async def begin(process: Process[int]) -> str:
        runs.append("begin")
        process.state = 0
        return "begun"

    @shop.call(fused=True)
    async def pay(process: Process[int]) -> int:
        runs.append("pay")
        process.state += 1
        return process.state

    async with Engine(dsn, [shop]) as engine:
        await eventually(lambda: engine.pools[NS].is_idle, "its slots are free")
        lost.append("fused_save_timeless")
        assert await engine.client.start(NS, "p1") == "begun"
        lost.append("fused_save_timeless")
        assert await engine.client.call(NS, "p1", "pay") == 1
        assert (runs, lost) == (["begin", "pay"], [])
        await eventually(lambda: engine.pools[NS].free == engine.pools[NS].size, "its slots are free")
    check_invariants(dsn)


async def test_what_flies_again_needs_no_free_slot(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch was committed, and its answer could not be used: what is to run here is run at any rate."""
    shop = Namespace(NS, state=int, concurrency=2)

    @shop.init
    async def begin(process: Process[int]) -> None:
        process.state = 0

    @shop.call
    async def pay(process: Process[int]) -> int:
        process.state += 1
        return process.state

    prepare, taken = Storage.prepare_call, list[int]()

    async def unusable(self: Storage, requests: Any, **options: Any) -> Any:
        told = await prepare(self, requests, **options)
        if len(requests) > 1 and not taken:
            # The slots that the flight gives back are others' at once.
            for _ in requests:
                pool.take()
                taken.append(1)
            raise KeyError("a defect")
        return told

    monkeypatch.setattr(Storage, "prepare_call", unusable)
    async with Engine(dsn, [shop], fuse="never") as engine:
        pool = engine.pools[NS]
        for name in ("p1", "p2"):
            await engine.client.start(NS, name)
        await eventually(lambda: pool.is_idle, "its slots are free")
        calls = [engine.client.call(NS, name, "pay") for name in ("p1", "p2")]
        assert await asyncio.gather(*calls) == [1, 1]
        assert len(taken) == 2
        await eventually(lambda: pool.free == 0, "only those that others have are taken")
        pool.release(2)
    assert tables.execute("SELECT * FROM running") == []
    check_invariants(dsn)
