"""`worker --processes N`: a supervisor, its children, and what becomes of them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor.cli import serve
from progressor.client.sync import SyncClient
from progressor.deployment.monitor import Monitor
from tests.cli.conftest import DEADLINE_SECONDS, Ended, Running, run

Spawn = Callable[..., Running]
Command = Callable[..., Ended]

NS = "till"
QUICK_LEASE = {
    "PROGRESSOR_HEARTBEAT_INTERVAL": "0.1",
    "PROGRESSOR_LEASE_AGE": "1",
    "PROGRESSOR_ZOMBIE_INTERVAL": "0.1",
}


class Workers:
    """The command with two children that serve, by their numbers."""

    def __init__(self, command: Running) -> None:
        self.command = command
        self.places: dict[str, Any] = {}
        self.pids: dict[int, int] = {}
        while len(self.pids) < 2 or not self.places:
            fields = json.loads(command.wait_for("serv"))
            match fields["message"]:
                case "serving":
                    self.places = fields
                case "child serves":
                    self.pids[fields["child"]] = fields["pid"]

    def begun_in(self) -> int:
        """The pid of the child that says next that a step has begun."""
        return _number_in(self.command.wait_for("step begun"))

    def end(self) -> int:
        """The status; no child is left either, or it would still hold the channel."""
        status = self.command.end()
        assert self.command.is_silent
        return status


@pytest.fixture
def workers(spawn: Spawn, dsn: str) -> Callable[..., Workers]:
    def begin(*options: str, app: str = "till", **more: Any) -> Workers:
        command = spawn("worker", app, "--processes", "2", *options, PROGRESSOR_DATABASE_URL=dsn, **more)
        return Workers(command)

    return begin


@pytest.fixture
def client(dsn: str) -> Iterator[SyncClient]:
    with SyncClient(dsn) as running:
        yield running


def _number_in(line: str) -> int:
    found = re.search(r"\d+", line)
    assert found is not None
    return int(found[0])


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _health(workers: Workers) -> tuple[int, dict[str, Any]]:
    status, text = _get(workers.places["health"])
    return status, json.loads(text)


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def _begin(client: SyncClient, process_id: str, call: str, args: object = None) -> None:
    client.start(NS, process_id)
    client.notify(NS, process_id, call, args)


def test_children_share_the_work(workers: Callable[..., Workers], client: SyncClient) -> None:
    """What one of them cannot do, because a handler blocks its loop, the other one does.

    A second signal ends them all, whatever they do.
    """
    both = workers("--metrics-port", "0")
    _eventually(lambda: _health(both)[0] == 200)
    _begin(client, "p1", "hog")
    hogged = both.begun_in()
    (other,) = set(both.pids.values()) - {hogged}
    client.start(NS, "p2")
    assert {client.call(NS, "p2", "add") for _ in range(5)} == {other}
    number = next(number for number, pid in both.pids.items() if pid == hogged)
    status, health = _health(both)
    assert (status, health["ok"]) == (503, False)
    assert health["detail"].startswith(f"child {number}: the event loop has been blocked for ")
    assert health["fault"] == "event_loop"
    status, text = _get(f"{both.places['health']}/live")
    assert (status, json.loads(text)) == (
        503,
        {"ok": False, "detail": f"child {number}: no answer within 1.5 s from the event loop"},
    )
    group = os.getpgid(both.command.process.pid)
    assert group not in map(os.getpgid, both.pids.values()), "a Ctrl-C would reach more than the supervisor"
    both.command.signal(signal.SIGINT)
    both.command.wait_for("a second signal leaves at once")
    both.command.signal(signal.SIGINT)
    assert both.end() == 130


@pytest.mark.parametrize("told", ["supervisor", "everybody"])
def test_a_stop_lets_the_steps_of_all_finish(
    workers: Callable[..., Workers], client: SyncClient, dsn: str, tmp_path: Path, told: str
) -> None:
    """Also where a service manager tells every process of the service: that is no second signal."""
    both = workers()
    gate = tmp_path / "gate"
    _begin(client, "p1", "add_later", str(gate))
    busy = both.begun_in()
    if told == "everybody":
        for pid in both.pids.values():
            os.kill(pid, signal.SIGTERM)
    both.command.signal(signal.SIGTERM)
    both.command.wait_for("engine stopped")
    assert _runs(busy)
    gate.touch()
    assert both.end() == 0, both.command.output
    assert "error" not in both.command.output
    last = client.trace(NS, "p1")[-1]
    assert (last.status, last.response, last.attempts_count) == ("finished", busy, 0)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT FROM progressor.workers").rowcount == 0


def test_a_child_that_is_killed_is_replaced(
    workers: Callable[..., Workers], client: SyncClient, tmp_path: Path
) -> None:
    """Nothing is lost or done twice: its step runs again, elsewhere, and is saved once."""
    both = workers(**QUICK_LEASE)
    gate = tmp_path / "gate"
    _begin(client, "p1", "add_later", str(gate))
    killed = both.begun_in()
    os.kill(killed, signal.SIGKILL)
    ended = both.command.fields_of("child ended, starting another")
    assert (ended["pid"], ended["signal"], ended["level"]) == (killed, "SIGKILL", "error")
    assert both.pids[ended["child"]] == killed
    again = both.begun_in()
    assert again != killed
    gate.touch()
    _eventually(lambda: client.trace(NS, "p1")[-1].status == "finished")
    process = client.get(NS, "p1")
    assert (process.state, process.last_event_id, client.trace(NS, "p1")[-1].response) == (1, 1, again)
    both.command.signal(signal.SIGTERM)
    assert both.command.end() == 0


def test_children_are_recycled_and_no_step_is_lost(
    workers: Callable[..., Workers], client: SyncClient
) -> None:
    """Each after its share, while the others and its successor serve: every call is run once."""
    both = workers("--max-steps", "20", "--metrics-port", "0")
    client.start(NS, "p1")
    ran_in: list[int] = []

    def successors_ran() -> bool:
        ran_in.append(client.call(NS, "p1", "add"))
        return len(set(ran_in)) > 3

    _eventually(successors_ran)
    assert client.get(NS, "p1").state == len(ran_in)
    assert {entry.attempts_count for entry in client.trace(NS, "p1")} == {0}
    assert both.command.fields_of("child recycled")["status"] == 0
    both.command.signal(signal.SIGTERM)
    assert both.end() == 0, both.command.output
    assert "error" not in both.command.output


def test_children_outlive_their_supervisor_only_to_finish(
    workers: Callable[..., Workers], client: SyncClient, tmp_path: Path
) -> None:
    """However it ends: nobody has to look for them."""
    both = workers()
    gate = tmp_path / "gate"
    _begin(client, "p1", "add_later", str(gate))
    busy = both.begun_in()
    both.command.process.kill()
    for _ in both.pids:
        assert both.command.fields_of("supervisor gone")["child"] in both.pids
    assert _runs(busy)
    gate.touch()
    assert both.end() == -signal.SIGKILL
    assert client.trace(NS, "p1")[-1].response == busy


def test_one_endpoint_answers_for_all(workers: Callable[..., Workers], client: SyncClient) -> None:
    """Counts add up and outlive who counted; a gauge says whose it is; who is missing is seen."""
    both = workers("--metrics-port", "0")

    def samples() -> dict[str, float]:
        _, text = _get(both.places["metrics"])
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def steps() -> float:
        metric = "progressor_task_processing_duration_ms_count"
        return sum(value for name, value in samples().items() if name.startswith(metric))

    for number in range(10):
        client.start(NS, f"p{number}")
    _eventually(lambda: steps() == 10)
    assert 'progressor_slots{child="2",prg_namespace="till",state="free"}' in samples()
    os.kill(both.pids[1], signal.SIGSTOP)
    assert steps() == 10
    assert 'progressor_slots{child="1",prg_namespace="till",state="free"}' not in samples()
    assert _health(both)[1]["detail"] == "child 1: no answer"
    os.kill(both.pids[1], signal.SIGKILL)
    both.command.wait_for("child ended")
    assert steps() == 10
    assert samples()['progressor_background_failures_total{part="child"}'] == 1
    assert both.command.fields_of("child serves")["child"] == 1
    _eventually(lambda: _health(both)[0] == 200)
    client.start(NS, "last")
    _eventually(lambda: steps() == 11)
    both.command.signal(signal.SIGTERM)
    assert both.command.end() == 0


def test_what_is_wrong_with_the_command_is_said_once(dsn: str) -> None:
    """With the status that one worker alone would end with."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_PROCESES": "4"}
    ended = run("worker", "nowhere", "--processes", "2", **env)
    assert ended.status == 2, ended.err
    assert ended.err.count("did you mean PROGRESSOR_PROCESSES?") == 1
    assert ended.err.count("there is no module 'nowhere'") == 1
    last = json.loads(ended.err.splitlines()[-1])
    assert (last["message"], last["status"]) == ("child does not start, leaving", 2)


def test_how_many(progressor: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option goes before the variable; 0 is one for each core that may be used."""
    counts: list[int] = []
    monkeypatch.setattr(serve, "supervise", lambda _kind, count, *_, **__: counts.append(count))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 4, 5}, raising=False)
    env = {"PROGRESSOR_DATABASE_URL": "postgresql://nowhere/db", "PROGRESSOR_PROCESSES": "2"}
    for options in ([], ["--processes", "4"], ["--processes", "0"]):
        assert progressor("worker", "till", *options, **env).status == 0
    assert counts == [2, 4, 3]
    refused = progressor("worker", "till", "--processes", "-1", **env)
    assert refused.status == 2
    assert "--processes" in refused.err


def test_a_taken_port_is_refused_before_a_child_begins(progressor: Command, dsn: str) -> None:
    """With what to do about it."""
    with Monitor("127.0.0.1", 0) as other:
        port = other.url.rpartition(":")[2]
        env = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_PROCESSES": "2"}
        refused = progressor("worker", "till", "--metrics-port", port, **env)
    assert refused.status == 2
    assert "choose another port with --metrics-port" in refused.err
