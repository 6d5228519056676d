"""What the tests of our example check, of the DBOS service; `python -m benchmarks.beside_dbos` plays it.

Rule: DBOS has no virtual time. The clock of the service is replaced by one that is set here, charges that
wait in the queue are brought forward when it is set, and the wait for an answer is a part of a second.
What is not there yet is waited for, in real time.
"""

from __future__ import annotations

import asyncio
import calendar
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from dbos import DBOS, SetWorkflowID

from benchmarks.beside_dbos import billing
from examples.billing_service import tables

NOON = datetime(2024, 1, 17, 12, tzinfo=UTC)
DAY = timedelta(days=1)
_CHILD = "--child"
_PATIENCE = 30


class World:
    """The clock, the services outside, and what is read of them; a key counts once, in a table."""

    def __init__(self, url: str) -> None:
        self.now = NOON
        self.down: set[str] = set()
        self.dies_after = ""
        self._dsn = url.replace("+psycopg", "")
        self.execute(
            "CREATE TABLE IF NOT EXISTS asked (n serial, key text PRIMARY KEY, what text, told text)"
        )

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def _take(self, key: str, what: str, told: str) -> None:
        if what in self.down:
            raise ConnectionError(f"{what} is down")
        self.execute(
            "INSERT INTO asked (key, what, told) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            key,
            what,
            told,
        )
        assert self.execute("SELECT what, told FROM asked WHERE key = %s", key) == [(what, told)]
        if told == self.dies_after:
            os._exit(9)

    async def charge(self, key: str, subscription: str, amount: int) -> None:
        self._take(key, "charge", f"{subscription} {amount}")

    async def refund(self, key: str, charge: str, amount: int) -> None:
        self._take(key, "refund", f"{charge} {amount}")

    async def send(self, key: str, to: str, letter: str, facts: dict[str, Any]) -> None:  # noqa: ARG002 - as a Mailer
        self._take(key, "letter", f"{to} {letter}")

    def charges(self, name: str) -> list[str]:
        sql = "SELECT key FROM asked WHERE what = 'charge' AND told LIKE %s ORDER BY n"
        return [key for (key,) in self.execute(sql, f"{name} %")]

    def letters(self, name: str) -> list[str]:
        """Letters of different workflows may overtake each other: they are sorted."""
        sql = "SELECT told FROM asked WHERE what = 'letter' AND told LIKE %s ORDER BY n"
        return sorted(told.partition(" ")[2] for (told,) in self.execute(sql, f"{name}@x %"))

    def refunds(self, name: str) -> list[str]:
        sql = "SELECT told FROM asked WHERE what = 'refund' AND told LIKE %s ORDER BY n"
        return [told for (told,) in self.execute(sql, f"{name}/%")]

    def invoices(self, name: str) -> list[tuple[Any, ...]]:
        sql = "SELECT issued_on, amount, refunded FROM billing.invoices WHERE subscription = %s ORDER BY 1"
        return self.execute(sql, name)

    def row(self, name: str) -> tuple[Any, ...]:
        (row,) = self.execute("SELECT status, due FROM billing.subscriptions WHERE name = %s", name)
        return row


async def until(what: Callable[[], Any], wanted: Any) -> None:
    """Wait until something is as it should be."""
    last = time.monotonic() + _PATIENCE
    while (found := what()) != wanted:
        assert time.monotonic() < last, f"{found!r} is not {wanted!r}"
        await asyncio.sleep(0.02)


async def begin(name: str, trial_days: int = 14) -> datetime:
    return await ask(secrets.token_hex(8), billing.subscribe, name, f"{name}@x", 900, trial_days)


