"""Rates: no more steps of a namespace, or of a group, begin in a time than admitted, over all workers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import (
    Client,
    HandlerFailed,
    InvalidRequest,
    Namespace,
    Process,
    Rate,
    ReplyTimeout,
    TaskStatus,
)
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import NS, Act, Gate, Scripted, assert_kept, until

# Nothing comes back of it while a test runs.
SLOW = Rate(1, per=timedelta(days=1), burst=3)
# No poll and no scanner comes in time.
LATE = {"scan_interval": timedelta(hours=1)}


class Order(BaseModel):
    """What a process of a group is started with."""

    tenant: str


async def begins(client: Client, names: Sequence[str]) -> list[datetime]:
    """When the last attempts of all tasks of these processes began, by PostgreSQL's clock."""
    traces = [await client.trace(NS, name, limit=100) for name in names]
    return sorted(each.running_time for trace in traces for each in trace if each.running_time)


async def waiting(client: Client, name: str) -> bool:
    """Whether the last task of a process waits."""
    trace = await client.trace(NS, name)
    return TaskStatus.WAITING in [each.status for each in trace]


@pytest.mark.parametrize(
    "rate",
    [
        Rate(100, per=timedelta(seconds=1), burst=5),
        Rate(20, per=timedelta(milliseconds=200)),
        Rate(2000, per=timedelta(seconds=1), burst=1),
    ],
    ids=["small burst", "default burst", "one by one"],
)
async def test_the_rate_holds_over_all_workers(engine: MakeEngine, rate: Rate) -> None:
    """Starts, calls of one process and of many, timers; all of them run."""
    scripted = Scripted(rate=rate)
    engines = [await engine(scripted.namespace) for _ in range(3)]
    clients = [each.client for each in engines]
    names = [f"p{place}" for place in range(15)]
    await asyncio.gather(
        *(clients[n % 3].start(NS, name, Act(after=0.01, then=Act(add=10))) for n, name in enumerate(names))
    )
    asked = [*names, *names[:1] * 10]
    await asyncio.gather(
        *(clients[n % 3].call(NS, name, "act", Act(add=1)) for n, name in enumerate(asked))
    )

    async def balances() -> list[int]:
        return [(await clients[0].get(NS, name)).state.balance for name in names]

    await until(balances, lambda found: found == [21] + [11] * 14)
    began = await begins(clients[0], names)
    assert len(began) == 55
    assert_kept(rate, began)
    assert scripted.overlaps == []


async def test_a_worker_wakes_when_the_next_step_may_begin(engine: MakeEngine) -> None:
    """By itself: no hint comes, no scanner and no poll."""
    rate = Rate(20, per=timedelta(seconds=1), burst=2)
    client = (await engine(Scripted(rate=rate).namespace, **LATE)).client
    await asyncio.gather(*(client.start(NS, f"p{place}", Act()) for place in range(8)))
    assert_kept(rate, await begins(client, [f"p{place}" for place in range(8)]))


async def test_what_is_beyond_the_rate_is_accepted_and_waits(serve: MakeClient) -> None:
    """It counts starts, calls and notifications, each once; nothing that is refused before it begins."""
    client = await serve(Scripted(rate=SLOW).namespace)
    await client.start(NS, "p", Act())
    assert await client.call(NS, "p", "act", Act(add=1)) == 1
    assert await client.call(NS, "p", "act", Act(add=1)) == 2
    await client.notify(NS, "p", "act", Act(add=1))
    assert await waiting(client, "p")
    assert (await client.get(NS, "p")).state.balance == 2


async def test_a_chain_of_calls_is_of_the_rate(engine: MakeEngine) -> None:
    """A worker does not go on with the next task of a process in hand."""
    scripted = Scripted(rate=SLOW)
    client = (await engine(scripted.namespace)).client
    gate = scripted.gates["gate"]
    await client.start(NS, "p", Act())
    first = asyncio.create_task(client.call(NS, "p", "act", Act(add=1, gate="gate")))
    await gate.entered()
    for _ in range(4):
        await client.notify(NS, "p", "act", Act(add=1))
    gate.open()
    await first
    await until(lambda: client.get(NS, "p"), lambda process: process.state.balance == 2)
    assert await waiting(client, "p")


async def test_calls_leave_the_timers_their_share(engine: MakeEngine) -> None:
    """However many of them wait."""
    rate = Rate(100, per=timedelta(seconds=1), burst=4)
    scripted = Scripted(rate=rate)
    client = (await engine(scripted.namespace)).client
    await client.start(NS, "timed", Act(after=0.05))
    await client.start(NS, "p", Act())
    flood = [asyncio.create_task(client.call(NS, "p", "act", Act(add=1))) for _ in range(300)]
    await until(_ran(scripted), lambda ran: ("timed", "timeout") in ran)
    assert not all(each.done() for each in flood)
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


