"""The parcel service, in virtual time: promises run out in milliseconds, at their exact times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from progressor import HandlerFailed, ProcessHandle, Rejected
from progressor.testing import BrokenInWorld, World

from . import tables
from .app import app
from .carrier import Carrier
from .claims import claims, decide
from .fake_carrier import FakeCarrier
from .model import Address, ClaimStatus, Decision, Order, Parcel, Scan, Stage
from .parcels import CODES, PROMISE, cancel, correct, order, parcels, scanned
from .web import web

MONDAY = datetime(2028, 1, 3, 12, tzinfo=UTC)
DAY = timedelta(days=1)
BONN = Address(street="Main St 1", city="Bonn")
ATLANTIS = Address(street="Main St 1", city="Atlantis")


@pytest.fixture
def carrier() -> FakeCarrier:
    return FakeCarrier()


@pytest.fixture
async def world(progressor_dsn: str, carrier: FakeCarrier) -> AsyncIterator[World]:
    tables.create(progressor_dsn)
    transport = httpx.ASGITransport(carrier.web)
    async with (
        httpx.AsyncClient(base_url="http://carrier", transport=transport) as http,
        World(progressor_dsn, app, now=MONDAY, resources={"carrier": Carrier(http)}) as world,
    ):
        yield world


@pytest.fixture
async def browser(world: World) -> AsyncIterator[httpx.AsyncClient]:
    web.state.client = world.client
    async with httpx.AsyncClient(base_url="http://shop", transport=httpx.ASGITransport(web)) as browser:
        yield browser


async def ordered(
    world: World, name: str = "tea/1", *, value: int = 90_00, to: Address = BONN
) -> ProcessHandle[Parcel]:
    """Order a parcel of the shop, and return its handle."""
    args = Order(shop=name.partition("/")[0], address=to, value=value)
    await world.client.start(order, name, args)
    return world.client.process(parcels, name)


async def events(handle: ProcessHandle[Any]) -> list[str | None]:
    return [event.name for event in (await handle.get()).history]


async def stage(handle: ProcessHandle[Parcel]) -> Stage:
    return (await handle.get()).state.stage


def payouts(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT claim, cents, decided_by FROM parcel_payouts ORDER BY decided_at"
        ).fetchall()


async def test_a_parcel_is_delivered(
    world: World, carrier: FakeCarrier, browser: httpx.AsyncClient
) -> None:
    """Ordered twice and scanned twice it has one label and one delivery, though each handler runs twice."""
    world.twice()
    wish = {"address": BONN.model_dump(), "value": 90_00}
    for _ in range(2):
        assert (await browser.put("/shops/tea/parcels/1", json=wish)).status_code == 202
    assert (await browser.put("/shops/tea/parcels/1", json=wish | {"value": 1})).status_code == 409
    await world.settle()
    assert carrier.labels == {"tea/1/0": "T1"}
    for code in ("accepted", "delivered", "delivered", "hub"):  # the last one is late
        scan = {"scan_id": code, "tracking": "T1", "code": code, "place": "Bonn"}
        assert (await browser.post("/carrier/scans", json=scan)).status_code == 202
    await world.advance(30 * DAY)
    assert (await browser.get("/shops/tea/parcels/1")).json()["stage"] == "delivered"
    handle = world.client.process(parcels, "tea/1")
    assert await events(handle) == ["booked", "scanned", "travelling", "scanned", "delivered", "scanned"]
    assert (await browser.delete("/shops/tea/parcels/1")).status_code == 409
    assert (await browser.get("/shops/tea/parcels/2")).status_code == 404


async def test_the_carrier_is_out_for_a_day(world: World, carrier: FakeCarrier) -> None:
    """A booking is tried again until the carrier answers."""
    carrier.is_out = True
    parcel = await ordered(world)
    await world.advance(DAY)
    assert await stage(parcel) == Stage.ORDERED
    carrier.is_out = False
    await world.advance(timedelta(hours=1))
    assert await stage(parcel) == Stage.BOOKED


async def test_a_cancelled_parcel_has_no_label(world: World, carrier: FakeCarrier) -> None:
    """A label is given back once the carrier answers again; a second cancellation is refused."""
    parcel = await ordered(world)
    await world.settle()
    carrier.is_out = True
    await parcel.call(cancel)
    await world.advance(DAY)
    carrier.is_out = False
    await world.advance(timedelta(hours=1))
    assert carrier.labels == {}
    assert await events(parcel) == ["booked", "cancelled", "label given back"]
    with pytest.raises(Rejected, match="too late"):
        await parcel.call(cancel)


async def test_an_operator_corrects_an_address(world: World, carrier: FakeCarrier) -> None:
    """A parcel whose address is refused breaks; a dry run shows the repair, after which it is booked."""
    parcel = await ordered(world, to=ATLANTIS)
    with pytest.raises(BrokenInWorld, match="nobody drives to Atlantis"):
        await world.settle()
    assert (await parcel.dry_run_repair(BONN)).state["corrections"] == 1
    await parcel.repair(correct, BONN)
    await world.settle()
    assert await stage(parcel) == Stage.BOOKED
    assert list(carrier.labels) == ["tea/1/1"]


async def test_a_bug_is_repaired(
    world: World, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code that nobody has thought of breaks the parcel; with the fix its scan is run again."""
    parcel = await ordered(world)
    await world.settle()
    with pytest.raises(HandlerFailed, match="customs"):
        await parcel.call(scanned, Scan(code="customs", place="Basel"))
    scan = {"scan_id": "9", "tracking": "T1", "code": "delivered", "place": "Bonn"}
    assert (await browser.post("/carrier/scans", json=scan)).status_code == 503
    monkeypatch.setitem(CODES, "customs", Stage.TRAVELLING)  # the fix is deployed
    (task_id,) = [entry.task_id for entry in await parcel.trace() if entry.status == "error"]
    await parcel.repair(correct)
    assert await parcel.redo(task_id) == Stage.TRAVELLING
    assert (await browser.post("/carrier/scans", json=scan)).status_code == 202
    await world.settle()
    assert await stage(parcel) == Stage.DELIVERED


