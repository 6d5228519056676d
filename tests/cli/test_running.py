"""What is no service ends when somebody has had enough of it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from progressor.cli.runner import until_stopped
from progressor.deployment.loops import serving


def test_ctrl_c_while_it_imports(tmp_path: Path) -> None:
    """It ends as by the signal, and prints nothing; its modules are imported for half a second."""
    (tmp_path / "typer.py").write_text("print('imports', flush=True)\nimport time\ntime.sleep(60)\n")
    begun = subprocess.Popen(
        [sys.executable, "-m", "progressor", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Where tests run in the background it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread
    )
    with begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == b"imports\n"
        begun.send_signal(signal.SIGINT)
        said = begun.communicate(timeout=30)
    assert (begun.returncode, said) == (-signal.SIGINT, (b"", b""))


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


def test_the_collector_leaves_what_was_there_alone_while_a_service_runs() -> None:
    """And looks at what is new less often; then it does what it did before."""
    gc.unfreeze()
    before = gc.get_threshold()
    with serving() as runner:
        within = runner.run(_collector())
        assert gc.get_freeze_count() > 10_000
    assert within == (max(10_000, before[0]), *before[1:])
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.parametrize("young", [0, 50_000])
def test_a_collector_that_is_switched_off_or_rarer_stays_so(young: int) -> None:
    """Whoever starts the process knows why."""
    before = gc.get_threshold()
    gc.set_threshold(young, *before[1:])
    try:
        with serving() as runner:
            assert runner.run(_collector())[0] == young
    finally:
        gc.set_threshold(*before)


async def _collector() -> tuple[int, int, int]:
    return gc.get_threshold()
