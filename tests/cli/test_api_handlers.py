"""`progressor api APP --run-handlers`: an API and the engine of an app in one OS process."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from progressor.client.sync import SyncClient
from tests.cli.conftest import NS, Ended, Running
from tests.cli.test_api import ORDER, _eventually

Spawn = Callable[..., Running]
Command = Callable[..., Ended]

BOTH = ("api", "shop:orders", "--run-handlers", "--port", "0")
TILL = "/v1/namespaces/till/processes"


def _begin(spawn: Spawn, dsn: str, *more: str, **env: str) -> tuple[Running, dict[str, Any]]:
    """The command, and the places that it logs."""
    service = spawn(*BOTH, *more, "--metrics-port", "0", PROGRESSOR_DATABASE_URL=dsn, **env)
    return service, service.fields_of('"serving"')


def _place(url: str) -> None:
    assert httpx.post(url + ORDER, json={"item": "tea"}, timeout=30).status_code == 201


def _status(url: str) -> int:
    return httpx.get(url, timeout=30).status_code


def _order_of(output: str, *texts: str) -> list[str]:
    return re.findall("|".join(texts), output)


def test_a_call_is_fused_where_it_arrives(spawn: Spawn, dsn: str) -> None:
    """No worker runs. A call is accepted, run and saved in one transaction: it runs when it is accepted."""
    _, places = _begin(spawn, dsn, PROGRESSOR_FUSE="always")
    _place(places["url"])
    called = httpx.post(f"{places['url']}{ORDER}/calls/pay", json={"amount": 3}, timeout=30)
    assert (called.status_code, called.json()) == (200, 3)
    with SyncClient(dsn) as client:
        begun, paid = client.trace(NS, "o1")
    assert begun.scheduled_time == begun.running_time
    assert paid.scheduled_time == paid.running_time
    assert paid.response == 3
    fused = f'progressor_fused_total{{prg_namespace="{NS}",task_type="%s"}} 1.0'
    text = httpx.get(places["metrics"], timeout=60).text
    assert {fused % "init", fused % "call"} <= {*text.splitlines()}


def test_it_is_a_worker_for_others_too(spawn: Spawn, progressor: Command, dsn: str) -> None:
    """It claims what clients send, declares schedules, and passes on what is another worker's."""
    app = ("planner:reports", "--run-handlers", "--port", "0")
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    url = spawn("api", *app, **env).fields_of('"serving"')["url"]
    with SyncClient(dsn) as client:
        client.start("shop.report", "r1", "sales")
    listed = progressor("schedules", "--namespace", "shop.report", "--json", **env)
    assert {each["name"] for each in listed.json} >= {"yearly", "flawed"}
    spawn("worker", "shop:orders", **env).wait_for("serving")
    _place(url)
    called = httpx.post(f"{url}{ORDER}/calls/echo", json="hello", timeout=30)
    assert called.json()["args"] == "hello"


def test_metrics_and_health_are_those_of_both(spawn: Spawn, dsn: str) -> None:
    """On one page each; the slots are those that --concurrency leaves."""
    _, places = _begin(spawn, dsn, "--concurrency", "2")
    _place(places["url"])
    for page in (places["metrics"], f"{places['url']}/metrics"):
        text = httpx.get(page, timeout=60).text
        assert f'progressor_slots{{prg_namespace="{NS}",state="free"}} 2.0' in text
        assert "progressor_http_request_ms_count{" in text
    for page in (places["health"], f"{places['url']}/health"):
        health = httpx.get(page, timeout=60).json()
        assert (health["ok"], health["workers"], health["namespaces"]) == (True, 1, [NS])
        assert [_status(f"{page}/{each}") for each in ("live", "ready")] == [200, 200]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_stops_with_requests_first(spawn: Spawn, dsn: str, tmp_path: Path, processes: str) -> None:
    """From SIGTERM on it is alive and not ready. A caller whose step ends in time gets its answer."""
    service, places = _begin(spawn, dsn, "--processes", processes, PROGRESSOR_HTTP_DRAIN="60")
    gate, health = tmp_path / "gate", places["health"]
    _eventually(lambda: _status(f"{health}/ready") == 200)
    _place(places["url"])
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        url = f"{places['url']}{ORDER}/calls/wait"
        last = threads.submit(httpx.post, url, json=str(gate), timeout=60)
        service.wait_for("step begun")
        service.signal(signal.SIGTERM)
        service.wait_for("answering requests, then finishing steps")
        _eventually(lambda: _status(f"{health}/ready") == 503)
        assert _status(f"{health}/live") == 200
        gate.touch()
        assert last.result().json() == "waited"
    assert service.end() == 0, service.output
    assert service.is_silent
    ends = _order_of(service.output, "api stopped", "engine stopped")
    assert ends[0] == "api stopped"
    assert ends.count("api stopped") == ends.count("engine stopped")


