"""What the file says against what the processes say: the file is never read through the engine.

Rule: the processes are read by the public API alone, with their whole histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from progressor import Client, Process

from . import troubles
from .purchases import Customer, Purchase
from .replay import Progress, process_id
from .shop import NAMESPACE, Customer as State

READS_AT_ONCE = 2
PAGE = 500


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
    """What the processes say."""

    processes: int = 0
    broken: int = 0
    gapless: int = 0
    purchases: int = 0
    cds: int = 0
    cents: int = 0
    as_in_file: int = 0
    quiet_at_end: int = 0
    went_quiet: int = 0
    differences: list[str] = field(default_factory=list)


async def compare(
    client: Client, customers: Sequence[Customer], progress: Progress
) -> tuple[list[Line], Found]:
    """Read every process of the run and compare it with its lines of the file."""
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
    return _lines(customers, progress, found), found


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
