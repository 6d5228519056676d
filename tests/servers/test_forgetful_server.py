"""A standby that lagged is promoted, and lacks the last commits of workers that live: they mend that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Cron, Engine, Namespace, Process
from progressor.services.fail_over import FailOver
from progressor.storage import migrations
from tests.acceptance.support import Gate, until
from tests.clusters import Address, Cluster, primary_and_standby
from tests.support import check_invariants

NS = "till"
# The rounds are quick. A lease and `step_timeout` are longer than any test: no collector takes a task.
OPTIONS: dict[str, Any] = {
    "lease_age": timedelta(minutes=5),
    "heartbeat_interval": timedelta(seconds=0.2),
    "fuse": "never",
}
NAMES = ["a", "b", "c"]

Pair = tuple[Cluster, Cluster]


class Tills:
    """Sums that each add waits to make; `ran` are the processes of all adds that began."""

    def __init__(self, *, name: str = NS, **options: Any) -> None:
        self.namespace = Namespace(name, state=int, **options)
        self.gate = Gate()
        self.held = Gate()
        self.ran: list[str] = []

        @self.namespace.init
        async def begin(process: Process[int]) -> None:
            process.state = 0

        @self.namespace.call
        async def add(process: Process[int], amount: int) -> int:
            self.ran.append(process.process_id)
            await self.gate.pass_through()
            process.state += amount
            return process.state

        @self.namespace.call
        async def hold(process: Process[int], amount: int) -> int:
            self.ran.append(process.process_id)
            await self.held.pass_through()
            process.state += amount
            return process.state

        @self.namespace.call
        async def tell(process: Process[int]) -> int:
            return process.state


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A primary with the tables, and its standby."""
    with primary_and_standby() as (primary, standby):
        migrations.upgrade(primary.dsn)
        yield primary, standby
        check_invariants(standby.dsn)


@asynccontextmanager
async def fallen_over(pair: Pair, address: Address) -> AsyncIterator[None]:
    """What is committed within is lost, because the standby does not get it before it is promoted."""
    primary, standby = pair
    await standby.follow(primary)
    await standby.fall_behind()
    yield
    address.leads_to = standby.port
    await asyncio.to_thread(primary.stop, "immediate")
    await asyncio.to_thread(standby.promote)


@pytest.mark.parametrize("on_zombie", ["policy", "error"])
async def test_steps_whose_ends_are_lost_run_again(pair: Pair, on_zombie: str) -> None:
    """Their processes neither wait for `step_timeout` nor break; who asks again gets the new answer.

    A step that runs through the fail-over is left alone, and saved once it ends.
    """
    tills = Tills(on_zombie=on_zombie)
    async with (
        Address(pair[0].port) as address,
        Engine(address.dsn, [tills.namespace], **OPTIONS) as engine,
    ):
        client = engine.client
        for name in (*NAMES, "held"):
            await client.start(NS, name)
        held = asyncio.create_task(client.call(NS, "held", "hold", 5))
        calls = [client.call(NS, name, "add", 1, idempotency_key="one") for name in NAMES]
        adding = [asyncio.create_task(call) for call in calls]
        await until(lambda: asyncio.sleep(0, len(tills.ran)), lambda ran: ran == 4)
        async with fallen_over(pair, address):
            tills.gate.open()
            assert await asyncio.gather(*adding) == [1, 1, 1]
        again = [client.call(NS, name, "add", 1, idempotency_key="one") for name in NAMES]
        assert await asyncio.gather(*again) == [1, 1, 1]
        assert [await client.call(NS, name, "tell") for name in NAMES] == [1, 1, 1]
        assert (await client.trace(NS, "a"))[1].attempts_count == 1
        tills.held.open()
        assert await held == 5
        assert sorted(tills.ran) == sorted([*NAMES, *NAMES, "held"])


class Rounds:
    """The rounds of the service behind its first look at a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server: str | None = None
        self._count = 0
        run_once = FailOver.run_once

        async def counted(service: FailOver) -> timedelta | None:
            looked_at = service._looked_at
            done = await run_once(service)
            if looked_at != self.server:
                self.server, self._count = looked_at, 0
            self._count += 1
            return done

        monkeypatch.setattr(FailOver, "run_once", counted)

    async def looked_twice(self, *, after: str | None) -> None:
        """Return when the server after that one was looked at, and once more."""
        await until(lambda: asyncio.sleep(0), lambda _: self.server != after and self._count >= 2)


async def test_an_end_that_is_lost_with_the_begin_of_the_next_step(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the next step runs, both tasks are left alone; then both run again, in their order."""
    tills, rounds = Tills(), Rounds(monkeypatch)
    async with (
        Address(pair[0].port) as address,
        Engine(address.dsn, [tills.namespace], **OPTIONS) as engine,
    ):
        client = engine.client
        await client.start(NS, "p")
        first = asyncio.create_task(client.call(NS, "p", "add", 1, idempotency_key="one"))
        await tills.gate.entered()
        second = asyncio.create_task(client.call(NS, "p", "hold", 10))
        await until(lambda: client.mailbox(NS, "p"), lambda found: found.requests == 1)
        async with fallen_over(pair, address):
            tills.gate.open()
            assert await first == 1
            await tills.held.entered()
            before = rounds.server
        await rounds.looked_twice(after=before)
        assert tills.ran == ["p", "p"]
        tills.held.open()
        assert await second == 11
        assert await client.call(NS, "p", "add", 1, idempotency_key="one") == 1
        assert await client.call(NS, "p", "tell") == 11
        assert tills.ran == ["p"] * 4


async def test_what_a_worker_serves_is_stated_again(pair: Pair) -> None:
    """The newest code counts as before: its options, its namespaces, its schedules and the rule it changed.

    A worker of older code, which is there too, states nothing again.
    """
    old, new, other = Tills().namespace, Tills(feed=True).namespace, Tills(name="other").namespace
    old.schedule("changed", Cron("0 1 * * *"), notify=(NS, "a", "tell"))
    new.schedule("changed", Cron("0 2 * * *"), notify=(NS, "a", "tell"))
    new.schedule("new", Cron("0 3 * * *"), notify=(NS, "a", "tell"))
    stated = {"till/changed": "0 2 * * *", "till/new": "0 3 * * *"}
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(Address(pair[0].port))
        older = await stack.enter_async_context(Engine(address.dsn, [old], **OPTIONS))
        await until(lambda: rules(older.client), lambda found: found == {"till/changed": "0 1 * * *"})
        async with fallen_over(pair, address):
            engine = await stack.enter_async_context(Engine(address.dsn, [new, other], **OPTIONS))
            await until(lambda: rules(engine.client), lambda found: found == stated)
        await until(lambda: feeds(pair[1]), lambda found: found == {NS: True, "other": False})
        await engine.client.start("other", "b")
        await until(lambda: rules(engine.client), lambda found: found == stated)


async def rules(client: Client) -> dict[str, str]:
    """The rules of the schedules that have begun."""
    page = await client.search(namespace="progressor.schedules")
    return {
        each.process_id: each.state.declaration.timer.every["cron"]
        for each in page.items
        if each.state is not None
    }


async def feeds(server: Cluster) -> dict[str, bool]:
    """The namespaces that are registered, and whether each has a feed."""
    sql = (
        "SELECT name, (options ->> 'feed')::boolean FROM progressor.namespaces WHERE name NOT LIKE 'prog%'"
    )
    return dict(await asyncio.to_thread(server.execute, sql))  # type: ignore[arg-type] # two columns
