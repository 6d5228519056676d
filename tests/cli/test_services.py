"""Commands that run until they are told to stop."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor.client.sync import SyncClient
from progressor.deployment.monitor import Monitor
from progressor.storage import migrations
from progressor.timers import SetTimer
from tests import postgres
from tests.cli.conftest import DEADLINE_SECONDS, HERE, NS, Ended, Running, environment, run
from tests.clusters import clusters

Spawn = Callable[..., Running]
Command = Callable[..., Ended]


def _get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
        return answer.status, answer.read().decode()


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def _begin_step(dsn: str, call: str, args: object = None) -> None:
    with SyncClient(dsn) as client:
        client.start(NS, "p1", {"item": "tea"})
        client.notify(NS, "p1", call, args)


def test_worker_finishes_its_step_on_sigterm(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """The first signal lets the step end, hands nothing out twice, and leaves with status 0."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    gate = tmp_path / "gate"
    _begin_step(dsn, "wait", str(gate))
    worker.wait_for("step begun")
    worker.signal(signal.SIGTERM)
    assert worker.fields_of("finishing steps")["steps"] == 1
    gate.touch()
    assert worker.end() == 0, worker.output
    assert "engine stopped" in worker.output
    with SyncClient(dsn) as client:
        last = client.trace(NS, "p1")[-1]
    assert (last.status, last.response) == ("finished", "waited")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT FROM progressor.workers").rowcount == 0


def test_a_worker_serves_without_docstrings(spawn: Spawn, dsn: str) -> None:
    """Under `python -OO` Python drops them: then its help says less, and it serves all the same."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn, PYTHONOPTIMIZE="2")
    worker.wait_for("serving")
    with SyncClient(dsn) as client:
        client.start(NS, "p1", {"item": "tea"})
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.output


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_second_signal_leaves_at_once(spawn: Spawn, dsn: str, number: signal.Signals, status: int) -> None:
    """Also when a handler blocks the event loop."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    _begin_step(dsn, "hog")
    worker.wait_for("step begun")
    worker.signal(number)
    worker.wait_for("finishing steps")
    assert worker.end_by(number) == status


