"""The run: an engine that serves the shop and keeps its read model, the replay, the check at the end."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from progressor import App, Client, Engine

from .check import Found, Line, compare
from .purchases import Customer, read_customers
from .read_model import make_tables, mend, sales
from .replay import Progress, Replay
from .shop import DAY, NAMESPACE, shop
from .view import Meter, Reading, best_sellers, show

MOST_DIFFERENCES = 20
MOST_SELLERS = 5

app = App([shop], projections=[sales])


@dataclass(frozen=True)
class Report:
    """How a run ended."""

    progress: Progress
    reading: Reading
    lines: list[Line]
    found: Found

    @property
    def differences(self) -> list[str]:
        """What nobody planned, and how processes differ from the file."""
        return self.progress.problems + self.found.differences

    @property
    def agrees(self) -> bool:
        """Whether everything is as the file says, and timers fired."""
        return (
            all(line.agrees for line in self.lines) and not self.differences and self.found.went_quiet > 0
        )

    def as_json(self) -> str:
        """The report for programs."""
        report = {
            "run": self.progress.run,
            "agrees": self.agrees,
            "checks": [
                {"what": line.what, "expected": line.expected, "found": line.found} for line in self.lines
            ],
            "went_quiet": self.found.went_quiet,
            "requests": self.progress.requests,
            "steps": self.reading.steps,
            "seconds": round(self.reading.seconds, 3),
            "best_days": [
                {"day": row.day.isoformat(), "cds": row.cds, "cents": row.cents}
                for row in self.found.sales.days[:MOST_SELLERS]
            ],
            "best_customers": [
                {"process_id": row.process_id, "cds": row.cds, "cents": row.cents}
                for row in self.found.sales.customers[:MOST_SELLERS]
            ],
            "differences": self.differences,
        }
        return json.dumps(report, indent=2)

    def show(self, console: Console) -> None:
        """The report for people."""
        table = Table(title="The shop against the file", title_justify="left")
        table.add_column("")
        table.add_column("the file", justify="right")
        table.add_column("the shop", justify="right")
        table.add_column("")
        for line in self.lines:
            verdict = "[green]agrees[/]" if line.agrees else "[bold red]DIFFERS[/]"
            table.add_row(line.what, line.show(line.expected), line.show(line.found), verdict)
        console.print(table)
        console.print(best_sellers(self.found.sales, MOST_SELLERS))
        for difference in self.differences[:MOST_DIFFERENCES]:
            console.print(difference, style="red", markup=False, soft_wrap=True)
        left_out = len(self.differences) - MOST_DIFFERENCES
        if left_out > 0:
            console.print(f"and {left_out:,} more differences", style="red")
        console.print(
            f"{self.progress.requests:,} requests and {self.reading.steps:,} steps in "
            f"{self.reading.seconds:.1f} s; customers went quiet {self.found.went_quiet:,} times."
        )
        console.print("[bold green]All agree.[/]" if self.agrees else "[bold red]Not all agree.[/]")


async def run(
    dsn: str, console: Console, *, most: int | None = None, forget: bool = False, **options: Any
) -> Report:
    """Replay the file on a migrated database and check it; `most`: only so many customers."""
    async with serving(dsn, **options) as engine:
        if forget:
            console.print(f"removed {await forget_runs(engine.client):,} customers of earlier runs")
        return await replay(engine.client, dsn, read_customers(most=most), console)


@asynccontextmanager
async def serving(dsn: str, **options: Any) -> AsyncIterator[Engine]:
    """Serve the shop with its read model, whose tables are made first."""
    await make_tables(dsn)
    async with Engine(dsn, app, **options) as engine:
        await mend(engine.client)
        yield engine


async def replay(
    client: Client, dsn: str, customers: Sequence[Customer], console: Console, *, day: timedelta = DAY
) -> Report:
    """One run, under a name of its own: runs do not touch each other, nor those before them."""
    replaying = Replay(client, customers, run=secrets.token_hex(3), day=day)
    progress = replaying.progress
    meter = Meter(progress)
    showing = asyncio.create_task(show(progress, meter, console))
    try:
        await replaying.run()
        await replaying.until_quiet()
        reading = meter.read()
        lines, found = await compare(client, dsn, customers, progress)
        progress.activity = "done"
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
    return Report(progress, reading, lines, found)


async def forget_runs(client: Client) -> int:
    """Remove the customers of all earlier runs; how many there were."""
    removed = 0
    while page := (await client.search(namespace=NAMESPACE, limit=500)).items:
        await asyncio.gather(*(client.remove(NAMESPACE, each.process_id) for each in page))
        removed += len(page)
    return removed