async def test_a_small_claim_is_paid_at_once(world: World, progressor_dsn: str) -> None:
    """A missed promise opens a claim, which is paid once, though each handler runs twice."""
    world.twice()
    parcel = await ordered(world, value=20_00)
    await world.advance(PROMISE)
    assert await stage(parcel) == Stage.PAID_FOR
    assert payouts(progressor_dsn) == [("tea/1", 20_00, "nobody: it is small")]


async def test_a_clerk_decides(world: World, progressor_dsn: str, browser: httpx.AsyncClient) -> None:
    """A large claim waits; the first word counts, and a repetition of it gets the same answer."""
    names = {"tea/1", "tea/2"}
    handles = [await ordered(world, name) for name in sorted(names)]
    await world.advance(PROMISE)
    assert set((await browser.get("/claims")).json()) == names
    for name, pay, key, status in (("1", True, "a", 200), ("1", True, "a", 200), ("1", False, "b", 409)):
        answer = await browser.post(
            f"/claims/tea/{name}/decision",
            json={"clerk": "ada", "pay": pay},
            headers={"Idempotency-Key": key},
        )
        assert answer.status_code == status
    await world.client.call(decide, "tea/2", Decision(clerk="bob", pay=False))
    await world.settle()
    assert [await stage(handle) for handle in handles] == [Stage.PAID_FOR, Stage.LOST]
    assert payouts(progressor_dsn) == [("tea/1", 90_00, "ada")]
    assert (await browser.get("/claims")).json() == []


async def test_nobody_decides(world: World, progressor_dsn: str) -> None:
    """A claim reminds the clerks by day, and is paid when its deadline has passed."""
    await world.advance(to=datetime(2028, 1, 3, 22, tzinfo=UTC))
    await ordered(world)
    await world.advance(PROMISE + 8 * DAY)
    history = (await world.client.process(claims, "tea/1").get()).history
    assert [event.name for event in history] == ["reminded"] * 6 + ["paid"]
    assert {event.timestamp.hour for event in history[:6] if event.timestamp} == {7}  # UTC
    assert payouts(progressor_dsn) == [("tea/1", 90_00, "nobody: it waited too long")]


async def test_a_parcel_is_found(world: World, progressor_dsn: str) -> None:
    """A scan of a missing parcel withdraws its claim, unless that is paid."""
    for name, value in (("tea/1", 90_00), ("tea/2", 20_00)):
        await ordered(world, name, value=value)
    await world.advance(PROMISE)
    for name in ("tea/1", "tea/2"):
        await world.client.call(scanned, name, Scan(code="delivered", place="Bonn"))
    await world.advance(30 * DAY)
    assert (await world.client.process(claims, "tea/1").get()).state.status is ClaimStatus.WITHDRAWN
    assert await stage(world.client.process(parcels, "tea/1")) == Stage.DELIVERED
    assert await stage(world.client.process(parcels, "tea/2")) == Stage.PAID_FOR
    assert payouts(progressor_dsn) == [("tea/2", 20_00, "nobody: it is small")]


async def test_a_broken_parcel_is_told_later(world: World) -> None:
    """A message to a broken parcel is not delivered, so its repair asks the claim to send it again."""
    parcel = await ordered(world)
    await world.advance(PROMISE)
    with pytest.raises(HandlerFailed):
        await parcel.call(scanned, Scan(code="customs", place="Basel"))
    await world.client.call(decide, "tea/1", Decision(clerk="ada", pay=True))
    await world.settle()
    await parcel.repair(correct)
    await world.settle()
    assert await stage(parcel) == Stage.PAID_FOR


async def test_a_shop_with_a_sale(world: World, carrier: FakeCarrier) -> None:
    """At most four parcels of a shop are booked at once, and all of them in the end."""
    carrier.takes = 0.05
    await asyncio.gather(*(ordered(world, f"tea/{number}") for number in range(12)))
    await world.settle()
    assert len(carrier.labels) == 12
    assert carrier.most_at_once <= 4


async def test_parcels_of_the_first_release(world: World) -> None:
    """States as the first release has stored them are read, and go on."""
    file = Path(__file__).with_name("states_of_release_1.json")
    assert world.old_states(file) == 3
    stored = {"shop": "tea", "address": "12, Rue de la Paix, Paris", "value": 1, "is_booked": True}
    await world.client.put(parcels.name, "tea/0", state=stored)
    parcel = world.client.process(parcels, "tea/0")
    assert await parcel.call(scanned, Scan(code="hub", place="Lyon")) == Stage.TRAVELLING
    assert (await parcel.get()).state.address == Address(street="12, Rue de la Paix", city="Paris")
