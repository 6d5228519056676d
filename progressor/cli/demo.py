"""`progressor demo`: the example `examples/cdnow`, from a checkout or from the wheel.

Rule: the example is imported, never copied: its own files in the example's folder run.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import shlex
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler

from progressor.cli.options import AsJson, DatabaseUrl, DataDir, with_settings
from progressor.cli.runner import until_stopped
from progressor.deployment.database import database
from progressor.deployment.settings import Settings
from progressor.embedded import named_data_dir
from progressor.errors import StorageUnavailable
from progressor.storage import migrations

# The demo's view shows the processes that break on purpose; these would log them again, with tracebacks.
_SHOWN_BY_THE_VIEW = ("progressor.handler", "progressor.worker")


@with_settings({"database_url": DatabaseUrl, "data_dir": DataDir})
def demo(
    *,
    customers: Annotated[
        int | None, typer.Option(min=1, help="The number of customers to replay.", show_default="all")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove earlier runs first.")] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Replay a shop's 6,919 purchases as processes, and check every one of them.

    Exit status 0 only if the processes agree with the file in everything.
    """
    console = Console(stderr=json, highlight=False)
    if settings.data_dir is None:
        # A folder of its own: nobody expects thousands of customers among his own processes.
        settings = settings.model_copy(update={"data_dir": named_data_dir("demo")})
    _log_above_the_view(console)
    with until_stopped(
        console, "Stopped. What was accepted is kept; another run begins with new customers."
    ):
        report = _run(settings, console, most=customers, forget=forget)
    if json:
        typer.echo(report.as_json())
    else:
        report.show(console)
    if settings.database_url is None:
        look = f"progressor search --limit 10 --data-dir {shlex.quote(str(settings.data_dir))}"
        console.print(f"They stay, for you to look at: {look}", markup=False, soft_wrap=True)
    raise typer.Exit(0 if report.agrees else 1)


def _run(settings: Settings, console: Console, **options: Any) -> Any:
    """Run the example on the configured database, or on the embedded PostgreSQL, and return its report."""
    if settings.database_url is None:
        console.print("Starting the embedded PostgreSQL.")
    with database(settings) as found:
        console.print(f"Running on {found.shown}.", markup=False, soft_wrap=True)
        migrations.upgrade(found.dsn, schema=settings.database_schema)
        options |= settings.engine_options() | {"scanner": True, "zombie_collector": True}
        return asyncio.run(_example().run(found.dsn, console, **options))


def _example() -> Any:
    """Load the example's main module: in a wheel inside the package, in a checkout beside it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "examples"
    folder = inside if inside.is_dir() else package.parent / "examples"
    # From this folder alone: another module of the same name must not be imported in its place.
    spec = PathFinder.find_spec("cdnow", [str(folder)])
    if spec is None or spec.loader is None:
        raise StorageUnavailable(f"the example is not in {folder}: reinstall progressor-engine")
    sys.modules["cdnow"] = example = module_from_spec(spec)
    spec.loader.exec_module(example)
    return importlib.import_module("cdnow.main")


def _log_above_the_view(console: Console) -> None:
    handler = RichHandler(logging.WARNING, console, show_path=False)
    logging.basicConfig(
        level=logging.WARNING, format="%(name)s: %(message)s", handlers=[handler], force=True
    )
    for name in _SHOWN_BY_THE_VIEW:
        logging.getLogger(name).setLevel(logging.CRITICAL)
