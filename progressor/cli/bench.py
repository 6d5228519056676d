"""`progressor bench`: the engine's own workloads on a user's server, or on the embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from progressor.bench.cases import GROUPS, own_cases
from progressor.bench.databases import Server
from progressor.bench.report import measure, show
from progressor.bench.rows import QUICK_SECONDS, Sizes, loads
from progressor.cli.options import DatabaseUrl, DataDir, read_settings
from progressor.cli.output import print_json
from progressor.cli.runner import until_stopped
from progressor.deployment.database import database
from progressor.texts import to_json

Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORKLOAD]...",
        show_default="all",
        help=f"{', '.join(GROUPS)}; or single cases as the table names them.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.1, help="Seconds for each rate.")]
Repeats = Annotated[int, typer.Option(min=1, help="Rounds; medians are shown.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="One second each, once, with a hundredth of the rows.")
]


def bench(
    workloads: Workloads = None,
    *,
    seconds: Seconds = 5.0,
    repeats: Repeats = 3,
    quick: Quick = False,
    out: Annotated[Path | None, typer.Option(help="Write all samples here, as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all samples as JSON.")] = False,
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Measure the engine on your server: steps, starts, calls and timers.

    It creates databases of its own and drops them, which its database user must be allowed to do.
    """
    sizes = Sizes()
    if quick:
        seconds, repeats, sizes = QUICK_SECONDS, 1, sizes.quick()
    wanted = set(workloads or GROUPS)
    cases = [case for case in own_cases(sizes, seconds=seconds) if {case.group, case.name} & wanted]
    if not cases:
        raise typer.BadParameter(f"there is none of these; there are {', '.join(GROUPS)}")
    console = Console(stderr=json, highlight=False)
    settings = read_settings(database_url=database_url, data_dir=data_dir)
    with until_stopped(console, "Stopped."), database(settings) as found:
        console.print(f"Measuring on {found.shown}.", markup=False, soft_wrap=True)
        results = measure(Server(found.dsn, loads(sizes)), cases, repeats=repeats, console=console)
    if out is not None:
        out.write_text(to_json(results.as_json(), indent=2) + "\n", encoding="utf-8")
    if json:
        print_json(results.as_json())
    else:
        show(results, console)
    raise typer.Exit(1 if results.failures else 0)
