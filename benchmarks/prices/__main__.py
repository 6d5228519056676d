"""`python -m benchmarks.prices calls` and `… sleepers`: prices of features, and of handlers that sleep."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.prices import calls, services, sleepers
from benchmarks.prices.told import ToldPrices, measured, show
from progressor.bench.databases import Server, run_sql
from progressor.bench.measure import Figures, Window
from progressor.deployment.loops import serving
from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.texts import to_json

_ALWAYS = {"rate": "rate", "p50_ms": "p50", "p99_ms": "p99"}
_CPU = {"client_cpu_us": "CPU Python", "server_cpu_us": "CPU server", "cpu_us": "both"}

Rounds = Annotated[
    int, typer.Option("--rounds", min=1, help="Rounds; in each, each case is measured once.")
]
Seconds = Annotated[float, typer.Option("--seconds", help="Seconds of each measurement.")]
WarmUp = Annotated[float, typer.Option("--warm-up", help="Seconds before each measurement.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all rounds here.")]
Samples = list[tuple[str, Callable[[], Coroutine[Any, Any, Figures]]]]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@contextmanager
def database() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the DSN of a database of an embedded server, and the facts of both."""
    with tempfile.TemporaryDirectory(prefix="progressor-prices-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)  # as root, the server is another user
        with EmbeddedPostgres(Path(folder) / "postgres", bin_dir=Settings().postgres_bin_dir) as server:
            serves = Server(server, {})
            serves.require_durable()
            with serves.database("fresh") as dsn:
                run_sql(dsn, services.MAKE_TABLE)
                yield dsn, serves.facts()


@app.command("calls")
def price_calls(
    *,
    rounds: Rounds = 8,
    seconds: Seconds = 1.0,
    warm_up: WarmUp = 0.3,
    callers: Annotated[list[int] | None, typer.Option("--callers", show_default="1 and 32")] = None,
    json: Json = None,
) -> None:
    """Measure calls: plain, typed, with a resource, with middleware, with a connection, and by hand."""
    console = Console(highlight=False)
    window = Window(seconds, warm_up)
    with database() as (dsn, facts), serving() as runner:
        samples: Samples = []
        beside = {}
        for many in callers or (1, 32):
            for price in calls.PRICES:
                samples.append((_named(price.name, many), partial(calls.sample, price, dsn, many, window)))
                beside[_named(price.name, many)] = _named(price.beside, many)
        told = ToldPrices({**facts, "rounds": rounds}, beside)
        measured(told, samples, rounds=rounds, run=runner.run, console=console)
        trips = runner.run(calls.round_trips(dsn))
        for price in calls.PRICES:
            for each in told.rounds.get(_named(price.name, 1), []):
                each["round_trips"] = trips[price.name]
    columns = {**_ALWAYS, **_CPU, "round_trips": "round trips"}
    _tell(told, columns, {"p50_ms": "p50", "cpu_us": "CPU"}, json, console)


@app.command("sleepers")
def price_sleepers(
    *,
    rounds: Rounds = 8,
    seconds: Seconds = 5.0,
    sleep: Annotated[float, typer.Option("--sleep", help="Seconds for which a handler sleeps.")] = 5.0,
    many: Annotated[list[int] | None, typer.Option("--sleepers", show_default="8 and 16")] = None,
    processes: Annotated[
        list[int] | None, typer.Option("--processes", show_default="200", help="Called by the others.")
    ] = None,
    json: Json = None,
) -> None:
    """Measure 32 callers beside handlers that sleep in the transaction of their step, and without them."""
    console = Console(highlight=False)
    # By then all sleep.
    window = Window(seconds, sleep)
    cases = sleepers.besides(many or (8, 16), processes or (200,))
    with database() as (dsn, facts), serving() as runner:
        told = ToldPrices({**facts, "rounds": rounds}, {case.name: case.alone.name for case in cases})
        samples: Samples = [
            (case.name, partial(sleepers.sample, case, dsn, sleep, window)) for case in cases
        ]
        measured(told, samples, rounds=rounds, run=runner.run, console=console)
    ratios = {"p50_ms": "p50", "p99_ms": "p99", "cpu_us": "CPU"}
    _tell(told, {**_ALWAYS, **_CPU}, ratios, json, console)


def _named(price: str, callers: int) -> str:
    return f"{callers}: {price}"


def _tell(
    told: ToldPrices, columns: dict[str, str], ratios: dict[str, str], json: Path | None, console: Console
) -> None:
    show(told, columns, ratios, console)
    if json is not None:
        json.write_text(to_json(told.as_json(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
