"""`api --processes N`: children that share a socket, and what becomes of them."""

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

from tests.cli.conftest import Ended, Running
from tests.cli.test_api import ORDER, _eventually

Spawn = Callable[..., Running]

CHILDREN = 2


class Apis:
    """The command, when all its children serve."""

    def __init__(self, spawn: Spawn, dsn: str) -> None:
        self.command = spawn(
            "api",
            "--port",
            "0",
            "--processes",
            str(CHILDREN),
            PROGRESSOR_DATABASE_URL=dsn,
            PROGRESSOR_METRICS_PORT="0",
            PROGRESSOR_LOG_FORMAT="json",
        )
        self.places: dict[str, Any] = {}
        self.pids: dict[int, int] = {}
        while len(self.pids) < CHILDREN or not self.places:
            fields = json.loads(self.command.wait_for("serv"))
            match fields["message"]:
                case "serving":
                    self.places = fields
                case "child serves":
                    self.pids[fields["child"]] = fields["pid"]

    @property
    def url(self) -> str:
        return str(self.places["url"])

    def listed(self) -> float:
        """How often all children together have listed the namespaces."""
        text = httpx.get(self.places["metrics"], timeout=60).text
        counted = r'^progressor_http_request_ms_count\{.*route="/v1/namespaces".*\} (\S+)$'
        return sum(map(float, re.findall(counted, text, re.MULTILINE)))


def test_children_share_a_port(spawn: Spawn, dsn: str) -> None:
    """Each connection finds one of them; their metrics are those of one service, and so is their health."""
    apis = Apis(spawn, dsn)
    for _ in range(10):
        assert httpx.get(f"{apis.url}/v1/namespaces", timeout=60).json() == {"namespaces": []}
    _eventually(lambda: apis.listed() == 10)
    health = httpx.get(apis.places["health"], timeout=60)
    assert (health.status_code, health.json()["ok"]) == (200, True)


def test_a_child_that_is_killed_leaves_the_port_to_the_others(spawn: Spawn, dsn: str) -> None:
    """Whoever connects is answered, and another child takes its place."""
    apis = Apis(spawn, dsn)
    os.kill(apis.pids[1], signal.SIGKILL)
    for _ in range(10):
        assert httpx.get(f"{apis.url}/v1/namespaces", timeout=30).status_code == 200
    assert apis.command.fields_of("child serves")["child"] == 1


def test_a_stop_answers_what_is_under_way(spawn: Spawn, dsn: str, tmp_path: Path) -> None:
    """In every child; then nobody is left, and the status is 0."""
    worker = spawn("worker", "shop:orders", PROGRESSOR_DATABASE_URL=dsn)
    worker.wait_for("serving")
    apis = Apis(spawn, dsn)
    gate = tmp_path / "gate"
    urls = [f"{apis.url}{ORDER}{number}" for number in range(4)]
    for url in urls:
        assert httpx.post(url, json={"item": "tea"}, timeout=30).status_code == 201
    with concurrent.futures.ThreadPoolExecutor(len(urls)) as threads:
        waiting = [
            threads.submit(httpx.post, f"{url}/calls/wait", json=str(gate), timeout=60) for url in urls
        ]
        for _ in urls:
            worker.wait_for("step begun")
        apis.command.signal(signal.SIGTERM)
        for _ in range(CHILDREN):
            apis.command.wait_for("answering requests")
        gate.touch()
        assert [each.result().json() for each in waiting] == ["waited"] * len(urls)
    assert apis.command.end() == 0
    assert apis.command.is_silent


def test_a_taken_port_is_refused_before_a_child_begins(progressor: Callable[..., Ended], dsn: str) -> None:
    """Once, by its option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = progressor("api", "--port", port, "--processes", "2", PROGRESSOR_DATABASE_URL=dsn)
    assert ended.status == 2
    assert ended.err.count("--port") == 1
