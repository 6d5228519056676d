"""The run: an engine that serves the shop, the replay through its client, the check at the end."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from progressor import Client, Engine

from .check import Found, Line, compare
from .purchases import Customer, read_customers
from .replay import Progress, Replay
from .shop import DAY, NAMESPACE, shop
from .view import Meter, Reading, show

MOST_DIFFERENCES = 20


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
            "differences": self.differences,
        }
        return json.dumps(report, indent=2)

    def show(self, console: Console) -> None:
        """The report for people."""
        table = Table(title="The processes against the file", title_justify="left")
        table.add_column("")
        table.add_column("the file", justify="right")
        table.add_column("the processes", justify="right")
        table.add_column("")
        for line in self.lines:
            verdict = "[green]agrees[/]" if line.agrees else "[bold red]DIFFERS[/]"
            table.add_row(line.what, line.show(line.expected), line.show(line.found), verdict)
        console.print(table)
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
    async with Engine(dsn, [shop], **options) as engine:
        if forget:
            console.print(f"removed {await forget_runs(engine.client):,} customers of earlier runs")
        return await replay(engine.client, read_customers(most=most), console)


async def replay(
    client: Client, customers: Sequence[Customer], console: Console, *, day: timedelta = DAY
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
        lines, found = await compare(client, customers, progress)
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
