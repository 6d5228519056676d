"""What the file says against what the processes and the read model say: the engine never reads the file.

Rule: the processes are read by the public API alone, with their whole histories; the read model by SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from operator import eq
from typing import Any

from psycopg import AsyncConnection

from progressor import Client, Process

from . import troubles
from .purchases import Customer, Purchase
from .read_model import CustomerRow, DayRow, Sales, connect, read_sales
from .replay import Progress, process_id
from .shop import NAMESPACE, Customer as State

READS_AT_ONCE = 2
PAGE = 500
LOOK_INTERVAL = 0.2
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the comparison."""

    what: str
    expected: int
    found: int
    in_cents: bool = False

    @property
    def agrees(self) -> bool:
        return self.expected == self.found

    def show(self, value: int) -> str:
        """A value of this line, for people."""
        return f"{value // 100:,}.{value % 100:02}" if self.in_cents else f"{value:,}"


@dataclass
class Found:
    """What the processes and the read model say."""

    processes: int = 0
    broken: int = 0
    gapless: int = 0
    purchases: int = 0
    cds: int = 0
    cents: int = 0
    as_in_file: int = 0
    quiet_at_end: int = 0
    went_quiet: int = 0
    last_purchases: dict[str, int] = field(default_factory=dict)
    """By process, the id of the event of its last purchase."""
    sales: Sales = field(default_factory=lambda: Sales([], []))
    """The rows of the read model."""
    differences: list[str] = field(default_factory=list)


async def compare(
    client: Client,
    dsn: str,
    customers: Sequence[Customer],
    progress: Progress,
    *,
    patience: timedelta = PATIENCE,
) -> tuple[list[Line], Found]:
    """Read every process of the run and the read model, and compare both with the file.

    `patience`: for how long the read model may be behind the processes without coming nearer.
    """
    known = {process_id(progress.run, customer): customer for customer in customers}
    found = Found()
    reads = asyncio.Semaphore(READS_AT_ONCE)

    async def look(process_id: str) -> None:
        async with reads:
            process = await client.get(NAMESPACE, process_id)
        _look_at(process, known.get(process_id), found)
        progress.activity = f"checked {found.processes:,} of {len(known):,} histories against the file"

    async with asyncio.TaskGroup() as checks:
        for each in await _processes_of(client, progress.run):
            checks.create_task(look(each))
    async with await connect(dsn) as connection:
        found.sales = await _until_caught_up(client, connection, progress, found, patience)
    lines = _lines(customers, progress, found)
    return lines + _lines_of_model(_expected_sales(known, found), found), found


async def _processes_of(client: Client, run: str) -> list[str]:
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.search(namespace=NAMESPACE, metadata={"run": run}, limit=PAGE, cursor=cursor)
        ids += [process.process_id for process in page.items]
        cursor = page.cursor
        if cursor is None:
            return ids


def _look_at(process: Process[Any], customer: Customer | None, found: Found) -> None:
    """Count one process, and note in which way it is not as in the file."""
    history = process.history
    bought = [event.payload for event in history if event.name == "Purchased"]
    expected = [] if customer is None else [_event_of(purchase) for purchase in customer.purchases]
    gapless = [event.event_id for event in history] == list(range(1, process.last_event_id + 1))
    totals = (len(bought), sum(each["cds"] for each in bought), sum(each["cents"] for each in bought))
    state = process.state or State()
    same = bought == expected and totals == (state.purchases, state.cds, state.cents)
    quiet = bool(history) and history[-1].name == "went_quiet"

    found.processes += 1
    found.broken += process.status != "running"
    found.gapless += gapless
    found.purchases += totals[0]
    found.cds += totals[1]
    found.cents += totals[2]
    found.as_in_file += same
    found.quiet_at_end += quiet
    found.went_quiet += sum(event.name == "went_quiet" for event in history)
    sold = [event.event_id for event in history if event.name == "Purchased"]
    found.last_purchases[process.process_id] = max(sold, default=0)
    if not (gapless and same and quiet and process.status == "running"):
        found.differences.append(
            f"{process!r}: gapless {gapless}, quiet {quiet}, detail {process.detail}, "
            f"state {state!r}, bought {bought}, in the file {expected}"
        )


