"""The services of docker-compose.yml as OS processes, with its commands and variables."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from progressor.client.sync import SyncClient
from progressor.timers import SetTimer
from tests.cli.conftest import DEADLINE_SECONDS, Running, run
from tests.clusters import free_port
from tests.deploy.manifests import DEPLOY, compose
from tests.support import SECOND

NS = "shop.order"


class Service(NamedTuple):
    """One replica of a service, and where it is asked."""

    name: str
    running: Running
    metrics: str
    port: int


def _get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, "nobody listens yet"


def _post(url: str, body: Any, key: str) -> Any:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        return json.loads(answer.read())


def _eventually(condition: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def _environment(service: dict[str, Any], dsn: str, metrics_port: int) -> dict[str, str]:
    """As compose says it, but for where PostgreSQL is, and for ports: here all are on one host."""
    said = {name: str(value) for name, value in service["environment"].items()}
    return {
        **said,
        "PROGRESSOR_DATABASE_URL": dsn,
        "PROGRESSOR_METRICS_HOST": "127.0.0.1",
        "PROGRESSOR_METRICS_PORT": str(metrics_port),
    }


@pytest.fixture
def services(empty_dsn: str) -> Iterator[dict[str, list[Service]]]:
    """Begun when what they wait for is done, so many of each as compose says."""
    said = {name: each for name, each in compose()["services"].items() if each["image"] == "progressor"}
    migrate = said.pop("migrate")
    done = run(*migrate["command"], cwd=DEPLOY / "example", **_environment(migrate, empty_dsn, 0))
    assert done.status == 0, done.err
    begun: dict[str, list[Service]] = {}
    try:
        for name, service in said.items():
            assert service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
            for _ in range(service.get("deploy", {}).get("replicas", 1)):
                begun.setdefault(name, []).append(_begin(name, service, empty_dsn))
        yield begun
    finally:
        for each in (replica for replicas in begun.values() for replica in replicas):
            each.running.kill()


def _begin(name: str, service: dict[str, Any], dsn: str) -> Service:
    metrics_port, port = free_port(), free_port()
    words = [str(port) if word in ("8080", "8090") else word for word in service["command"]]
    running = Running(*words, cwd=DEPLOY / "example", **_environment(service, dsn, metrics_port))
    return Service(name, running, f"http://127.0.0.1:{metrics_port}", port)


def test_they_work_together(services: dict[str, list[Service]], empty_dsn: str) -> None:
    """Asked over HTTP and by a client, woken by the scanner; seen by probes; ended without a lost word."""
    assert {name: len(each) for name, each in services.items()} == {
        "worker": 2,
        "scanner": 1,
        "zombie-collector": 1,
        "api": 1,
        "web": 1,
    }
    everybody = [replica for replicas in services.values() for replica in replicas]
    for each in everybody:
        _eventually(lambda url=each.metrics: _get(f"{url}/health/ready")[0] == 200, f"{each.name} is ready")
        assert _get(f"{each.metrics}/health/live")[0] == 200
    (api,) = services["api"]
    processes = f"http://127.0.0.1:{api.port}/v1/namespaces/{NS}/processes"
    _post(f"{processes}/first", {"item": "tea"}, "order-1")
    # As a container beside it calls it.
    assert _get(f"{processes}/first", Host=f"{api.name}:8080")[0] == 200
    assert _get(f"{processes}/first", Host="evil.example")[0] == 403
    (web,) = services["web"]
    assert f"{NS}</a>" in _get(f"http://127.0.0.1:{web.port}/namespaces")[1]
    assert _get(f"http://127.0.0.1:{web.port}/", Host="evil.example")[0] == 403
    for _ in range(2):
        assert _post(f"{processes}/first/calls/pay", {"amount": 3}, "payment-1") == 3
    with SyncClient(empty_dsn) as client:
        assert client.call(NS, "first", "pay", {"amount": 4}) == 7
        client.put(NS, "late", state={"item": "milk"}, action=SetTimer(after=SECOND / 10))
        _eventually(lambda: client.get(NS, "late").state.get("lapsed", False), "the scanner wakes a worker")
        # The payment that was asked for twice was made once.
        assert [event.payload for event in client.get(NS, "first").history] == [
            {"amount": 3},
            {"amount": 4},
        ]
    (scanner,) = services["scanner"]
    _eventually(
        lambda: (
            f'progressor_live_workers{{prg_namespace="{NS}"}} 2.0' in _get(f"{scanner.metrics}/metrics")[1]
        ),
        "the scanner counts the workers",
    )
    for each in everybody:
        each.running.signal(signal.SIGTERM)
    for each in everybody:
        assert each.running.end() == 0, each.running.output
        for line in each.running.seen:
            assert json.loads(line)["level"] in ("info", "debug"), line
