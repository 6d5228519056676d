"""The command `progressor`: its options, its help, and the entry point."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from progressor.cli.group import Commands
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
    _open_standard_streams()
    app(prog_name="progressor")


def _open_standard_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise a socket takes its descriptor: then libuv aborts when it starts a child, and text for stderr
    goes to the peer of the socket.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # `open` takes the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":
    main()
