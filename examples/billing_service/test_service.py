"""The billing service, in virtual time: months pass in milliseconds, at their exact times."""

from __future__ import annotations

import calendar
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from progressor import Event, HandlerFailed, HistoryRange, Rejected
from progressor.testing import World

from . import tables
from .app import app
from .subscriptions import (
    Charged,
    Refund,
    Refused,
    Subscribe,
    cancel,
    charged,
    refund,
    refused,
    subscribe,
    subscriptions,
)
from .web import web

NOON = datetime(2024, 1, 17, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Outside:
    """The payment provider and the mail service; a key counts once, as it does with real ones."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Any, ...]] = {}
        self.down = False
        self.mail_is_down = False

    def _take(self, key: str, *what: Any) -> None:
        if self.down:
            raise ConnectionError("the service is down")
        assert self.asked.setdefault(key, what) == what

    async def charge(self, key: str, subscription: str, amount: int) -> None:
        self._take(key, "charge", subscription, amount)

    async def refund(self, key: str, charge: str, amount: int) -> None:
        self._take(key, "refund", charge, amount)

    async def send(self, key: str, to: str, letter: str, facts: dict[str, Any]) -> None:
        if self.mail_is_down:
            raise ConnectionError("the mail service is down")
        self._take(key, letter)

    @property
    def letters(self) -> list[str]:
        return [what[0] for key, what in self.asked.items() if "/letter/" in key]

    @property
    def refunds(self) -> list[tuple[Any, ...]]:
        return [what for what in self.asked.values() if what[0] == "refund"]

    @property
    def charges(self) -> list[str]:
        return [key for key, what in self.asked.items() if what[0] == "charge"]


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
async def world(progressor_dsn: str, outside: Outside) -> AsyncIterator[World]:
    async with opened(progressor_dsn, outside, NOON) as world:
        await world.client.start(subscribe, "acme", Subscribe(email="a@acme", price=900))
        await world.settle()
        yield world


def opened(dsn: str, outside: Outside, now: datetime) -> World:
    tables.create(dsn)
    return World(dsn, app, now=now, resources={"payments": outside, "mailer": outside})


def invoices(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT issued_on::text, amount, refunded FROM billing.invoices ORDER BY number"
        ).fetchall()


async def paid(world: World, outside: Outside) -> int | None:
    """The provider has taken the money of the last charge."""
    key = outside.charges[-1]
    return await world.client.call(charged, "acme", Charged(key=key, amount=900), idempotency_key=key)


@pytest.mark.parametrize("day", [1, 28, 29, 30, 31])
async def test_a_year_of_renewals(day: int, outside: Outside, progressor_dsn: str) -> None:
    """Each month is paid on the day on which the trial ended, or on its last."""
    begin = datetime(2024, 1, day, 12, tzinfo=UTC)
    async with opened(progressor_dsn, outside, begin) as world:
        due = await world.client.start(subscribe, "acme", Subscribe(email="a@acme", price=9, trial_days=0))
        for _ in range(13):
            await world.advance(to=due)
            await paid(world, outside)
            due = (await world.client.process(subscriptions, "acme").get()).state.due
        await world.settle()
    months = [(2024, month) for month in range(1, 13)] + [(2025, 1)]
    assert [issued for issued, _, _ in invoices(progressor_dsn)] == [
        date(year, month, min(day, calendar.monthrange(year, month)[1])).isoformat()
        for year, month in months
    ]
    assert outside.letters == ["welcome", *["invoice"] * 13]


async def test_an_unpaid_month_ends_it(world: World, outside: Outside, progressor_dsn: str) -> None:
    """Three reminders, 3, 5 and 7 days apart; then it ends, and no timer is left."""
    await world.advance(14 * DAY)
    for wait in (3, 5, 7, None):
        key = outside.charges[-1]
        await world.client.call(refused, "acme", Refused(key=key, reason="no cover"), idempotency_key=key)
        await world.advance(wait * DAY if wait else timedelta(0))
    assert len(outside.charges) == 4
    assert outside.letters == ["welcome", "reminder", "reminder", "reminder", "ended unpaid"]
    acme = await world.client.process(subscriptions, "acme").get()
    assert (acme.state.status, acme.timer, invoices(progressor_dsn)) == ("ended", None, [])


async def test_a_refund_is_in_the_table_if_the_step_is_saved(
    world: World, outside: Outside, progressor_dsn: str
) -> None:
    """The invoice, the event and the order to the provider: all of them or none."""
    await world.advance(14 * DAY)
    number = await paid(world, outside)
    assert number is not None
    assert await world.client.call(refund, "acme", Refund(invoice=number, amount=400)) == 500
    with pytest.raises(Rejected) as rejected:
        await world.client.call(refund, "acme", Refund(invoice=number, amount=501))
    assert rejected.value.details == {"left": 500}
    await world.settle()
    assert invoices(progressor_dsn) == [("2024-01-31", 900, 400)]
    assert outside.refunds == [("refund", "acme/charge/1.0", 400)]


async def test_what_the_outside_must_do_waits_for_it(world: World, outside: Outside) -> None:
    """A provider that is down for an hour gets its charge afterwards, with the same key."""
    await world.advance(14 * DAY - timedelta(seconds=1))
    outside.down = True
    await world.advance(timedelta(hours=1))
    assert outside.charges == []
    outside.down = False
    await world.advance(timedelta(hours=2))
    assert outside.charges == ["acme/charge/1.0"]


async def test_a_mail_service_that_is_down_delays_no_charge(world: World, outside: Outside) -> None:
    """It is down for a week, over a renewal; the letter is sent when it is back."""
    await world.advance(14 * DAY)
    await world.client.call(charged, "acme", Charged(key="acme/charge/1.0", amount=900))
    await world.advance(29 * DAY)
    outside.mail_is_down = True
    await world.advance(3 * DAY)
    assert outside.charges == ["acme/charge/1.0", "acme/charge/2.0"]
    await world.client.call(charged, "acme", Charged(key="acme/charge/2.0", amount=900))
    await world.advance(4 * DAY)
    assert outside.letters == ["welcome", "invoice"]
    outside.mail_is_down = False
    await world.advance(timedelta(minutes=15))
    assert outside.letters == ["welcome", "invoice", "invoice"]


async def test_a_charge_without_an_answer_is_sent_again(world: World, outside: Outside) -> None:
    """Day by day with one key, which the provider counts once."""
    await world.advance(20 * DAY)
    assert outside.charges == ["acme/charge/1.0"]
    await paid(world, outside)
    with pytest.raises(Rejected):
        await world.client.call(charged, "acme", Charged(key="acme/charge/1.0", amount=900))


async def test_cancelling(world: World, outside: Outside) -> None:
    """It ends at once, and only once."""
    await world.client.call(cancel, "acme")
    await world.advance(365 * DAY)
    assert (outside.letters, outside.charges) == (["welcome", "cancelled"], [])
    with pytest.raises(Rejected):
        await world.client.call(cancel, "acme")


async def test_money_that_comes_after_the_end_is_given_back(
    world: World, outside: Outside, progressor_dsn: str
) -> None:
    """The provider answers its webhook twice; the customer gets the money back once."""
    await world.advance(14 * DAY)
    await world.client.call(cancel, "acme")
    await world.client.call(charged, "acme", Charged(key=outside.charges[-1], amount=900))
    with pytest.raises(Rejected):
        await world.client.call(charged, "acme", Charged(key=outside.charges[-1], amount=900))
    await world.settle()
    assert outside.refunds == [("refund", "acme/charge/1.0", 900)]
    assert invoices(progressor_dsn) == []


async def test_every_effect_has_its_key(world: World, outside: Outside, progressor_dsn: str) -> None:
    """Each handler runs twice, as after a crash: nothing outside is done twice, and no row is doubled."""
    world.twice()
    await world.advance(14 * DAY)
    await paid(world, outside)
    await world.settle()
    assert outside.letters == ["welcome", "invoice"]
    assert invoices(progressor_dsn) == [("2024-01-31", 900, 0)]


async def test_the_web_application(world: World) -> None:
    """It speaks to the processes through a client; a repeated request gets the same answer."""
    web.state.client = world.client
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web") as http:
        order = {"email": "b@bolt", "price": 500}
        for _ in range(2):
            opened = await http.put("/subscriptions/bolt", json=order, headers={"Idempotency-Key": "1"})
            assert opened.json() == {"trial_until": "2024-01-31T12:00:00Z"}
        for key, price in (("2", 500), ("1", 501)):
            other = {**order, "price": price}
            again = await http.put("/subscriptions/bolt", json=other, headers={"Idempotency-Key": key})
            assert again.status_code == 409
        await world.advance(14 * DAY)
        for _ in range(2):
            await http.post("/webhooks/bolt/charged", json={"key": "bolt/charge/1.0", "amount": 500})
        await world.settle()
        shown = await http.get("/subscriptions/bolt")
        assert shown.json() == {"status": "active", "due": "2024-02-29T12:00:00Z", "price": 500}
        (number,) = [event.payload["invoice"] for event in await paid_events(world, "bolt")]
        body = {"invoice": number, "amount": 501}
        refused = await http.post(
            "/subscriptions/bolt/refunds", json=body, headers={"Idempotency-Key": "3"}
        )
        assert (refused.status_code, refused.json()["left"]) == (409, 500)
        gone = await http.delete("/subscriptions/bolt", headers={"Idempotency-Key": "4"})
        assert gone.status_code == 204
        assert (await http.get("/subscriptions/nobody")).status_code == 404


async def test_the_web_application_while_a_subscription_is_broken(world: World) -> None:
    """The provider is asked to come again; after the repair its webhook is taken."""
    web.state.client = world.client
    await world.advance(14 * DAY)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web") as http:
        webhook = {"key": "acme/charge/1.0", "amount": 10**12}  # more than the table can hold
        with pytest.raises(HandlerFailed):
            await world.client.call(charged, "acme", Charged(**webhook))
        assert (await http.post("/webhooks/acme/charged", json=webhook)).status_code == 503
        await world.client.process(subscriptions, "acme").repair()
        webhook["amount"] = 900
        assert (await http.post("/webhooks/acme/charged", json=webhook)).status_code == 204
        await world.settle()
        assert (await http.get("/subscriptions/acme")).json()["status"] == "active"


async def paid_events(world: World, name: str) -> list[Event]:
    process = await world.client.process(subscriptions, name).get(range=HistoryRange())
    return [event for event in process.history if event.name == "paid"]
