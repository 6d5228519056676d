"""A command that was started without standard streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
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


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("status", "--json"),
        ("search", "--json"),
        ("export", "till"),
        ("get", "till", "t1"),
        ("remove", "till", "t1", "--yes", "--json"),
        ("migrate", "--sql"),
        ("--help",),
        ("--version",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_behind_stdout(dsn: str, command: tuple[str, ...], unbuffered: str) -> None:
    """Is an error as any other: a line, and the status of a file that cannot be written."""
    with SyncClient(dsn) as client, psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO progressor.namespaces (name, options) VALUES ('till', '{}')")
        connection.commit()
        client.put("till", "t1", state=None)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "progressor", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(PROGRESSOR_DATABASE_URL=dsn, PYTHONUNBUFFERED=unbuffered),
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    says = "stdout cannot be written: No space left on device"
    assert (ended.returncode, ended.stderr.count(says)) == (2, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "ignored" not in ended.stderr
    if "--json" in command:
        assert json.loads(ended.stderr.splitlines()[-1])["error"] == "InvalidRequest"


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
