"""What an engine mends of what a server that took over has lost: nothing that a claim may yet bring.

Real fail-overs are in tests/servers; here a server is taken for another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Cron, Engine, Namespace, Process, ProcessNotFound
from progressor.services.fail_over import FailOver
from progressor.storage import Claimed, Storage
from tests.acceptance.support import Gate, until
from tests.support import Tables

NS = "till"
# The rounds of the service are those of the tests.
OPTIONS: dict[str, Any] = {"heartbeat_interval": timedelta(minutes=1), "lease_age": timedelta(minutes=5)}


def till(ran: list[str]) -> Namespace[int]:
    """A namespace whose call says that it ran."""
    namespace = Namespace(NS, state=int)

    @namespace.init
    async def begin(process: Process[int]) -> None:
        process.state = 0

    @namespace.call
    async def add(process: Process[int]) -> int:
        ran.append(process.process_id)
        process.state += 1
        return process.state

    namespace.schedule("nightly", Cron("0 3 * * *"), notify=(NS, "p", "add"))
    return namespace


def service_of(engine: Engine) -> FailOver:
    """The service, for which the next round is the first one at another server."""
    (service,) = [each for each in engine._parts.services if isinstance(each, FailOver)]
    service._looked_at = service._stated_at = "another server"
    return service


def slowed(method: Callable[..., Awaitable[Any]], gate: Gate) -> Callable[..., Awaitable[Any]]:
    """The same operation, whose caller hears of its end late."""

    async def late(*args: Any, **options: Any) -> Any:
        found = await method(*args, **options)
        if any(getattr(each, "task", None) is not None for each in found):
            await gate.pass_through()
        return found

    return late


@pytest.mark.parametrize("of", ["claim", "request"])
async def test_what_may_yet_begin_is_not_handed_back(
    of: str, dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is committed as running, and of which its worker has not heard, runs once."""
    ran, gate = list[str](), Gate()
    async with Engine(dsn, [till(ran)], **OPTIONS) as engine:
        await engine.client.start(NS, "p")
    late = {"claim": "search", "request": "prepare_call"}[of]
    monkeypatch.setattr(Storage, late, slowed(getattr(Storage, late), gate))
    async with Engine(dsn, [till(ran)], fuse="never", **OPTIONS) as engine, Client(dsn) as client:
        asker = client if of == "claim" else engine.client
        asked = asyncio.create_task(asker.call(NS, "p", "add"))
        await gate.entered()
        service = service_of(engine)
        for _ in range(3):
            await service.run_once()
        assert running(tables) == ["call"]
        gate.open()
        assert await asked == 1
        await service.run_once()
    assert ran == ["p"]


async def test_what_nothing_runs_is_handed_back(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task in the hands of this worker that it knows nothing of: in the round behind the first look."""
    ran, forgets, search = list[str](), asyncio.Event(), Storage.search

    async def forgetful(*args: Any, **options: Any) -> list[Claimed]:
        found = await search(*args, **options)
        if found and not forgets.is_set():
            forgets.set()
            return []
        return found

    async with Engine(dsn, [till(ran)], fuse="never", **OPTIONS) as engine, Client(dsn) as client:
        await client.start(NS, "p")
        monkeypatch.setattr(Storage, "search", forgetful)
        asked = asyncio.create_task(client.call(NS, "p", "add"))
        await forgets.wait()
        service = service_of(engine)
        await service.run_once()
        assert running(tables) == ["call"]
        await service.run_once()
        assert await asked == 1
        (call,) = [each for each in await client.trace(NS, "p") if each.task_type == "call"]
        assert call.attempts_count == 1
    assert ran == ["p"]


def running(tables: Tables) -> list[str]:
    """The types of the tasks that PostgreSQL has in the hands of workers."""
    return [each["task_type"] for each in tables.execute("SELECT task_type FROM running")]


async def test_a_schedule_that_was_removed_stays_removed(dsn: str) -> None:
    """A server that was restarted has lost nothing: nothing is declared anew."""
    async with Engine(dsn, [till([])], **OPTIONS) as engine:
        schedule = engine.client.process("progressor.schedules", f"{NS}/nightly")
        await until(schedule.get, lambda found: found.state is not None)
        await schedule.remove()
        service = service_of(engine)
        for _ in range(2):
            await service.run_once()
        with pytest.raises(ProcessNotFound):
            await schedule.get()
