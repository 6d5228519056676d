"""Groups of processes: no more than a limit of each run at once, over all workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import Client, Engine, InvalidRequest, Namespace, NamespaceNotFound, Process
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import NS, Gate, until

SOON = timedelta(milliseconds=30)


class Order(BaseModel):
    """What a process is started with."""

    tenant: str
    after: float | None = None


class Kitchen:
    """A namespace whose steps note how many of each tenant run at once."""

    def __init__(self, limit: int | None = 2, **options: Any) -> None:
        self.most: Counter[str] = Counter()
        self.ran: list[tuple[str, str]] = []
        self.gate: Gate | None = None
        self._inside: Counter[str] = Counter()
        options = {"group": lambda args: args.tenant, "group_limit": limit, **options}
        self.namespace: Namespace[str] = Namespace(NS, state=str, **options)
        self._decorate(self.namespace)

    async def _cook(self, process: Process[str], kind: str) -> None:
        tenant = process.state
        self._inside[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self._inside[tenant])
        self.ran.append((process.process_id, kind))
        try:
            await asyncio.sleep(0.002)
            if self.gate is not None:
                await self.gate.pass_through()
        finally:
            self._inside[tenant] -= 1

    def _decorate(self, namespace: Namespace[str]) -> None:
        @namespace.init
        async def begin(process: Process[str], order: Order) -> str:
            process.state = order.tenant
            if order.after is not None:
                process.set_timer(after=timedelta(seconds=order.after))
            await self._cook(process, "init")
            return order.tenant

        @namespace.call
        async def cook(process: Process[str]) -> str:
            await self._cook(process, "call")
            return process.state

        @namespace.timeout
        async def late(process: Process[str]) -> None:
            await self._cook(process, "timeout")


async def test_no_more_than_the_limit_of_a_group(serve: MakeClient) -> None:
    """Starts, calls and timers of a group together, however many come at once."""
    kitchen = Kitchen()
    client = await serve(kitchen.namespace)
    names = [(f"{tenant}{place}", tenant) for tenant in ("acme", "other") for place in range(8)]
    await asyncio.gather(
        *(client.start(NS, name, Order(tenant=tenant, after=0.01)) for name, tenant in names)
    )
    answers = await asyncio.gather(*(client.call(NS, name, "cook") for name, _ in names))
    assert Counter(answers) == {"acme": 8, "other": 8}
    await until(_ran(kitchen), lambda ran: Counter(kind for _, kind in ran)["timeout"] == 16)
    assert kitchen.most == {"acme": 2, "other": 2}


def _ran(kitchen: Kitchen) -> Any:
    async def ran() -> list[tuple[str, str]]:
        return kitchen.ran

    return ran


async def test_the_limit_holds_over_all_workers(engine: MakeEngine) -> None:
    """Each has slots for all of it."""
    kitchen = Kitchen(limit=3)
    engines = [await engine(kitchen.namespace) for _ in range(3)]
    await asyncio.gather(
        *(engines[place % 3].client.start(NS, f"p{place}", Order(tenant="acme")) for place in range(24))
    )
    await asyncio.gather(*(engines[place % 3].client.call(NS, f"p{place}", "cook") for place in range(24)))
    assert kitchen.most == {"acme": 3}
    assert len(kitchen.ran) == 48


async def test_a_full_group_holds_up_no_other(serve: MakeClient) -> None:
    """Those of others are served while its steps wait; the room goes to the one that waits longest."""
    kitchen = Kitchen(limit=1, concurrency=2)
    client = await serve(kitchen.namespace)
    for name in ("p1", "p2", "p3"):
        await client.start(NS, name, Order(tenant="acme"))
    await client.start(NS, "other", Order(tenant="other"))
    kitchen.gate = gate = Gate()
    first = asyncio.create_task(client.call(NS, "p1", "cook"))
    await gate.entered()
    kitchen.gate = None
    waiting = []
    for name in ("p3", "p2"):
        waiting.append(asyncio.create_task(client.call(NS, name, "cook")))
        await until(lambda name=name: client.trace(NS, name), lambda trace: len(trace) == 2)
    assert await client.call(NS, "other", "cook") == "other"
    assert not any(task.done() for task in (first, *waiting))
    gate.open()
    await asyncio.gather(first, *waiting)
    assert [name for name, kind in kitchen.ran if kind == "call"] == ["p1", "other", "p3", "p2"]


async def test_a_limit_changes_at_run_time(serve: MakeClient) -> None:
    """A higher one lets more begin at once; after a lower one what runs ends."""
    kitchen = Kitchen(limit=1)
    client = await serve(kitchen.namespace)
    for place in range(6):
        await client.start(NS, f"p{place}", Order(tenant="acme"))
    kitchen.gate = gate = Gate()
    calls = [asyncio.create_task(client.call(NS, f"p{place}", "cook")) for place in range(6)]
    await gate.entered()
    await until(lambda: client.groups(NS), lambda groups: groups[0].waiting == 5)
    await client.set_group_limit(NS, "acme", 3)
    await gate.entered(by=3)
    (acme,) = await client.groups(NS)
    assert (acme.name, acme.limit, acme.has_own_limit, acme.running) == ("acme", 3, True, 3)
    await client.set_group_limit(NS, "acme", 1)
    kitchen.most.clear()
    gate.open()
    await asyncio.gather(*calls)
    # What ran in one OS process is not noted again: what began after the change is.
    assert len([kind for _, kind in kitchen.ran if kind == "call"]) == 6
    await client.set_group_limit(NS, "acme", None)
    assert (await client.groups(NS))[0].limit == 1


async def test_limits_that_cannot_be(serve: MakeClient) -> None:
    """They are refused before anything is written, and so is a namespace that is not known."""
    client = await serve(Kitchen().namespace)
    for group, limit in (("", 3), ("acme", -1), ("acme", 1_000_001), ("acme", "3"), (7, 3)):
        with pytest.raises(InvalidRequest):
            await client.set_group_limit(NS, group, limit)  # type: ignore[arg-type]
    with pytest.raises(NamespaceNotFound):
        await client.set_group_limit("nobody.knows", "acme", 3)
    with pytest.raises(NamespaceNotFound):
        await client.groups("nobody.knows")
    assert await client.groups(NS) == []


async def test_a_stop_leaves_what_waits_to_others(engine: MakeEngine, dsn: str, mode: Options) -> None:
    """What waited for room on a worker that left, as its steps end, begins on another one."""
    kitchen = Kitchen(limit=1)
    async with Engine(dsn, [kitchen.namespace], **{**mode, "stop_grace": timedelta(seconds=5)}) as leaving:
        await leaving.client.start(NS, "p1", Order(tenant="acme"))
        kitchen.gate = gate = Gate()
        await leaving.client.notify(NS, "p1", "cook")
        await gate.entered()
        staying = await engine(kitchen.namespace)
        waiting = asyncio.create_task(staying.client.start(NS, "p2", Order(tenant="acme")))
        await until(lambda: staying.client.search(namespace=NS), lambda page: len(page.items) == 2)
        asyncio.get_running_loop().call_later(0.05, gate.open)
    assert await waiting == "acme"
    assert kitchen.most == {"acme": 1}


async def test_a_step_that_waits_for_a_process_of_a_group(engine: MakeEngine) -> None:
    """Its slot is lent to what waits there for longest, so it comes to an end with one slot for both."""
    clients: list[Client] = []
    kitchen = Kitchen(limit=1, concurrency=1)

    @kitchen.namespace.call
    async def ask(process: Process[str], of: str) -> str:
        found: str = await clients[0].call(NS, of, "cook")
        return found

    clients.append((await engine(kitchen.namespace)).client)
    for name, tenant in (("p1", "acme"), ("p2", "other"), ("p3", "other")):
        await clients[0].start(NS, name, Order(tenant=tenant))
    await clients[0].notify(NS, "p3", "cook")
    assert await clients[0].call(NS, "p1", "ask", "p2") == "other"


@pytest.mark.parametrize(
    ("group", "match"),
    [
        (lambda _: 7, "the group must be a text, not int"),
        (lambda _: None, "the group must be a text, not NoneType"),
        (lambda _: "", "1 to 256 characters"),
        (lambda args: args.nothing, "cannot be named .AttributeError"),
    ],
)
async def test_a_start_whose_group_cannot_be_named(serve: MakeClient, group: Any, match: str) -> None:
    """It is refused, and no process is left of it; nor of arguments that do not fit."""
    kitchen = Kitchen(group=group)
    client = await serve(kitchen.namespace)
    with pytest.raises(InvalidRequest, match=match):
        await client.start(NS, "p", Order(tenant="acme"))
    with pytest.raises(InvalidRequest, match="tenant"):
        await client.start(NS, "p", {"nobody": 1})
    assert not (await client.search(namespace=NS)).items
    assert kitchen.ran == []


async def test_processes_from_before_have_no_group(engine: MakeEngine, dsn: str, mode: Options) -> None:
    """They are not limited; those that are made now are. Without the groups again, all go on."""
    before, after = Kitchen(group=None, limit=None), Kitchen(limit=1)
    async with Engine(dsn, [before.namespace], **mode) as old:
        for name in ("old1", "old2"):
            await old.client.start(NS, name, Order(tenant="acme"))
    async with Engine(dsn, [after.namespace], **mode) as new:
        await new.client.start(NS, "p1", Order(tenant="acme"))
        after.gate = gate = Gate()
        calls = [asyncio.create_task(new.client.call(NS, name, "cook")) for name in ("old1", "old2", "p1")]
        await gate.entered(by=3)
        gate.open()
        await asyncio.gather(*calls)
    again = await engine(before.namespace)
    assert await again.client.call(NS, "p1", "cook", timeout=60) == "acme"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"group_limit": 3}, "group_limit"),
        ({"group": lambda _: "", "group_limit": 0}, "group_limit"),
        ({"group": "tenant"}, "group"),
        ({"group": asyncio.sleep}, "group"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], field: str) -> None:
    """They are refused where they are stated."""
    with pytest.raises(InvalidRequest) as refused:
        Namespace(NS, **options)
    assert refused.value.field == field
