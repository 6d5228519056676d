"""`progressor api` as an OS process: killed, stopped, and started without what it needs."""

from __future__ import annotations

import concurrent.futures
import signal
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.conftest import Running

Spawn = Callable[..., Running]

ORDER = "/v1/namespaces/shop.order/processes/o1"


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
    assert len(httpx.get(f"{url}{ORDER}/trace").json()["tasks"]) == 2


def test_it_stops_in_order(spawn: Spawn, dsn: str) -> None:
    """SIGTERM answers what is under way, and leaves with status 0."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    server, url = _api(spawn, dsn)
    assert httpx.post(url + ORDER, json={"item": "tea"}, timeout=30).status_code == 201
    server.signal(signal.SIGTERM)
    assert server.end() == 0, server.output
    assert "api stopped" in server.output


def test_it_says_which_extra_is_missing(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """Without its libraries: a usage error, and no other command needs them."""
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('no', name='fastapi')")
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
