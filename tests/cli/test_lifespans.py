"""Commands that serve an App: each of their OS processes has a lifespan of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from progressor.client.sync import SyncClient
from tests.cli.conftest import Running

Spawn = Callable[..., Running]
NS = "studio.song"


def _record(dsn: str, process_id: str, gate: Path | None = None) -> str:
    with SyncClient(dsn) as client:
        client.put(NS, process_id)
        answer: str = client.call(NS, process_id, "record", None if gate is None else str(gate))
        return answer


def test_a_worker_leaves_its_lifespan_after_the_last_step(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """It enters it before it serves; a module is enough to find the app."""
    worker = spawn("worker", "studio", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("lifespan entered")
    worker.wait_for("serving")
    assert _record(dsn, "p") == str(worker.process.pid)
    worker.wait_for("record noted")
    with SyncClient(dsn) as client:
        client.notify(NS, "p", "record", str(tmp_path / "gate"))
    worker.wait_for("step begun")
    worker.signal(signal.SIGTERM)
    worker.wait_for("finishing steps")
    assert "lifespan left" not in worker.output
    (tmp_path / "gate").touch()
    assert worker.end() == 0, worker.output
    last = re.findall("step ended|record noted|lifespan left|engine stopped", worker.output)[-4:]
    assert last == ["step ended", "record noted", "lifespan left", "engine stopped"]


def test_each_child_has_a_lifespan_of_its_own(spawn: Spawn, dsn: str) -> None:
    """The supervisor has none."""
    worker = spawn("worker", "studio:app", "--processes", "2", PROGRESSOR_DATABASE_URL=dsn)
    for _ in range(2):
        worker.wait_for("child serves")
    assert _record(dsn, "p") != str(worker.process.pid)
    worker.signal(signal.SIGINT)
    assert worker.end() == 0, worker.output
    entered = re.findall(r"lifespan entered in (\d+)", worker.output)
    assert len(set(entered)) == 2
    assert str(worker.process.pid) not in entered
    assert sorted(re.findall(r"lifespan left in (\d+)", worker.output)) == sorted(entered)


@pytest.mark.parametrize("more", [(), ("--processes", "2")])
def test_a_lifespan_that_does_not_begin(spawn: Spawn, dsn: str, more: tuple[str, ...]) -> None:
    """The command ends with one line that names it, its place and the cause, and without a traceback."""
    worker = spawn("worker", "studio:app", *more, PROGRESSOR_DATABASE_URL=dsn, STUDIO="fails to begin")
    assert worker.end() == 1
    said = [line for line in worker.output.splitlines() if line.lower().startswith("error: ")]
    assert re.fullmatch(
        r"(?i:error): lifespan studio\.lifespan failed on entering: LookupError: no microphone "
        r"\(studio\.py, line \d+\)",
        said[0],
    ), worker.output
    assert "Traceback" not in worker.output
    assert '"serving"' not in worker.output


def test_a_lifespan_that_does_not_end(spawn: Spawn, dsn: str) -> None:
    """The worker leaves its database as ever, then says so with its status."""
    worker = spawn("worker", "studio:app", PROGRESSOR_DATABASE_URL=dsn, STUDIO="fails to end")
    worker.wait_for("serving")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 1
    assert "failed on leaving: LookupError: the microphone is gone" in worker.output
    assert "Traceback" not in worker.output
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT FROM progressor.workers").rowcount == 0


def test_resources_that_are_missing(spawn: Spawn, dsn: str) -> None:
    """Named before anything is served, with the status of a wrong command line."""
    worker = spawn("worker", "studio:app", PROGRESSOR_DATABASE_URL=dsn, STUDIO="gives nothing")
    assert worker.end() == 2
    assert f"microphone for record of {NS}" in worker.output
    assert "lifespan left" in worker.output
    assert '"serving"' not in worker.output
    alone = spawn("worker", "studio:songs", PROGRESSOR_DATABASE_URL=dsn)
    assert alone.end() == 2
    assert f"microphone for record of {NS}" in alone.output
    assert "lifespan entered" not in alone.output


def test_a_signal_while_the_lifespan_begins(spawn: Spawn, dsn: str) -> None:
    """The worker does not wait for it."""
    worker = spawn("worker", "studio:app", PROGRESSOR_DATABASE_URL=dsn, STUDIO="hangs")
    worker.wait_for("lifespan entered")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.output


def test_dev_and_the_api_take_an_app(spawn: Spawn, dsn: str) -> None:
    """`dev` serves its handlers; the API serves none, so it needs no lifespan."""
    dev = spawn("dev", "studio", PROGRESSOR_DATABASE_URL=dsn)
    dev.wait_for("serving")
    assert _record(dsn, "p") == str(dev.process.pid)
    dev.signal(signal.SIGTERM)
    assert dev.end() == 0
    assert "lifespan left" in dev.output
    api = spawn("api", "studio", "--port", "0", PROGRESSOR_DATABASE_URL=dsn, STUDIO="fails to begin")
    api.wait_for("serving")
    api.signal(signal.SIGTERM)
    assert api.end() == 0
    assert "lifespan" not in api.output
