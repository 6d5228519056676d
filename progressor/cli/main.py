"""The command `progressor`: its options, its help, and the entry point."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn, TextIO

import typer

from progressor.cli.failures import WRONG, report
from progressor.cli.group import Commands
from progressor.errors import InvalidRequest
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
    output = _Output(sys.stdout.fileno(), "wb", closefd=False)
    sys.stdout = _over(output, sys.stdout)
    try:
        try:
            app(prog_name="progressor")
        finally:
            with suppress(BrokenPipeError):
                sys.stdout.flush()
    except OSError as error:
        if error is not output.lost:
            raise
        _end_without_output(error)


class _Output(io.FileIO):
    """The bytes of stdout; `lost` is the error of the last write that failed, unless nobody reads them."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = error
            raise


def _over(output: _Output, before: TextIO) -> TextIO:
    """Return a stream of text that writes as `before` does, through `output`."""
    # As Python does it: with PYTHONUNBUFFERED each write goes straight to the descriptor.
    is_direct = getattr(before, "write_through", False)
    return io.TextIOWrapper(
        output if is_direct else io.BufferedWriter(output),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=bool(getattr(before, "line_buffering", False)),
        write_through=is_direct,
    )


def _end_without_output(error: OSError) -> NoReturn:
    """Print that stdout takes no more, and end with the status of a file that cannot be written."""
    # Python would write what is left at its end, and print a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    lost = InvalidRequest(f"stdout cannot be written: {error.strerror}", field="stdout")
    with suppress(OSError):
        report(lost, machine="--json" in sys.argv)
    raise SystemExit(WRONG)


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
