"""`python -m benchmarks`: everything on one server, in turn, repeated; medians, ratios, a table, a plot."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import documents, environment
from benchmarks.contestants import BASELINES, PEERS, Target, beside, targets
from benchmarks.workloads.cases import GROUPS, all_cases
from benchmarks.workloads.rows import Sizes, loads
from progressor.bench.cases import BenchCase
from progressor.bench.databases import Server
from progressor.bench.report import measure, show
from progressor.bench.rows import QUICK_SECONDS
from progressor.bench.samples import Results
from progressor.cli.bench import Quick, Repeats, Seconds
from progressor.cli.runner import until_stopped
from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.texts import to_json

_ROOT = Path(__file__).resolve().parents[1]
_DOCS = _ROOT / "docs"
_PLOT = _DOCS / "explanation" / "performance.svg"

Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        show_default="all",
        help=f"A workload ({', '.join(GROUPS)}), a case (chain-200), or a system "
        f"(progressor, {', '.join((*BASELINES, *PEERS))}); more than once.",
    ),
]


def main(
    *,
    seconds: Seconds = 5.0,
    repeats: Repeats = 5,
    quick: Quick = False,
    only: Only = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write all samples here.")] = None,
    read: Annotated[
        Path | None, typer.Option("--read", help="Measure nothing; show the samples of this file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the figures here, as SVG or PNG.")
    ] = None,
    update_docs: Annotated[
        bool, typer.Option("--update-docs", help="Write tables and plot into docs/.")
    ] = False,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="A server, instead of an embedded one."),
    ] = None,
    cpus: Annotated[
        str, typer.Option("--cpus", help="Where all contestants' processes run, e.g. 0,1.")
    ] = "",
) -> None:
    """Measure the engine beside DBOS, Procrastinate, PgQueuer, Absurd, Oban, pgbench, and plain SQL."""
    console = Console(highlight=False)
    if read is not None:
        results = documents.read(read)
    else:
        results = _measure(
            console,
            seconds=QUICK_SECONDS if quick else seconds,
            repeats=1 if quick else repeats,
            quick=quick,
            only=only or [],
            database_url=database_url,
            cpus=[int(cpu) for cpu in cpus.split(",") if cpu],
        )
    judged = targets(results)
    show(results, console)
    _show_targets(judged, console)
    if json is not None:
        json.write_text(to_json(documents.as_json(results, judged), indent=2) + "\n", encoding="utf-8")
    if update_docs:
        documents.update(_DOCS, results, judged)
        plot = plot or _PLOT
    if plot is not None:
        _draw(results, judged, plot, console)


def _measure(
    console: Console,
    *,
    seconds: float,
    repeats: int,
    quick: bool,
    only: list[str],
    database_url: str | None,
    cpus: list[int],
) -> Results:
    others = [name for name in (*BASELINES, *PEERS) if not only or name in only or not _systems(only)]
    interpreter, peers = None, dict[str, str]()
    if set(others) & set(PEERS):
        console.print("Looking for the peers' environment (made once, takes a minute).")
        interpreter = environment.python()
        peers = environment.versions(interpreter)
        others = _installed(others, peers, interpreter, console)
    sizes = Sizes().quick() if quick else Sizes()
    cases = list(_chosen(beside(all_cases(sizes, seconds=seconds), others, interpreter), only))
    if not cases:
        raise typer.BadParameter("there is none of these", param_hint="--only")
    with until_stopped(console, "Stopped."), _server(database_url) as dsn:
        if cpus and hasattr(os, "sched_setaffinity"):
            # This process and its later children, the same for all contestants.
            os.sched_setaffinity(0, cpus)
        results = measure(Server(dsn, loads(sizes)), cases, repeats=repeats, console=console)
    results.facts["seconds"] = seconds
    results.facts["cpus"] = sorted(os.sched_getaffinity(0))
    if tree := environment.tree():
        results.facts["tree"] = tree
    if interpreter is not None:
        results.facts["peers"] = peers
    return results


def _installed(
    others: list[str], peers: Mapping[str, str], interpreter: Path, console: Console
) -> list[str]:
    """Return those that can be measured, and say which cannot."""
    missing = [name for name in others if name in PEERS and name not in peers]
    if missing:
        console.print(
            f"Not measured, as {interpreter} has no {' and no '.join(missing)}. Oban needs Python 3.12: "
            "name an interpreter that has it in PROGRESSOR_BENCH_PYTHON."
        )
    return [name for name in others if name not in missing]


def _systems(only: list[str]) -> set[str]:
    return set(only) & {"progressor", *BASELINES, *PEERS}


def _chosen(cases: Iterator[BenchCase], only: list[str]) -> Iterator[BenchCase]:
    systems = _systems(only)
    wanted = set(only) - systems
    for case in cases:
        named = not wanted or {case.group, case.name} & wanted
        if named and (not systems or case.contestant.partition(",")[0] in systems):
            yield case


@contextmanager
def _server(database_url: str | None) -> Iterator[str]:
    """The server of that URL, or an embedded one on the disk of /var/tmp, gone afterwards."""
    if database_url is not None:
        yield database_url
        return
    with tempfile.TemporaryDirectory(prefix="progressor-bench-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)  # as root, the server is another user
        with EmbeddedPostgres(Path(folder) / "postgres", bin_dir=Settings().postgres_bin_dir) as dsn:
            yield dsn


def _show_targets(judged: list[Target], console: Console) -> None:
    table = Table(title="What it must show", title_justify="left")
    for title in ("ratio", "limit", "measured", ""):
        table.add_column(title, justify="left" if title == "ratio" else "right")
    for target in judged:
        if target.value is not None:
            verdict = "[green]met[/]" if target.met else "[red]missed[/]"
            table.add_row(target.says, target.bound, f"{target.value:,.2f}", verdict)
    if table.row_count:
        console.print(table)


def _draw(results: Results, judged: list[Target], plot: Path, console: Console) -> None:
    """With matplotlib, which stands in the peers' environment."""
    plot.parent.mkdir(parents=True, exist_ok=True)
    samples = to_json(documents.as_json(results, judged))
    subprocess.run(
        [environment.python(), "-m", "benchmarks.plot", plot.resolve()],
        input=samples,
        text=True,
        check=True,
        cwd=_ROOT,
    )
    console.print(f"Drawn: {plot}")


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(_ROOT))
    typer.run(main)