def test_signal_while_starting(spawn: Spawn) -> None:
    """A service that never gets ready can be stopped."""
    code = (
        "import asyncio, contextlib, datetime\n"
        "from progressor.cli.runner import Runner\n"
        "@contextlib.asynccontextmanager\n"
        "async def service():\n"
        "    print('entering', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "    yield\n"
        "with Runner(grace=datetime.timedelta(1), stopping=lambda name: None) as runner:\n"
        "    runner.run(service(), print)\n"
        "print('left', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "entering\n"
        process.terminate()
        assert process.communicate(timeout=DEADLINE_SECONDS)[0] == "left\n"
        assert process.returncode == 0


def test_worker_serves_metrics_and_health(spawn: Spawn, dsn: str) -> None:
    """At the places that it logs, with what it has measured and whom it serves."""
    worker = spawn("worker", "shop:both", "--metrics-port", "0", PROGRESSOR_DATABASE_URL=dsn)
    places = worker.fields_of('"serving"')
    _begin_step(dsn, "pay", {"amount": 1})
    status, text = _get(places["metrics"])
    assert status == 200
    assert "progressor_request_preparing_duration_ms" in text
    assert 'progressor_slots{prg_namespace="shop.order"' in text
    status, text = _get(places["health"])
    assert status == 200
    assert json.loads(text) == {
        "ok": True,
        "detail": None,
        "workers": 1,
        "namespaces": ["shop.cart", "shop.order"],
        "paused": [],
        "fault": None,
        "fault_seconds": None,
    }


def _is(url: str, status: int) -> bool:
    try:
        return _get(url)[0] == status
    except urllib.error.HTTPError as error:
        with error:
            return error.code == status


def _ill(url: str) -> dict[str, Any]:
    """What a page of health says with a 503."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(url)
    with refused.value as answer:
        assert answer.code == 503
        said: dict[str, Any] = json.loads(answer.read())
    return said


def test_every_service_lives_while_its_database_is_away(spawn: Spawn) -> None:
    """Ready with it, not ready without it, never dead; and its logs are JSON when they are asked for."""
    commands = [
        ["worker", "shop"],
        ["worker", "till", "--processes", "2"],
        ["scanner"],
        ["zombie-collector"],
        ["api", "shop", "--run-handlers", "--port", "0"],
    ]
    with clusters(1) as (server,):
        server.initialise()
        server.start()
        migrations.upgrade(server.dsn)
        env = {"PROGRESSOR_DATABASE_URL": server.dsn, "PROGRESSOR_LOG_FORMAT": "json"}
        services = [spawn(*command, "--metrics-port", "0", **env) for command in commands]
        for service in [*services, spawn("dev", "shop", **env)]:
            health = service.fields_of('"serving"')["health"]
            _eventually(partial(_is, health, 200))
            assert _is(f"{health}/live", 200)
            assert _is(f"{health}/ready", 200)
        pages = [json.loads(service.seen[-1])["health"] for service in services]
        server.stop()
        for health in pages:
            _eventually(partial(_is, health, 503))
            _eventually(lambda page=health: _ill(page)["fault_seconds"] is not None)
            found = _ill(health)
            assert found["fault"] == "database"
            assert "PostgreSQL has not been available for " in found["detail"]
            # Nobody is restarted for it, and nobody leaves its balancer.
            assert _is(f"{health}/live", 200)
            assert _is(f"{health}/ready", 200)
        server.start()
        for health in pages:
            _eventually(partial(_is, health, 200))
        for service in services:
            service.signal(signal.SIGTERM)
            assert service.end() == 0, service.output
            for line in service.seen:
                assert {"message", "level", "timestamp"} <= json.loads(line).keys()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_is_not_ready_while_it_finishes(
    spawn: Spawn, dsn: str, tmp_path: Path, processes: str
) -> None:
    """From SIGTERM to the end of its last step: alive, and not ready. One process, or several as one."""
    worker = spawn(
        *("worker", "shop:orders", "--metrics-port", "0", "--processes", processes),
        PROGRESSOR_DATABASE_URL=dsn,
    )
    health = worker.fields_of('"serving"')["health"]
    _eventually(partial(_is, f"{health}/ready", 200))
    gate = tmp_path / "gate"
    _begin_step(dsn, "wait", str(gate))
    worker.wait_for("step begun")
    worker.signal(signal.SIGTERM)
    worker.wait_for("finishing steps")
    _eventually(partial(_is, f"{health}/ready", 503))
    assert _is(f"{health}/live", 200)
    gate.touch()
    assert worker.end() == 0, worker.output


def test_a_worker_ends_after_its_share(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """By itself, with status 0, and not before what runs has ended: the next one goes on."""
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    # The limit that it draws is 3: a fifth less, in whole steps.
    worker = spawn("worker", "shop:orders", "--max-steps", "4", **env)
    worker.wait_for("serving")
    gate = tmp_path / "gate"
    _begin_step(dsn, "wait", str(gate))
    worker.wait_for("step begun")
    with SyncClient(dsn) as client:
        client.start(NS, "p2", {"item": "tea"})
        assert worker.fields_of("worker has done its share")["reason"] == "steps"
        assert "signal" not in worker.fields_of("finishing steps")
        client.notify(NS, "p2", "pay", {"amount": 1})
        # Of a service manager: it is the first signal, and ends nothing at once.
        worker.signal(signal.SIGTERM)
        assert worker.fields_of("finishing steps")["signal"] == "SIGTERM"
        gate.touch()
        assert worker.end() == 0, worker.output
        spawn("worker", "shop:orders", **env).wait_for("serving")
        assert client.call(NS, "p2", "pay", {"amount": 1}) == 2
        assert client.trace(NS, "p1")[-1].response == "waited"
        assert {task.attempts_count for task in client.trace(NS, "p1")} == {0}


def test_a_worker_ends_at_its_age(spawn: Spawn, dsn: str) -> None:
    """Also if it has nothing to do."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_MAX_AGE="0.5")
    assert worker.fields_of("worker has done its share")["reason"] == "age"
    assert worker.end() == 0, worker.output


def test_scanner_wakes_a_worker_without_one(spawn: Spawn, dsn: str) -> None:
    """A timer that another process set is heard of through the scanner alone."""
    hour = {"PROGRESSOR_SCAN_INTERVAL": "PT1H", "PROGRESSOR_DATABASE_URL": dsn}
    worker = spawn("worker", "shop:orders", "--no-scanner", **hour)
    worker.wait_for("serving")
    scanner = spawn(
        "scanner", "--metrics-port", "0", PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_SCAN_INTERVAL="0.2"
    )
    health = scanner.fields_of('"serving"')["health"]
    with SyncClient(dsn) as client:
        client.put(NS, "p1", state={"item": "tea"}, action=SetTimer(after=timedelta(milliseconds=50)))
    worker.wait_for("expired")
    assert json.loads(_get(health)[1])["workers"] == 1
    scanner.signal(signal.SIGINT)
    assert scanner.end() == 0, scanner.output


def test_zombie_collector_takes_from_the_dead(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """A caller of a killed worker's process is told, and not left to wait."""
    env = {
        "PROGRESSOR_DATABASE_URL": dsn,
        "PROGRESSOR_HEARTBEAT_INTERVAL": "0.1",
        "PROGRESSOR_LEASE_AGE": "1",
    }
    worker = spawn("worker", "shop:orders", "--no-zombie-collector", **env)
    worker.wait_for("serving")
    _begin_step(dsn, "wait", str(tmp_path / "gate"))
    worker.wait_for("step begun")
    collector = spawn(
        "zombie-collector",
        PROGRESSOR_ZOMBIE_INTERVAL="0.1",
        **env,
    )
    collector.wait_for("serving")
    worker.kill()
    assert collector.fields_of("zombie detected")["process_id"] == "p1"
    with SyncClient(dsn) as client:
        assert client.get(NS, "p1").detail.startswith("zombie detected: worker ")
    collector.signal(signal.SIGTERM)
    assert collector.end() == 0, collector.output


def test_dev_brings_its_own_database(spawn: Spawn, data_dir: Path) -> None:
    """No setting at all: PostgreSQL starts, is migrated, shared with other commands, and ends."""
    env = {"PROGRESSOR_DATA_DIR": str(data_dir), **postgres.settings()}
    dev = spawn("dev", "shop:both", **env)
    assert dev.fields_of("database migrated")["before"] is None
    places = dev.fields_of('"serving"')
    assert str(data_dir) in places["database"]
    assert json.loads(_get(places["health"])[1])["ok"]
    started = run("start", NS, "p1", '{"item": "tea"}', **env)
    assert (started.status, started.out) == (0, f"started {NS}/p1\n"), started.err
    dev.signal(signal.SIGINT)
    assert dev.end() == 0, dev.output
    # The last user ends the server, or its watcher does, whoever is first.
    deadline = time.monotonic() + 30
    while list(data_dir.glob("pg*/data/postmaster.pid")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(data_dir.glob("pg*/data/postmaster.pid"))


def test_dev_shows_where_things_are_in_a_terminal(dsn: str) -> None:
    """And says, when it is told to stop, how to leave at once."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "progressor", "dev", "shop:orders"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=its_end,
        cwd=HERE,
        env=environment(PROGRESSOR_DATABASE_URL=dsn, COLUMNS="200", NO_COLOR="1", TERM="xterm"),
    )
    os.close(its_end)
    try:
        said = _read_until(terminal, 'progressor start shop.order first \'{"item": "…"}\'')
        assert "http://127.0.0.1:" in said
        assert '{"' not in said.split("Progressor")[0], "a terminal gets readable log lines"
        process.send_signal(signal.SIGINT)
        _read_until(terminal, "press Ctrl-C again to leave at once")
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _read_until(terminal: int, text: str) -> str:
    said = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            said += os.read(terminal, 65536)
        except OSError:
            break
        if text in said.decode(errors="ignore"):
            return said.decode()
    raise AssertionError(f"{text!r} was not said: {said.decode()}")


@pytest.mark.parametrize("command", [["worker", "shop"], ["scanner"], ["zombie-collector"]])
def test_an_old_schema_is_refused(
    progressor: Command, monkeypatch: pytest.MonkeyPatch, empty_dsn: str, command: list[str]
) -> None:
    """By every service, with what to do."""
    monkeypatch.chdir(HERE)
    refused = progressor(*command, PROGRESSOR_DATABASE_URL=empty_dsn)
    assert refused.status == 1
    assert refused.err.endswith("run `progressor migrate`\n")


def test_a_taken_port_is_an_error_that_says_what_to_do(progressor: Command, dsn: str) -> None:
    """Before anything runs."""
    with Monitor("127.0.0.1", 0) as other:
        port = other.url.rpartition(":")[2]
        refused = progressor("scanner", "--metrics-port", port, PROGRESSOR_DATABASE_URL=dsn)
    assert refused.status == 2
    assert "choose another port with --metrics-port" in refused.err


def test_passwords_are_said_nowhere(spawn: Spawn, progressor: Command, dsn: str) -> None:
    """Neither when all is well, nor when nothing is, at the most talkative level."""
    secret = "s3cr3t-word"
    known = dsn.replace("postgres@", f"postgres:{secret}@", 1)
    worker = spawn("worker", "shop", "--log-level", "debug", PROGRESSOR_DATABASE_URL=known)
    worker.wait_for("serving")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    nowhere = f"postgresql://postgres:{secret}@127.0.0.1:1/db"
    lost = run("scanner", "--log-level", "debug", PROGRESSOR_DATABASE_URL=nowhere)
    wrong = progressor("search", "--database-url", f"postgresql://x:{secret}@[::/db")
    helped = progressor("worker", "--help", PROGRESSOR_DATABASE_URL=known)
    assert (lost.status, wrong.status, helped.status) == (75, 2, 0)
    said = worker.output + "".join(each.out + each.err for each in (lost, wrong, helped))
    assert secret not in said


@pytest.mark.parametrize(
    "command",
    [["worker", "shop:orders"], ["worker", "shop:orders", "--processes", "2"], ["api", "--port", "0"]],
    ids=["worker", "children", "api"],
)
def test_polls_are_warned_of(spawn: Spawn, dsn: str, command: list[str]) -> None:
    """A service that has signals off logs once how slow that is, and what to set."""
    service = spawn(*command, PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_SIGNALS="false")
    line = service.fields_of("signals are off, answers wait for polls")
    assert (line["level"], line["poll_seconds"]) == ("warning", 1.0)
    assert "PROGRESSOR_LISTEN_DATABASE_URL" in line["instead"]
    service.signal(signal.SIGTERM)
    assert service.end() == 0, service.output
    assert service.output.count("signals are off") == 1