def _event_of(purchase: Purchase) -> dict[str, Any]:
    return {
        "line": purchase.line,
        "day": purchase.day.isoformat(),
        "cds": purchase.cds,
        "cents": purchase.cents,
    }


def _lines(customers: Sequence[Customer], progress: Progress, found: Found) -> list[Line]:
    purchases = [purchase for customer in customers for purchase in customer.purchases]
    everybody = len(customers)
    return [
        Line("processes", everybody, found.processes),
        Line("purchase events", len(purchases), found.purchases),
        Line("CDs", sum(each.cds for each in purchases), found.cds),
        Line("dollars", sum(each.cents for each in purchases), found.cents, in_cents=True),
        Line("histories as in the file", everybody, found.as_in_file),
        Line("gapless histories", everybody, found.gapless),
        Line("customers quiet at the end", everybody, found.quiet_at_end),
        Line("broken processes", 0, found.broken),
        Line("running totals answered", len(purchases), progress.purchases),
        Line("requests refused", troubles.count_refusals(customers), progress.refusals),
        Line("broken on purpose and repaired", troubles.count_repairs(customers), progress.repairs),
        Line(
            "requests asked twice, done once",
            sum(map(troubles.asks_twice, purchases)),
            progress.asked_twice,
        ),
    ]


async def _until_caught_up(
    client: Client, connection: AsyncConnection, progress: Progress, found: Found, patience: timedelta
) -> Sales:
    """Read the read model until each customer's row goes as far as the process did, and return it."""
    now = asyncio.get_running_loop().time
    everybody = len(found.last_purchases)
    most, came = 0, now()
    while True:
        model = await read_sales(connection, progress.run)
        rows = {row.process_id: row.event_id for row in model.customers}
        done = sum(rows.get(each, 0) >= last for each, last in found.last_purchases.items())
        progress.activity = f"the read model has {done:,} of {everybody:,} customers"
        if done == everybody:
            return model
        if done > most:
            most, came = done, now()
        elif now() - came >= patience.total_seconds():
            errors = [each.error for each in await client.subscriptions() if each.error]
            found.differences.append(f"the read model lacks {everybody - done} customers: {errors}")
            return model
        await asyncio.sleep(LOOK_INTERVAL)


def _expected_sales(known: Mapping[str, Customer], found: Found) -> Sales:
    """Return the read model as it must be: the file's totals, up to the last purchases of the histories."""
    days: dict[date, DayRow] = {}
    customers: list[CustomerRow] = []
    for name, customer in known.items():
        row = CustomerRow(
            process_id=name,
            purchases=len(customer.purchases),
            cds=sum(each.cds for each in customer.purchases),
            cents=sum(each.cents for each in customer.purchases),
            event_id=found.last_purchases.get(name, 0),
        )
        customers.append(row)
        for each in customer.purchases:
            _, purchases, cds, cents = days.get(each.day, (each.day, 0, 0, 0))
            days[each.day] = DayRow(each.day, purchases + 1, cds + each.cds, cents + each.cents)
    return Sales(
        sorted(customers, key=lambda row: (-row.cents, row.process_id)),
        sorted(days.values(), key=lambda row: (-row.cds, -row.cents, row.day)),
    )


def _lines_of_model(expected: Sales, found: Found) -> list[Line]:
    """Compare the rows of the read model, and note which are not as in the file."""
    model = found.sales
    wanted = {*expected.customers, *expected.days}
    rows = {*model.customers, *model.days}
    found.differences += [f"the read model lacks {row}" for row in wanted - rows]
    found.differences += [f"the read model has {row}" for row in rows - wanted]
    everybody, days = len(expected.customers), len(expected.days)
    dollars = sum(row.cents for row in expected.customers)
    in_customers, in_days = (sum(row.cents for row in each) for each in model)
    return [
        Line("customers as in the file", everybody, len(wanted.intersection(model.customers))),
        Line("dollars of all customers", dollars, in_customers, in_cents=True),
        Line("best selling days, in order", days, sum(map(eq, expected.days, model.days))),
        Line("dollars of all days", dollars, in_days, in_cents=True),
    ]
