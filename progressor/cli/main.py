"""The command `progressor`: its options, its help, and the entry point."""

from __future__ import annotations

from typing import Annotated

import typer

from progressor.cli.group import Commands
from progressor.cli.streams import open_standard_streams
from progressor.release import VERSION

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"progressor {VERSION}")
        raise typer.Exit


@app.callback()
def progressor(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Durable processes on PostgreSQL: each with an id, a state, a history, a timer and a mailbox.

    Without PROGRESSOR_DATABASE_URL commands use an embedded PostgreSQL, one for each working folder;
    migrate, worker, scanner, zombie-collector and api use it only with --embedded.
    """


def main() -> None:
    """Run the command of this OS process's arguments."""
    open_standard_streams()
    app(prog_name="progressor")


if __name__ == "__main__":
    main()
