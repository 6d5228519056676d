"""`progressor bench`: the engine's own workloads on a user's server, or on the embedded one.

The progress bar and the table serve `benchmarks/` too, which measures other systems beside it.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from progressor.bench import samples
from progressor.bench.cases import GROUPS, Case, own_cases
from progressor.bench.databases import Server
from progressor.bench.measure import Figures
from progressor.bench.rows import Sizes
from progressor.bench.samples import Results
from progressor.cli.options import DatabaseUrl, DataDir, read_settings
from progressor.cli.output import print_json, to_json
from progressor.deployment.database import database

QUICK_SECONDS = 1.0
_QUICK_DIVISOR = 100
_INTERRUPTED = 130
_WIDTH_OF_FILES = 160

_UNITS = {
    "rate": "{:,.0f}/s",
    "us": "{:,.0f} µs",
    "wal_bytes": "{:,.0f} B",
    "stored_bytes": "{:,.0f} B",
    "count": "{:,.0f}",
    "client_cpu_us": "{:,.0f} µs",
    "server_cpu_us": "{:,.0f} µs",
}
_COLUMNS = {
    "rate": "rate",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "client_cpu_us": "CPU Python",
    "server_cpu_us": "CPU server",
    "wal_bytes": "WAL",
    "stored_bytes": "stored",
}
_ENDINGS = {
    "rate": "{:,.0f}/s",
    "us": "{:,.0f} µs",
    "ms": "{:,.2f} ms",
    "s": "{:,.2f} s",
    "mb": "{:,.0f} MB",
    "kb": "{:,.1f} kB",
}
_LEFT_OUT = {*_COLUMNS, "us", "count"}

Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORKLOAD]...",
        show_default="all",
        help=f"{', '.join(GROUPS)}; or single cases as the table names them.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long each rate is measured.")]
Repeats = Annotated[int, typer.Option(min=1, help="How often everything is measured; medians are shown.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="One second each, once, with a hundredth of the rows.")
]


def sizes_of(*, quick: bool) -> Sizes:
    """How big the big tables and backlogs are."""
    return Sizes().divided(_QUICK_DIVISOR) if quick else Sizes()


def bench(
    workloads: Workloads = None,
    *,
    seconds: Seconds = 5.0,
    repeats: Repeats = 3,
    quick: Quick = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write all samples here, as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all samples as JSON.")] = False,
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Measure the engine on your server: steps, starts, calls, timers, big tables, distance, memory.

    It makes databases of its own, and drops them; so its user must be allowed to create some.
    """
    if quick:
        seconds, repeats = QUICK_SECONDS, 1
    chosen = sizes_of(quick=quick)
    cases = list(own_cases(chosen, seconds=seconds, only=workloads or ()))
    if not cases:
        raise typer.BadParameter(f"there is none of these; there are {', '.join(GROUPS)}")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=json, highlight=False)
    settings = read_settings(database_url=database_url, data_dir=data_dir)
    with database(settings) as found:
        console.print(f"Measuring on {found.shown}.", markup=False, soft_wrap=True)
        results = measure(Server(found.dsn, chosen), cases, repeats=repeats, console=console)
    if out is not None:
        out.write_text(to_json(results.as_json(), indent=2) + "\n", encoding="utf-8")
    if json:
        print_json(results.as_json(), machine=True)
    else:
        show(results, console)
    raise typer.Exit(1 if results.failures else 0)


def measure(server: Server, cases: Sequence[Case], *, repeats: int, console: Console) -> Results:
    """Run all cases with a progress bar; Ctrl-C leaves no database behind."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    try:
        server.require_durable()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=len(cases) * repeats)

            def began(case: Case) -> None:
                bar.update(task, description=f"{case.contestant}: {case.name}")

            def heard(case: Case, answer: Figures | str) -> None:
                bar.advance(task)
                bar.console.print(_line(case, answer), style="dim", markup=False, soft_wrap=True)

            return samples.run(server, cases, repeats=repeats, began=began, heard=heard)
    except KeyboardInterrupt:
        console.print("Stopped.")
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        server.close()


def _line(case: Case, answer: Figures | str) -> str:
    if isinstance(answer, str):
        return f"{case.name:24} {case.contestant:16} not measured: {answer}"
    said = [shown(name, value) for name, value in answer.items() if name in ("rate", "us")]
    said += [f"{name} {shown(name, value)}" for name, value in answer.items() if name not in _LEFT_OUT]
    p50 = answer.get("p50_ms")
    said += [] if p50 is None else [f"p50 {shown('p50_ms', p50)}"]
    return f"{case.name:24} {case.contestant:16} {', '.join(said)}"


def shown(name: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return ""
    general = _ENDINGS.get(name.rpartition("_")[2], "{:,.2f}")
    return _UNITS.get(name, general).format(value)


def show(results: Results, console: Console) -> None:
    """The medians of all cases."""
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_FILES)
    medians = {case.key: results.median(case.key) for case in results.cases}
    columns = [name for name in _COLUMNS if any(name in median for median in medians.values())]
    table = Table(title=f"Medians of {results.facts['repeats']}", title_justify="left")
    for title in ("case", "system"):
        table.add_column(title, no_wrap=True)
    for name in columns:
        table.add_column(_COLUMNS[name], justify="right", no_wrap=True)
    table.add_column("also")
    for case in results.cases:
        median = medians[case.key]
        table.add_row(
            case.name,
            case.contestant,
            *(shown(name, median.get(name)) for name in columns),
            _others(median) or _why_not(results.failures.get(case.key, [])),
        )
    console.print(table)
    facts = results.facts
    console.print(
        f"{facts['cores']} cores, PostgreSQL {facts['server_version']}, Python {facts['python']}; "
        f"fsync {facts['fsync']}, synchronous_commit {facts['synchronous_commit']}"
    )


def _others(median: Figures) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {shown(name, value)}"
        for name, value in median.items()
        if name not in _LEFT_OUT
    )


def _why_not(failures: Sequence[str]) -> str:
    return f"not measured: {failures[-1]}" if failures else ""


def _interrupt(_signal: int, _frame: Any) -> None:
    signal.raise_signal(signal.SIGINT)
