"""The command `progressor`: every command is registered here, by the group that its help shows it in."""

from __future__ import annotations

from typing import Annotated

import typer

from progressor import __version__
from progressor.cli import (
    api,
    bench,
    bulk,
    change,
    demo,
    doctor,
    errors,
    maintain,
    oversee,
    read,
    serve,
    status,
    timers,
    token,
)
from progressor.cli.group import ASK, LOOK, MAINTAIN, RUN, Commands
from progressor.cli.streams import open_standard_streams

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _commands in {
    RUN: {
        "demo": demo.demo,
        "dev": serve.dev,
        "worker": serve.worker,
        "scanner": serve.scanner,
        "zombie-collector": serve.zombie_collector,
        "api": api.api,
    },
    ASK: {
        "start": change.start,
        "call": change.call,
        "notify": change.notify,
        "repair": change.repair,
        "simple-repair": change.simple_repair,
        "set-timer": timers.set_timer,
        "unset-timer": timers.unset_timer,
        "fire-timer": timers.fire_timer,
        "stop-bulk": bulk.stop_bulk,
        "put": change.put,
        "remove": change.remove,
    },
    LOOK: {
        "get": read.get,
        "trace": read.trace,
        "search": read.search,
        "status": status.status,
        "errors": errors.errors,
        "workers": oversee.workers,
        "bulk": bulk.bulk,
        "bulks": bulk.bulks,
    },
    MAINTAIN: {
        "pause": oversee.pause,
        "resume": oversee.resume,
        "retire": oversee.retire,
        "migrate": maintain.migrate,
        "doctor": doctor.doctor,
        "bench": bench.bench,
    },
}.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(token.app, name="token", rich_help_panel=MAINTAIN)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"progressor {__version__}")
        raise typer.Exit


@app.callback()
def progressor(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Durable processes on PostgreSQL: each with an id, a state, a history, a timer and a mailbox.

    Without PROGRESSOR_DATABASE_URL an embedded PostgreSQL is used, one for each folder in which one works;
    migrate, worker, scanner, zombie-collector and api use it only if told --embedded.
    """


def main() -> None:
    """Run the command that this process was started with."""
    open_standard_streams()
    app(prog_name="progressor")


if __name__ == "__main__":
    main()
