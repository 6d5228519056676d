"""Commands as subprocesses and in this process; a worker that serves `planner.py`.

Rule: a test waits for what a command says, with a deadline, never for a time.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from progressor.cli.main import app
from tests import postgres
from tests.conftest import Databases

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DEADLINE_SECONDS = 180.0
NS = "shop.order"


# No test may start, or find, the embedded server of who runs the tests.
NO_EMBEDDED = {"PROGRESSOR_DATA_DIR": "/nowhere", "PROGRESSOR_POSTGRES_BIN_DIR": "/nowhere"}


def environment(**more: str) -> dict[str, str]:
    """This process's variables without settings, plus those given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROGRESSOR_")}
    return {**clean, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **NO_EMBEDDED, **more}


class Running:
    """A command that runs; what it says on both channels arrives line by line."""

    def __init__(self, *args: str, cwd: Path = HERE, **env: str) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen: list[str] = []
        # A shell that starts the tests in the background would make it deaf to SIGINT.
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "progressor", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=environment(**env),
        )
        signal.signal(signal.SIGINT, ours)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, text: str) -> str:
        """The next line that contains `text`."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was not said: {self.output}")

    def fields_of(self, text: str) -> dict[str, Any]:
        """The next log line that contains `text`, which must be JSON."""
        fields: dict[str, Any] = json.loads(self.wait_for(text))
        return fields

    @property
    def is_silent(self) -> bool:
        """Whether nobody has its channel any more, neither it nor whom it started."""
        return not self._reader.is_alive()

    @property
    def output(self) -> str:
        return "\n".join(self.seen)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """The exit status, once it has ended by itself; all that it said is in `output`."""
        status = self.process.wait(timeout=DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        while not self._lines.empty():
            self.seen += [line] if (line := self._lines.get()) is not None else []
        return status

    def end_by(self, number: int) -> int:
        """The same, at this signal: again and again, for Python does not hear one that comes just before
        a call of C blocks until that returns."""
        for _ in range(3):
            self.signal(number)
            with suppress(subprocess.TimeoutExpired):
                # Long enough for a service to end on a busy machine: a second signal would kill it.
                self.process.wait(timeout=DEADLINE_SECONDS / 3)
                break
        return self.end()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., Running]]:
    """Begins commands, and ends those that are left."""
    begun: list[Running] = []

    def begin(*args: str, **options: Any) -> Running:
        begun.append(Running(*args, **options))
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*args: str, stdin: str = "", cwd: Path = HERE, **env: str) -> Ended:
    """A command in a subprocess, from beginning to end."""
    done = subprocess.run(
        [sys.executable, "-m", "progressor", *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**env),
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def progressor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Runs a command in this process; keywords are variables."""
    for name in [name for name in os.environ if name.startswith("PROGRESSOR_")]:
        monkeypatch.delenv(name)
    for name, value in NO_EMBEDDED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def run_here(*args: str, stdin: str = "", **env: str) -> Ended:
        done = CliRunner().invoke(app, args, input=stdin, env=env, prog_name="progressor")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    return run_here


@pytest.fixture(scope="package")
def shop(databases: Databases, template: str) -> Iterator[str]:
    """The DSN of a database that a worker serves `planner.py` on."""
    name = databases.make(template)
    dsn = databases.dsn(name)
    worker = Running("worker", "planner:everything", PROGRESSOR_DATABASE_URL=dsn)
    try:
        worker.wait_for("serving")
        yield dsn
    finally:
        worker.kill()
        databases.drop(name)


@pytest.fixture
def ask(progressor: Callable[..., Ended], shop: str) -> Callable[..., Ended]:
    """Runs a command in this process on the database of the shop."""

    def on_shop(*args: str, **options: str) -> Ended:
        return progressor(*args, PROGRESSOR_DATABASE_URL=shop, **options)

    return on_shop


@pytest.fixture
def order() -> str:
    """A process id that nobody has."""
    return f"order-{uuid4().hex[:12]}"


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Where an embedded server may stand: as root it is another user, who must get there."""
    path = Path(tempfile.mkdtemp(prefix="prg-cli-", dir=postgres.PLACE))
    path.chmod(0o755)
    yield path / "postgres"
    shutil.rmtree(path)
