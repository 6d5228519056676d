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
_LOOK_SECONDS, _JITTER_SECONDS = 0.01, 0.02


class CommandFailedError(Exception):
    """A command that ended by itself, and not well."""


@dataclass
class Runs:
    """The runs of one command up to its end: how many were killed, how long they took, their memory."""

    kills: int = 0
    seconds: float = 0.0
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
        while not _has_ended(running) and progress() < count:
            time.sleep(_LOOK_SECONDS)
        time.sleep(random.uniform(0, _JITTER_SECONDS))
        os.kill(running.pid, signal.SIGKILL)
        if _ended(runs, running, args, (-signal.SIGKILL, 0), began=began) == 0:
            return runs
        runs.kills += 1
        killed()
        args = again
    _ended(runs, command(dsn, *args), args, (0,))
    return runs


def _has_ended(process: subprocess.Popen[str]) -> bool:
    """Return whether a command has ended; it is left for `wait4`, which tells its memory."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ended(
    runs: Runs,
    process: subprocess.Popen[str],
    args: Sequence[str],
    allowed: Sequence[int],
    began: float | None = None,
) -> int:
    """Wait for the end of a run and add it to the others; return its exit status."""
    begun = time.monotonic() if began is None else began
    assert process.stdout is not None
    runs.said = process.stdout.read()
    _, waited, used = os.wait4(process.pid, 0)
    process.returncode = runs.status = status = os.waitstatus_to_exitcode(waited)
    process.stdout.close()
    runs.seconds += time.monotonic() - begun
    runs.peak_mib = max(runs.peak_mib, used.ru_maxrss / 1024)
    if status not in allowed:
        raise CommandFailedError(f"progressor {' '.join(args)} ended with status {status}: {runs.said}")
    return status
