"""What is no service ends when somebody has had enough of it."""

from __future__ import annotations

import signal

import pytest
import typer
from rich.console import Console

from progressor.cli.running import until_stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_ends_the_block_with_a_line(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with status 130; then the signals are again what they were."""
    before = signal.getsignal(signal.SIGTERM)
    # Where tests run in the background it is ignored, and SIGTERM must end the block all the same.
    ignored = signal.SIG_IGN if number is signal.SIGTERM else signal.default_int_handler
    interrupt = signal.signal(signal.SIGINT, ignored)
    try:
        with pytest.raises(typer.Exit) as left, until_stopped(Console(), "Enough."):
            signal.raise_signal(number)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    assert left.value.exit_code == 130
    assert capsys.readouterr().out == "Enough.\n"
    assert signal.getsignal(signal.SIGTERM) == before
