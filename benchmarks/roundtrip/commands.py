"""Commands as OS processes: killed by SIGKILL again and again, resumed, and measured.

Rule: a kill comes at a random part of the work and not at a chosen point of the code.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_LOOK_SECONDS, _LOOK_SHARE, _JITTER_SECONDS = 0.01, 5, 0.02


class CommandFailedError(Exception):
    """A command that ended by itself, and not well."""


@dataclass
class Runs:
    """The runs of one command up to its end: how many were killed, their time, CPU and memory."""

    kills: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0
    said: str = ""
    status: int = 0


def command(dsn: str, *args: str) -> subprocess.Popen[str]:
    """Begin `progressor` with these arguments, on this database."""
    return subprocess.Popen(
        [sys.executable, "-m", "progressor", *args],
        cwd=_ROOT,
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(dsn: str, *args: str, allowed: Sequence[int] = (0,)) -> Runs:
    """Run a command to its end; CommandFailedError if its exit status is none of those allowed."""
    runs = Runs()
    _ended(runs, command(dsn, *args), args, allowed)
    return runs


def kill_and_resume(
    dsn: str,
    first: Sequence[str],
    again: Sequence[str],
    *,
    progress: Callable[[], int],
    kills: Sequence[int],
    killed: Callable[[], None] = lambda: None,
) -> Runs:
    """Run a command to its end, killed at each of these counts of `progress`, and resumed.

    `killed` is called after each kill. A run that ends before its kill is the last one.
    """
    runs, args = Runs(), first
    for count in sorted(kills):
        running, began = command(dsn, *args), time.monotonic()
        _watch(runs, running, lambda: progress() >= count)  # noqa: B023 - called before the next one
        time.sleep(random.uniform(0, _JITTER_SECONDS))
        os.kill(running.pid, signal.SIGKILL)
        if _ended(runs, running, args, (-signal.SIGKILL, 0), began=began) == 0:
            return runs
        runs.kills += 1
        killed()
        args = again
    _ended(runs, command(dsn, *args), args, (0,))
    return runs


def _watch(runs: Runs, process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Wait until a command has ended, or something else is so; note its memory as it grows.

    What `wait4` tells of its memory would be that of this program, if this has more.
    """
    status = Path(f"/proc/{process.pid}/status")
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        look = time.monotonic()
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                runs.peak_mib = max(runs.peak_mib, int(line.split()[1]) / 1024)
        if until():
            return
        # To look takes a small part of the time, however much there is to be counted.
        time.sleep(max(_LOOK_SECONDS, _LOOK_SHARE * (time.monotonic() - look)))


def _ended(
    runs: Runs,
    process: subprocess.Popen[str],
    args: Sequence[str],
    allowed: Sequence[int],
    began: float | None = None,
) -> int:
    """Wait for the end of a run and add it to the others; return its exit status."""
    begun = time.monotonic() if began is None else began
    _watch(runs, process, lambda: False)
    assert process.stdout is not None
    runs.said = process.stdout.read()
    _, waited, used = os.wait4(process.pid, 0)
    process.returncode = runs.status = status = os.waitstatus_to_exitcode(waited)
    process.stdout.close()
    runs.seconds += time.monotonic() - begun
    runs.cpu_seconds += used.ru_utime + used.ru_stime
    if status not in allowed:
        raise CommandFailedError(f"progressor {' '.join(args)} ended with status {status}: {runs.said}")
    return status
