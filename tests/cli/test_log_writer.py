"""A log that nobody reads keeps nobody from working, and nobody from stopping."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from progressor import metrics
from progressor.client.sync import SyncClient
from progressor.deployment import logs
from tests.cli.conftest import HERE, environment

log = logging.getLogger("progressor.test")

# For services whose log nobody sees.
DEADLINE_SECONDS = 120.0


class Pipe:
    """A pipe that holds nothing more: who writes to it blocks until it is read."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b" " * 4096)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b" ")
        os.set_blocking(self.writer, True)

    def read_until(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            seen += os.read(self.reader, 1 << 16)
        return seen


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    for each in (pipe.reader, pipe.writer):
        with suppress(OSError):
            os.close(each)


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_lines_are_dropped_and_counted(pipe: Pipe) -> None:
    """What finds no room any more; when the stream takes lines again, the log says how many it lacks."""
    with os.fdopen(pipe.writer, "w", closefd=False) as stream:
        logs.set_up(stream=stream)
        before = metrics.LOG_LINES_DROPPED._value.get()
        logging_ = threading.Thread(
            target=lambda: [log.warning("line", extra={"text": "x" * 10_000}) for _ in range(1_000)],
            daemon=True,
        )
        logging_.start()
        logging_.join(DEADLINE_SECONDS)
        assert not logging_.is_alive(), "a line of log blocks"
        dropped = metrics.LOG_LINES_DROPPED._value.get() - before
        assert 0 < dropped < 1_000
        seen = pipe.read_until(b"log lines dropped")
        rest = threading.Thread(target=logs.flush)
        rest.start()
        seen += pipe.read_until(b"}\n") if not seen.endswith(b"}\n") else b""
        rest.join()
    told = [json.loads(each) for each in seen.strip().splitlines() if b"log lines dropped" in each]
    assert sum(each["lines"] for each in told) == dropped


def test_a_stream_that_does_not_wait_loses_no_line(pipe: Pipe) -> None:
    """Another process that shares it has said so: lines wait for the reader all the same."""
    os.set_blocking(pipe.writer, False)
    with os.fdopen(pipe.writer, "w", closefd=False) as stream:
        logs.set_up(stream=stream)
        dropped = metrics.LOG_LINES_DROPPED._value.get()
        for number in range(40):
            log.warning("line %d %s", number, "x" * 3000)
        seen = pipe.read_until(b"line 39 x")
    logs.set_up()
    assert [seen.count(b"line %d x" % number) for number in range(40)] == [1] * 40
    assert metrics.LOG_LINES_DROPPED._value.get() == dropped


def test_a_stream_that_is_closed_fails_nobody(pipe: Pipe) -> None:
    """Its lines are counted."""
    os.close(pipe.reader)
    with os.fdopen(pipe.writer, "w", closefd=False) as stream:
        logs.set_up(stream=stream)
        before = metrics.LOG_LINES_DROPPED._value.get()
        log.warning("line")
        _eventually(lambda: metrics.LOG_LINES_DROPPED._value.get() == before + 1)
    logs.set_up()


def _spawn(dsn: str, pipe: Pipe, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "progressor", "worker", "till", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=pipe.writer,
        cwd=HERE,
        env=environment(PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_STOP_GRACE="1"),
    )


def _workers(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute("SELECT count(*) FROM progressor.workers").fetchone() or (0,)
    return int(count)


def _sessions(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'progressor%'"
            " AND datname = current_database()"
        ).fetchone() or (0,)
    return int(count)


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["worker", "supervisor"])
def test_a_service_works_and_stops(dsn: str, pipe: Pipe, options: tuple[str, ...]) -> None:
    """Its stderr is a pipe that is full: it serves all the same, and SIGTERM ends it with status 0."""
    process = _spawn(dsn, pipe, *options)
    try:
        with SyncClient(dsn) as client:
            _eventually(lambda: _workers(dsn) > 0)
            client.start("till", "t1", timeout=DEADLINE_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_children_end_with_their_supervisor(dsn: str, pipe: Pipe) -> None:
    """Killed, while nobody reads its log: the children notice, finish, and hold no connection."""
    process = _spawn(dsn, pipe, "--processes", "2")
    try:
        _eventually(lambda: _workers(dsn) > 0)
    finally:
        process.kill()
        process.wait()
    _eventually(lambda: _sessions(dsn) == 0)