def _ran(scripted: Scripted) -> Any:
    async def ran() -> list[tuple[str, str]]:
        return scripted.ran

    return ran


async def test_timers_repairs_and_failures_are_of_the_rate(serve: MakeClient) -> None:
    """Whatever a step was, and however it ended."""
    scripted = Scripted(rate=SLOW)
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0))
    await until(_ran(scripted), lambda ran: len(ran) == 2)
    with pytest.raises(HandlerFailed):
        await client.call(NS, "p", "act", Act(fail="no"))
    with pytest.raises(ReplyTimeout):
        await client.repair(NS, "p", Act(), timeout=2)
    assert scripted.ran == [("p", "init"), ("p", "timeout"), ("p", "call")]
    assert await waiting(client, "p")


class Tenants:
    """A namespace in which each tenant is a group."""

    def __init__(self, **options: Any) -> None:
        self.namespace: Namespace[str] = Namespace(
            NS, state=str, group=lambda order: order.tenant, **options
        )
        self.gate: Gate | None = None
        self._decorate(self.namespace)

    def _decorate(self, namespace: Namespace[str]) -> None:
        @namespace.init
        async def begin(process: Process[str], order: Order) -> str:
            process.state = order.tenant
            return order.tenant

        @namespace.call
        async def cook(process: Process[str]) -> str:
            return process.state


async def test_each_group_has_its_rate(engine: MakeEngine) -> None:
    """Over all workers; one that has used its own holds up no other."""
    rate = Rate(50, per=timedelta(milliseconds=500), burst=4)
    tenants = Tenants(group_rate=rate)
    engines = [await engine(tenants.namespace) for _ in range(2)]
    clients = [each.client for each in engines]
    names = {f"{tenant}{place}": tenant for tenant in ("acme", "other") for place in range(10)}
    await asyncio.gather(
        *(
            clients[n % 2].start(NS, name, Order(tenant=tenant))
            for n, (name, tenant) in enumerate(names.items())
        )
    )
    answers = await asyncio.gather(*(clients[n % 2].call(NS, name, "cook") for n, name in enumerate(names)))
    assert answers == list(names.values())
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, tenant in names.items():
        groups[tenant].append(name)
    for members in groups.values():
        assert_kept(rate, await begins(clients[0], members))


async def test_a_group_without_room_by_its_rate_holds_up_no_other(serve: MakeClient) -> None:
    """What it waits for is not in the way of others."""
    client = await serve(Tenants(group_rate=SLOW, group_limit=9).namespace)
    for place in range(2):
        await client.start(NS, f"acme{place}", Order(tenant="acme"))
    assert await client.call(NS, "acme0", "cook") == "acme"
    await client.notify(NS, "acme0", "cook")
    await client.start(NS, "other", Order(tenant="other"))
    assert await client.call(NS, "other", "cook") == "other"
    assert await waiting(client, "acme0")


async def test_a_start_in_a_group_is_of_the_rate_once(serve: MakeClient) -> None:
    """Though it is claimed twice: to enter, and to begin."""
    client = await serve(Tenants(rate=SLOW).namespace)
    for place in range(3):
        await client.start(NS, f"acme{place}", Order(tenant="acme"))
    await client.notify(NS, "acme0", "cook")
    assert await waiting(client, "acme0")


async def test_a_group_wakes_when_its_next_step_may_begin(engine: MakeEngine) -> None:
    """By itself: no scanner and no poll comes in time."""
    tenants = Tenants(group_rate=Rate(20, per=timedelta(seconds=1), burst=1))
    client = (await engine(tenants.namespace, **LATE)).client
    await asyncio.gather(*(client.start(NS, f"p{n}", Order(tenant="acme")) for n in range(5)))


async def test_what_a_namespace_says_of_its_rate(serve: MakeClient) -> None:
    """As clients without user code see it."""
    client = await serve(Tenants(rate=Rate(5, per=timedelta(seconds=2)), group_rate=SLOW).namespace)
    options = (await client.published(NS)).options
    assert options["rate"] == {"limit": 5, "per": "PT2S", "burst": 5}
    assert Rate(**options["group_rate"]) == SLOW


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"rate": 5}, "rate"),
        ({"group_rate": SLOW}, "group_rate"),
    ],
)
def test_rates_that_cannot_be_kept(options: dict[str, Any], field: str) -> None:
    """Are refused as the namespace is made, by the name of the argument."""
    with pytest.raises(InvalidRequest) as caught:
        Namespace(NS, **options)
    assert caught.value.field == field
