"""`progressor api` as an OS process: killed, stopped, and started without what it needs."""

from __future__ import annotations

import concurrent.futures
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.conftest import DEADLINE_SECONDS, Running

Spawn = Callable[..., Running]

ORDER = "/v1/namespaces/shop.order/processes/o1"


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def _api(spawn: Spawn, dsn: str) -> tuple[Running, str]:
    server = spawn("api", "--port", "0", PROGRESSOR_DATABASE_URL=dsn)
    return server, server.fields_of('"serving"')["url"]


def test_a_killed_server_loses_nothing(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """Killed between the acceptance and the answer: the same key gets the answer from another one, once."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    first, url = _api(spawn, dsn)
    assert httpx.post(url + ORDER, json={"item": "tea"}, timeout=30).status_code == 201
    gate, key = tmp_path / "gate", {"Idempotency-Key": "once"}
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        lost = threads.submit(
            httpx.post, f"{url}{ORDER}/calls/wait", json=str(gate), headers=key, timeout=60
        )
        worker.wait_for("step begun")
        first.kill()
        assert isinstance(lost.exception(), httpx.TransportError)
    _, url = _api(spawn, dsn)
    gate.touch()
    again = httpx.post(f"{url}{ORDER}/calls/wait", json=str(gate), headers=key, timeout=60)
    assert (again.status_code, again.json(), again.headers["Idempotent-Replayed"]) == (
        200,
        "waited",
        "true",
    )
    assert len(httpx.get(f"{url}{ORDER}/trace", timeout=60).json()["tasks"]) == 2


def test_it_stops_in_order(spawn: Spawn, dsn: str) -> None:
    """SIGTERM answers what is under way, and leaves with status 0."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    server, url = _api(spawn, dsn)
    assert httpx.post(url + ORDER, json={"item": "tea"}, timeout=30).status_code == 201
    server.signal(signal.SIGTERM)
    assert server.end() == 0, server.output
    assert "api stopped" in server.output


def test_it_is_not_ready_while_it_answers_its_last(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """From SIGTERM to the last answer: alive, not ready, on its own port and on that of its metrics."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    env = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_HTTP_DRAIN": "60"}
    server = spawn("api", "--port", "0", "--metrics-port", "0", **env)
    said = server.fields_of('"serving"')
    health = (f"{said['url']}/health", said["health"])
    assert httpx.post(said["url"] + ORDER, json={"item": "tea"}, timeout=30).status_code == 201
    gate = tmp_path / "gate"
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        last = threads.submit(httpx.post, f"{said['url']}{ORDER}/calls/wait", json=str(gate), timeout=60)
        worker.wait_for("step begun")
        assert [httpx.get(f"{each}/ready", timeout=60).status_code for each in health] == [200, 200]
        server.signal(signal.SIGTERM)
        server.wait_for("answering requests")
        for each in health:
            _eventually(lambda each=each: httpx.get(f"{each}/ready", timeout=60).status_code == 503)
            assert httpx.get(f"{each}/live", timeout=60).status_code == 200
        gate.touch()
        assert last.result().json() == "waited"
    assert server.end() == 0, server.output


def test_keys_can_be_required(spawn: Spawn, dsn: str) -> None:
    """Of calls, notices and repairs; a start has none to give."""
    spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn).wait_for("serving")
    server = spawn("api", "--port", "0", "--require-idempotency-key", PROGRESSOR_DATABASE_URL=dsn)
    url = server.fields_of('"serving"')["url"] + ORDER
    assert httpx.post(url, json={"item": "tea"}, timeout=30).status_code == 201
    for path in ("calls/echo", "notices/echo", "repairs", "repairs?simple=true", "timers/default/fire"):
        refused = httpx.post(f"{url}/{path}", timeout=30)
        assert (refused.status_code, refused.json()["field"]) == (400, "idempotency_key")
    called = httpx.post(f"{url}/calls/echo", headers={"Idempotency-Key": "key"}, timeout=30)
    assert called.status_code == 200


def test_it_says_which_extra_is_missing(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """Without its libraries: a usage error, and no other command needs them."""
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')")
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    server = spawn("api", PROGRESSOR_DATABASE_URL=dsn, PYTHONPATH=path)
    assert server.end() == 2
    assert "progressor-engine[http]" in server.output
    assert spawn("search", PROGRESSOR_DATABASE_URL=dsn, PYTHONPATH=path).end() == 0


def test_a_port_that_is_taken_is_named(spawn: Spawn, dsn: str) -> None:
    """With what to do."""
    _, url = _api(spawn, dsn)
    second = spawn("api", "--port", url.rpartition(":")[2], PROGRESSOR_DATABASE_URL=dsn)
    assert second.end() == 2
    assert "--port" in second.output
