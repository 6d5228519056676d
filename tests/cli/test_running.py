"""What is no service ends when somebody has had enough of it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from rich.console import Console

from progressor.cli.runner import Runner, until_stopped
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


@contextlib.asynccontextmanager
async def _service() -> AsyncIterator[str]:
    yield "serves"


def _exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _fork(run: Callable[[], object]) -> int:
    """The id of a child that runs this, and ends with status 0; 14 seconds at most."""
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(14)
            run()
            os._exit(0)
        finally:
            os._exit(1)
    return child


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it is what is tested
def test_a_forked_child_of_a_service_has_the_signals_of_before() -> None:
    """`Process.terminate` ends it at once, also when it has just begun, and the service goes on."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupt = signal.getsignal(signal.SIGINT)
    found: list[int] = []

    def look() -> None:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) == interrupt

    def started(_serves: str) -> None:
        found.append(_exit_status(_fork(look)))
        for _ in range(20):
            child = _fork(lambda: time.sleep(60))
            os.kill(child, signal.SIGTERM)
            found.append(_exit_status(child))
        runner.stop()

    try:
        with Runner(grace=timedelta(seconds=1), stopping=lambda _: None) as runner:
            runner.run(_service(), started)
            assert signal.getsignal(signal.SIGTERM) == runner._on_signal
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found == [0, *[-signal.SIGTERM] * 20]


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