async def ask(key: str, workflow: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Make a request, as a web application would: its key is the id of the workflow."""
    with SetWorkflowID(key):
        handle = await DBOS.start_workflow_async(workflow, *args)
    return await handle.get_result()


async def refused(key: str, workflow: Callable[..., Awaitable[Any]], *args: Any) -> str:
    try:
        await ask(key, workflow, *args)
    except billing.Refused as error:
        return str(error)
    raise AssertionError("it was not refused")


async def comes_due(world: World, name: str, charge: str) -> str:
    """Set the clock to when a subscription is due, and bring the charge of that moment forward."""
    world.now, key = world.row(name)[1], f"{name}/charge/{charge}"
    await until(
        lambda: world.execute("SELECT 1 FROM dbos.workflow_status WHERE workflow_uuid = %s", key), [(1,)]
    )
    await DBOS.set_workflow_delay_async(key, delay_seconds=0)
    if "charge" not in world.down:
        await until(lambda: key in world.charges(name), True)
    return key


async def a_year_of_renewals(world: World) -> None:
    """Each month is paid on the day on which the trial ended, or on its last."""
    for day in (1, 28, 29, 30, 31):
        world.now, name = datetime(2024, 1, day, 12, tzinfo=UTC), f"day{day}"
        await begin(name, trial_days=0)
        for month in range(1, 14):
            await billing.on_charged(await comes_due(world, name, f"{month}.0"), 900)
            await until(lambda: len(world.invoices(name)), month)  # noqa: B023
        months = [(2024, month) for month in range(1, 13)] + [(2025, 1)]
        assert [issued for issued, _, _ in world.invoices(name)] == [
            date(year, month, min(day, calendar.monthrange(year, month)[1])) for year, month in months
        ]
        await until(lambda: world.letters(name), [*["invoice"] * 13, "welcome"])  # noqa: B023


async def an_unpaid_month_ends_it(world: World) -> None:
    """Three reminders, 3, 5 and 7 days apart; then it ends, and no charge waits."""
    await begin("unpaid")
    for refusals, wait in enumerate((3, 5, 7)):
        await billing.on_refusal(await comes_due(world, "unpaid", f"1.{refusals}"), "no cover")
        await until(lambda: world.row("unpaid"), ("past due", world.now + wait * DAY))
    await billing.on_refusal(await comes_due(world, "unpaid", "1.3"), "no cover")
    await until(lambda: world.letters("unpaid"), ["ended unpaid", *["reminder"] * 3, "welcome"])
    assert (world.row("unpaid")[0], len(world.charges("unpaid"))) == ("ended", 4)
    waiting = (
        "SELECT 1 FROM dbos.workflow_status WHERE workflow_uuid LIKE 'unpaid/charge/%%' AND status = %s"
    )
    assert (world.invoices("unpaid"), world.execute(waiting, "DELAYED")) == ([], [])


async def a_refund_is_made_once(world: World) -> None:
    """The row and the order to the provider; a repeated request gets the same answer."""
    await begin("refund")
    await billing.on_charged(await comes_due(world, "refund", "1.0"), 900)
    await until(lambda: len(world.invoices("refund")), 1)
    ((number,),) = world.execute("SELECT number FROM billing.invoices WHERE subscription = 'refund'")
    for _ in range(2):
        assert await ask("refund-1", billing.refund, "refund", number, 400) == 500
    assert "500" in await refused("refund-2", billing.refund, "refund", number, 501)
    await until(lambda: world.refunds("refund"), ["refund/charge/1.0 400"])
    assert world.invoices("refund") == [(date(2024, 1, 31), 900, 400)]


async def what_is_down_is_asked_later(world: World) -> None:
    """A provider gets its charge afterwards; a mail service that is down delays no charge."""
    world.down = {"charge", "letter"}
    await begin("down")
    key = await comes_due(world, "down", "1.0")
    await asyncio.sleep(0.3)
    assert world.charges("down") == []
    world.down = {"letter"}
    await until(lambda: world.charges("down"), [key])
    await billing.on_charged(key, 900)
    await until(lambda: len(world.invoices("down")), 1)
    assert world.letters("down") == []
    await comes_due(world, "down", "2.0")
    world.down = set()
    await until(lambda: world.letters("down"), ["invoice", "welcome"])


async def a_repeated_webhook_counts_once(world: World) -> None:
    """A charge without an answer is sent again with its key, and an answer twice is one invoice."""
    await begin("twice")
    key = await comes_due(world, "twice", "1.0")
    await asyncio.sleep(3 * billing.NO_ANSWER.total_seconds())
    assert world.charges("twice") == [key]
    for _ in range(2):
        await billing.on_charged(key, 900)
    await until(lambda: len(world.invoices("twice")), 1)
    await comes_due(world, "twice", "2.0")
    await billing.on_charged(key, 900)
    await asyncio.sleep(0.3)
    assert len(world.invoices("twice")) == 1


async def cancelling(world: World) -> None:
    """It ends at once and only once; money on its way is given back once."""
    await begin("cancel")
    await ask("cancel-1", billing.cancel, "cancel")
    assert await refused("cancel-2", billing.cancel, "cancel") == "it has ended"
    await until(lambda: world.letters("cancel"), ["cancelled", "welcome"])
    await begin("late")
    key = await comes_due(world, "late", "1.0")
    await ask("late-1", billing.cancel, "late")
    for _ in range(2):
        await billing.on_charged(key, 900)
    await until(lambda: world.refunds("late"), [f"{key} 900"])
    assert (world.invoices("late"), world.charges("cancel")) == ([], [])


async def a_repeated_request(world: World) -> None:
    """A request of the same key gets the same answer, and another one of the same name is refused."""
    args = ("again", "again@x", 900, 14)
    assert await ask("again-1", billing.subscribe, *args) == await ask("again-1", billing.subscribe, *args)
    assert "already" in await refused("again-2", billing.subscribe, *args)
    await until(lambda: world.letters("again"), ["welcome"])


async def dies(world: World) -> None:
    """The child: it dies when the letter is sent, and before that is noted."""
    world.dies_after = "crash@x invoice"
    await begin("crash")
    await billing.on_charged(await comes_due(world, "crash", "1.0"), 900)
    await asyncio.sleep(_PATIENCE)


async def recovers(world: World) -> None:
    """After the death of the child everything is there once, and the next month comes."""
    await until(lambda: world.letters("crash"), ["invoice", "welcome"])
    assert len(world.invoices("crash")) == 1
    await comes_due(world, "crash", "2.0")
    assert world.charges("crash") == ["crash/charge/1.0", "crash/charge/2.0"]


SCENES = (
    *(recovers, a_year_of_renewals, an_unpaid_month_ends_it, a_refund_is_made_once),
    *(what_is_down_is_asked_later, a_repeated_webhook_counts_once, cancelling, a_repeated_request),
)


async def play(world: World, scenes: tuple[Callable[[World], Awaitable[None]], ...]) -> None:
    for scene in scenes:
        world.now, began = NOON, time.monotonic()
        await scene(world)
        print(f"{scene.__name__}: {time.monotonic() - began:.1f} seconds", flush=True)


def main() -> None:
    """Play the scenes; the child that dies plays its own."""
    child, url = _CHILD in sys.argv, os.environ["BILLING_DATABASE_URL"]
    if not child:
        tables.create(url)
    world = World(url)
    billing.Outside.payments = billing.Outside.mailer = world
    billing.clock = lambda: world.now
    billing.NO_ANSWER = timedelta(seconds=0.1)
    if not child:
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.beside_dbos.scenario", _CHILD], check=False
        )
        assert ended.returncode == 9
    billing.launch()
    asyncio.run(play(world, (dies,) if child else SCENES))
    DBOS.destroy()


if __name__ == "__main__":
    main()
