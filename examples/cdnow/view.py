"""The run as it goes: a live screen in a terminal, else a line every second.

Rule: reads the progress and the engine's own metrics, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import zip_longest

from prometheus_client import REGISTRY
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .read_model import CustomerRow, DayRow, Sales
from .replay import Progress
from .shop import NAMESPACE

SCREEN_INTERVAL = 0.2
LINE_INTERVAL = 1.0
RATE_WINDOW = 2.0
SCREEN_WIDTH = 80
TASK_TYPES = ("init", "call", "timeout", "repair")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the meter shows at one moment."""

    seconds: float
    requests_per_second: float
    steps_per_second: float
    steps: int
    timers: int


class Meter:
    """Counts from the metrics that `/metrics` would serve, and rates over the last two seconds."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._first = self._sample()
        self._samples = deque([self._first])

    def read(self) -> Reading:
        """The counts since the meter was made, and the rates of the last two seconds."""
        last = self._sample()
        self._samples.append(last)
        while len(self._samples) > 2 and last[0] - self._samples[1][0] > RATE_WINDOW:
            self._samples.popleft()
        before = self._samples[0]
        passed = max(last[0] - before[0], 0.001)
        return Reading(
            seconds=last[0] - self._first[0],
            requests_per_second=(last[1] - before[1]) / passed,
            steps_per_second=(last[2] - before[2]) / passed,
            steps=last[2] - self._first[2],
            timers=last[3] - self._first[3],
        )

    def _sample(self) -> tuple[float, int, int, int]:
        now = asyncio.get_running_loop().time()
        steps = {task_type: _steps_of(task_type) for task_type in TASK_TYPES}
        return now, self._progress.requests, sum(steps.values()), steps["timeout"]


def _steps_of(task_type: str) -> int:
    """How many handlers of this kind this process has run."""
    labels = {"prg_namespace": NAMESPACE, "task_type": task_type}
    return int(REGISTRY.get_sample_value("progressor_task_processing_duration_ms_count", labels) or 0)


async def show(progress: Progress, meter: Meter, console: Console) -> None:
    """Show the run until cancelled."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(LINE_INTERVAL)
            console.print(as_line(progress, meter.read()), soft_wrap=True)
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(as_screen(progress, meter.read()), refresh=True)
                await asyncio.sleep(SCREEN_INTERVAL)
        finally:
            live.update(as_screen(progress, meter.read()), refresh=True)


def as_line(progress: Progress, reading: Reading) -> Text:
    """Everything that counts, in one line."""
    return Text(
        f"{progress.day}  {progress.purchases:,}/{progress.expected:,} purchases"
        f"  {reading.requests_per_second:,.0f} calls/s  {reading.steps_per_second:,.0f} steps/s"
        f"  {reading.timers:,} timers fired"
        f"  {_running(progress):,} running, {len(progress.broken)} broken"
        f"  {progress.refusals} refused, {progress.repairs} repaired"
        f"  {progress.activity}"
    )


def as_screen(progress: Progress, reading: Reading) -> Panel:
    """The live screen."""
    numbers = Table.grid(padding=(0, 3))
    for justify in ("right", "left", "right", "left", "right", "left"):
        numbers.add_column(justify=justify)
    numbers.add_row(
        f"[bold]{reading.requests_per_second:,.0f}[/]", "calls/s",
        f"[bold]{_running(progress):,}[/]", "running",
        f"[bold]{progress.refusals:,}[/]", "requests refused",
    )  # fmt: skip
    numbers.add_row(
        f"[bold]{reading.steps_per_second:,.0f}[/]", "steps/s",
        f"[bold red]{len(progress.broken)}[/]" if progress.broken else "[bold]0[/]", "broken",
        f"[bold]{progress.repairs:,}[/]", "processes repaired",
    )  # fmt: skip
    numbers.add_row(
        f"[bold]{reading.timers:,}[/]", "timers fired",
        f"[bold]{progress.customers:,}[/]", "customers",
        f"[bold]{progress.asked_twice:,}[/]", "asked twice, done once",
    )  # fmt: skip
    bar = Table.grid(padding=(0, 2), expand=True)
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_column(no_wrap=True)
    bar.add_row(
        f"{progress.day:%d %b %Y}",
        ProgressBar(total=progress.expected, completed=progress.purchases),
        f"{progress.purchases:,} of {progress.expected:,} purchases",
    )
    recent = Text(
        "\n".join(progress.recent) or "nothing went wrong yet",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )
    return Panel(
        Group(bar, "", numbers, "", recent),
        title=f"run {progress.run}: {progress.activity}",
        subtitle=f"{reading.seconds:.1f} s",
        width=SCREEN_WIDTH,
        padding=(1, 2),
    )


def best_sellers(sales: Sales, most: int) -> Table:
    """The best selling days and the best customers, as the read model has them."""
    table = Table(title="Best sellers, from the read model", title_justify="left")
    table.add_column("day")
    table.add_column("CDs", justify="right")
    table.add_column("dollars", justify="right")
    table.add_column("customer")
    table.add_column("CDs", justify="right")
    table.add_column("dollars", justify="right")
    days = [(f"{row.day:%d %b %Y}", *_amounts(row)) for row in sales.days[:most]]
    customers = [(row.process_id, *_amounts(row)) for row in sales.customers[:most]]
    for day, customer in zip_longest(days, customers, fillvalue=("", "", "")):
        table.add_row(*day, *customer)
    return table


def _amounts(row: DayRow | CustomerRow) -> tuple[str, str]:
    return f"{row.cds:,}", f"{row.cents // 100:,}.{row.cents % 100:02}"


def _running(progress: Progress) -> int:
    return progress.customers - len(progress.broken)
