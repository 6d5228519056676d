"""A command that was started without standard streams."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from progressor.client.sync import SyncClient
from tests.cli.conftest import HERE, environment
from tests.cli.test_log_writer import DEADLINE_SECONDS, _eventually, _workers


def _without(*descriptors: int) -> list[str]:
    """The beginning of a command line: what follows is run with these closed."""
    closed = " ".join(f"{each}>&-" for each in descriptors)
    return ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "progressor"]


def test_children_serve(dsn: str) -> None:
    """With stdin, stdout and stderr closed: no socket takes their numbers, and a stop has status 0."""
    process = subprocess.Popen(
        [*_without(0, 1, 2), "worker", "till", "--processes", "2"],
        cwd=HERE,
        env=environment(PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_STOP_GRACE="1"),
    )
    try:
        _eventually(lambda: process.poll() is not None or _workers(dsn) > 0)
        with SyncClient(dsn) as client:
            client.start("till", "t1", timeout=DEADLINE_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_an_error_keeps_its_status(descriptor: int) -> None:
    """Whichever stream is closed."""
    ended = subprocess.run(
        [*_without(descriptor), "worker", "nowhere"],
        cwd=HERE,
        env=environment(PROGRESSOR_DATABASE_URL="postgresql://nowhere/x"),
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert ended.returncode == 2