def test_a_step_outlives_the_api(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """Its caller gets the address to ask at when the API goes, and the step ends in its own grace."""
    service, places = _begin(spawn, dsn, PROGRESSOR_HTTP_DRAIN="0.1")
    gate = tmp_path / "gate"
    _place(places["url"])
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        url = f"{places['url']}{ORDER}/calls/wait"
        last = threads.submit(httpx.post, url, json=str(gate), timeout=60)
        service.wait_for("step begun")
        service.signal(signal.SIGTERM)
        stopping = service.fields_of("answering requests, then finishing steps")
        assert stopping["steps"] == 1
        service.wait_for("api stopped")
        assert last.result().status_code == 202
    with pytest.raises(httpx.ConnectError):
        httpx.get(places["url"], timeout=60)
    assert _status(f"{places['health']}/ready") == 503
    assert _status(f"{places['health']}/live") == 200
    gate.touch()
    assert service.end() == 0, service.output
    with SyncClient(dsn) as client:
        ended = client.trace(NS, "o1")[-1]
    assert (ended.status, ended.response, ended.attempts_count) == ("finished", "waited", 0)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT FROM progressor.workers").rowcount == 0


def test_the_lifespan_ends_last(spawn: Spawn, dsn: str) -> None:
    """Resources and middleware of the app are there for a call over HTTP, as in a worker."""
    service = spawn(
        *("api", "studio", "--run-handlers", "--port", "0"),
        PROGRESSOR_DATABASE_URL=dsn,
        PROGRESSOR_FUSE="always",
    )
    service.wait_for("lifespan entered")
    url = service.fields_of('"serving"')["url"]
    with SyncClient(dsn) as client:
        client.put("studio.song", "s")
    song = f"{url}/v1/namespaces/studio.song/processes/s/calls/record"
    assert httpx.post(song, json=None, timeout=30).json() == str(service.process.pid)
    service.signal(signal.SIGTERM)
    assert service.end() == 0, service.output
    said = _order_of(service.output, "record noted", "api stopped", "lifespan left", "engine stopped")
    assert said == ["record noted", "api stopped", "lifespan left", "engine stopped"]


def test_children_run_what_they_accept(spawn: Spawn, dsn: str) -> None:
    """Each is an API and a worker. One that is killed is replaced, while the other one answers."""
    command = spawn(
        *("api", "till", "--run-handlers", "--port", "0", "--processes", "2", "--metrics-port", "0"),
        PROGRESSOR_DATABASE_URL=dsn,
        PROGRESSOR_FUSE="always",
    )
    places: dict[str, Any] = {}
    pids: dict[int, int] = {}
    while len(pids) < 2 or not places:
        fields = json.loads(command.wait_for("serv"))
        match fields["message"]:
            case "serving":
                places = fields
            case "child serves":
                pids[fields["child"]] = fields["pid"]
    till = f"{places['url']}{TILL}/t1"
    assert httpx.post(till, timeout=30).status_code == 201
    ran_in: set[int] = set()

    def both_ran() -> bool:
        ran_in.add(httpx.post(f"{till}/calls/add", timeout=30).json())
        return len(ran_in) == 2

    _eventually(both_ran)
    assert ran_in == set(pids.values())
    slots = r'^progressor_slots\{child="(\d)",prg_namespace="till",state="free"\}'
    assert sorted(re.findall(slots, httpx.get(places["metrics"], timeout=60).text, re.MULTILINE)) == [
        "1",
        "2",
    ]
    os.kill(pids[1], signal.SIGKILL)
    assert httpx.post(f"{till}/calls/add", timeout=30).json() != pids[1]
    assert command.fields_of("child serves")["child"] == 1
    command.signal(signal.SIGTERM)
    assert command.end() == 0, command.output
    assert command.is_silent


def test_a_child_is_relieved_after_its_share(spawn: Spawn, dsn: str) -> None:
    """Of steps. Another one serves on the same socket before it leaves: nobody is refused."""
    command = spawn(
        *("api", "till", "--run-handlers", "--port", "0", "--processes", "2", "--max-steps", "20"),
        PROGRESSOR_DATABASE_URL=dsn,
    )
    till = command.fields_of('"serving"')["url"] + TILL + "/t1"
    assert httpx.post(till, timeout=30).status_code == 201
    ran_in: list[int] = []

    def successors_ran() -> bool:
        ran_in.append(httpx.post(f"{till}/calls/add", timeout=30).json())
        return len(set(ran_in)) > 3

    _eventually(successors_ran)
    assert httpx.get(till, timeout=60).json()["state"] == len(ran_in)
    assert command.fields_of("child recycled")["status"] == 0
    command.signal(signal.SIGTERM)
    assert command.end() == 0, command.output


def test_it_runs_handlers_by_its_variable(spawn: Spawn, dsn: str) -> None:
    """As by the option, in this process, until it has done its share."""
    env = {"PROGRESSOR_HTTP_RUN_HANDLERS": "true", "PROGRESSOR_MAX_STEPS": "1"}
    service = spawn("api", "till", "--port", "0", PROGRESSOR_DATABASE_URL=dsn, **env)
    till = service.fields_of('"serving"')["url"] + TILL + "/t1"
    assert httpx.post(till, timeout=30).status_code == 201
    assert service.fields_of("worker has done its share")["steps"] == 1
    assert service.end() == 0, service.output


OF_HANDLERS = (
    ("--concurrency", "5"),
    ("--no-scanner",),
    ("--zombie-collector",),
    ("--max-steps", "9"),
    ("--max-age", "60"),
)


@pytest.mark.parametrize("option", OF_HANDLERS, ids=lambda option: option[0])
def test_what_is_about_handlers_needs_them(progressor: Command, dsn: str, option: tuple[str, ...]) -> None:
    """Without --run-handlers such an option would do nothing, so it is refused by its name."""
    refused = progressor("api", "shop:orders", *option, PROGRESSOR_DATABASE_URL=dsn, COLUMNS="200")
    assert refused.status == 2
    assert option[0] in refused.err
    assert "say --run-handlers too" in refused.err


def test_handlers_need_an_app(progressor: Command, dsn: str) -> None:
    """By the option or by the variable; a wrong number of slots is named, too."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "COLUMNS": "200"}
    for refused in (
        progressor("api", "--run-handlers", **env),
        progressor("api", PROGRESSOR_HTTP_RUN_HANDLERS="true", **env),
    ):
        assert refused.status == 2
        assert "it needs an APP" in refused.err
    for count in ("0", "10001"):
        refused = progressor("api", "shop", "--run-handlers", "--concurrency", count, **env)
        assert refused.status == 2
        assert "--concurrency" in refused.err


def test_what_is_wrong_is_refused_before_a_handler_runs(spawn: Spawn, dsn: str) -> None:
    """A port that is taken, or half a setting: no lifespan is entered."""
    app = ("api", "studio", "--run-handlers", "--port")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        first = spawn(*app, port, PROGRESSOR_DATABASE_URL=dsn)
        assert first.end() == 2
        assert "--port" in first.output
    second = spawn(*app, "0", PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_HTTP_BURST="3")
    assert second.end() == 2
    assert "PROGRESSOR_HTTP_RATE" in second.output
    for each in (first, second):
        assert "lifespan entered" not in each.output


def test_a_lifespan_that_does_not_begin_ends_it(spawn: Spawn, dsn: str) -> None:
    """With the line and the status of a worker, and nobody is served."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "STUDIO": "fails to begin"}
    service = spawn("api", "studio", "--run-handlers", "--port", "0", **env)
    assert service.end() == 1
    assert "lifespan studio.lifespan failed on entering" in service.output
    assert '"serving"' not in service.output


def test_an_open_address_stops_the_engine_again(spawn: Spawn, dsn: str) -> None:
    """Without a token nobody may listen on all addresses: it leaves in order, with what to do."""
    service = spawn(
        *("api", "studio", "--run-handlers", "--host", "0.0.0.0", "--port", "0"),
        PROGRESSOR_DATABASE_URL=dsn,
    )
    assert service.end() == 2
    assert "progressor token create" in service.output
    assert _order_of(service.output, "lifespan left", "engine stopped") == [
        "lifespan left",
        "engine stopped",
    ]
