"""The progress of a run and its results, for `progressor bench` and `benchmarks/`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from progressor.bench import samples
from progressor.bench.cases import BenchCase
from progressor.bench.databases import Server
from progressor.bench.measure import Figures
from progressor.bench.samples import Results

_WIDTH_OF_FILES = 160
_UNBOUNDED = 100_000

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


def measure(server: Server, cases: Sequence[BenchCase], *, repeats: int, console: Console) -> Results:
    """Run all cases with a progress bar; it drops all its databases, also if it fails."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    try:
        server.require_durable()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=len(cases) * repeats)

            def began(case: BenchCase) -> None:
                bar.update(task, description=f"{case.contestant}: {case.name}")

            def ended(case: BenchCase, answer: Figures | str) -> None:
                bar.advance(task)
                bar.console.print(_line(case, answer), style="dim", markup=False, soft_wrap=True)

            return samples.run(server, cases, repeats=repeats, began=began, ended=ended)
    finally:
        server.close()


def _line(case: BenchCase, answer: Figures | str) -> str:
    if isinstance(answer, str):
        return f"{case.name:24} {case.contestant:16} not measured: {answer}"
    figures = [shown(name, value) for name, value in answer.items() if name in ("rate", "us")]
    figures += [f"{name} {shown(name, value)}" for name, value in answer.items() if name not in _LEFT_OUT]
    p50 = answer.get("p50_ms")
    figures += [] if p50 is None else [f"p50 {shown('p50_ms', p50)}"]
    return f"{case.name:24} {case.contestant:16} {', '.join(figures)}"


def shown(name: str, value: float | None) -> str:
    """Return a figure with its unit as text; empty for None."""
    if value is None:
        return ""
    general = _ENDINGS.get(name.rpartition("_")[2], "{:,.2f}")
    return _UNITS.get(name, general).format(value)


def show(results: Results, console: Console) -> None:
    """Print the medians of all cases."""
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
    if (
        Measurement.get(console, console.options.update(max_width=_UNBOUNDED), table).maximum
        <= console.width
    ):
        console.print(table)
    else:
        for case in results.cases:
            _print_stacked(case, medians[case.key], results, console)
    facts = results.facts
    console.print(
        f"{facts['cores']} cores, PostgreSQL {facts['server_version']}, Python {facts['python']}; "
        f"fsync {facts['fsync']}, synchronous_commit {facts['synchronous_commit']}"
    )


def _print_stacked(case: BenchCase, median: Figures, results: Results, console: Console) -> None:
    """Print a case under its name: a table that is too wide would cut its numbers."""
    console.print(f"{case.name}  {case.contestant}", style="bold", markup=False)
    parts = [f"{_COLUMNS[name]} {shown(name, median[name])}" for name in _COLUMNS if name in median]
    rest = _others(median) or _why_not(results.failures.get(case.key, []))
    line = ", ".join([*parts, *([rest] if rest else [])])
    console.print(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)))


def _others(median: Figures) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {shown(name, value)}"
        for name, value in median.items()
        if name not in _LEFT_OUT
    )


def _why_not(failures: Sequence[str]) -> str:
    return f"not measured: {failures[-1]}" if failures else ""
