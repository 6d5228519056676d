"""/metrics and /health: what they say of a service that starts, runs, hangs and stops."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from progressor.client import system
from progressor.client.results import Health
from progressor.client.system import health_within
from progressor.deployment.health import Liveness
from progressor.deployment.monitor import Monitor
from progressor.errors import InvalidRequest
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    with Monitor("127.0.0.1", 0) as running:
        yield running


def _get(url: str, *, accept: str = "", method: str = "GET") -> tuple[int, str, bytes]:
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


async def _health(monitor: Monitor) -> tuple[int, dict[str, object]]:
    status, content_type, body = await asyncio.to_thread(_get, f"{monitor.url}/health")
    assert content_type == "application/json"
    return status, json.loads(body)


async def _asked(monitor: Monitor, page: str) -> tuple[int, dict[str, object]]:
    status, content_type, body = await asyncio.to_thread(_get, f"{monitor.url}/health/{page}".rstrip("/"))
    assert content_type == "application/json"
    return status, json.loads(body)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def _well() -> Health:
    return Health(True, None, 2, ("shop",), ("till",))


async def test_health_through_the_life_of_a_service(monitor: Monitor) -> None:
    """Ill while it starts and while it stops, well in between."""
    status, said = await _health(monitor)
    assert (status, said["detail"]) == (503, "starting")
    monitor.watch(_well)
    assert await _health(monitor) == (
        200,
        {
            "ok": True,
            "detail": None,
            "workers": 2,
            "namespaces": ["shop"],
            "paused": ["till"],
            "fault": None,
            "fault_seconds": None,
        },
    )
    monitor.leave()
    status, said = await _health(monitor)
    assert (status, said["detail"]) == (503, "stopping")


async def test_life_and_readiness_through_the_life_of_a_service(monitor: Monitor) -> None:
    """It lives from its start to its end; it is ready in between."""
    assert await _asked(monitor, "live") == (200, {"ok": True, "detail": "starting"})
    assert await _asked(monitor, "ready") == (503, {"ok": False, "detail": "starting"})
    monitor.watch(_well)
    for page in ("live", "ready"):
        assert await _asked(monitor, page) == (200, {"ok": True, "detail": None})
    monitor.leave()
    assert await _asked(monitor, "live") == (200, {"ok": True, "detail": None})
    assert await _asked(monitor, "ready") == (503, {"ok": False, "detail": "stopping"})


async def test_a_database_that_is_away_kills_nobody(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it says no or nothing at all: not healthy, but alive, and ready for those who wait for it."""
    answers = asyncio.Event()

    async def away() -> Health:
        await answers.wait()
        return Health(False, "PostgreSQL did not answer", 0, ())

    monitor.watch(away)
    with monkeypatch.context() as short:
        short.setattr(monitor, "_seconds", 0.05)
        assert (await _asked(monitor, ""))[0] == 503
    assert (await _asked(monitor, "live"))[0] == 200
    assert (await _asked(monitor, "ready"))[0] == 200
    answers.set()
    status, health = await _asked(monitor, "")
    assert (status, health["detail"]) == (503, "PostgreSQL did not answer")
    assert (await _asked(monitor, "live"))[0] == 200
    assert (await _asked(monitor, "ready"))[0] == 200


async def test_a_blocked_loop_does_not_live(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked while it is blocked, by this very test; it lives again when it goes on."""
    monitor.watch(_well)
    with monkeypatch.context() as short:
        short.setattr(monitor, "_seconds", 0.05)
        status, _, body = _get(f"{monitor.url}/health/live")
    assert (status, json.loads(body)["detail"]) == (503, "no answer within 0.05 s from the event loop")
    assert (await _asked(monitor, "live"))[0] == 200


def test_a_loop_that_has_ended_is_about_to_leave(monitor: Monitor) -> None:
    """Its OS process ends: there is nothing to restart."""

    async def watch() -> None:
        monitor.watch(_well)

    asyncio.run(watch())
    assert _get(f"{monitor.url}/health/live")[0] == 200
    assert _get(f"{monitor.url}/health/ready")[0] == 503


@pytest.mark.parametrize("begun", [True, False])
def test_a_loop_that_ends_instead_of_an_answer_is_about_to_leave(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """Whether it had begun with the question or not."""
    asked = threading.Event()

    async def never() -> Liveness:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def watch() -> None:
        monitor.watch(_well, never)

    async def begin() -> None:
        await asyncio.to_thread(asked.wait)

    monkeypatch.setattr(monitor, "_seconds", 30 if begun else 0.2)
    with ThreadPoolExecutor(1) as others, asyncio.Runner() as runner:
        runner.run(watch())
        life = others.submit(monitor.life)
        if begun:
            runner.run(begin())
        else:
            # Nothing runs on the loop any more: what it is told remains there.
            _until(lambda: len(runner.get_loop()._ready) > 0)  # type: ignore[attr-defined]
        runner.close()
        assert life.result(10) == (True, "stopping")


async def test_ill_is_503(monitor: Monitor) -> None:
    """With the reason."""

    async def ill() -> Health:
        return Health(False, "PostgreSQL did not answer", 0, ())

    monitor.watch(ill)
    status, said = await _health(monitor)
    assert (status, said["detail"]) == (503, "PostgreSQL did not answer")


async def test_no_answer_is_503(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is blocked, or a database that hangs, is not healthy; metrics are still to be had."""

    async def never() -> Health:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(monitor, "_seconds", 0.05)
    monitor.watch(never)
    status, said = await _health(monitor)
    assert status == 503
    assert said["detail"] == "no answer within 0.05 s, though the event loop runs"
    assert said["fault"] is None
    assert _get(f"{monitor.url}/metrics")[0] == 200, "the loop is blocked by this very request"


async def test_a_blocked_loop_is_named(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the time since when it is blocked, by this very test; in the log too."""
    monitor.watch(_well)
    with monkeypatch.context() as short:
        short.setattr(monitor, "_seconds", 0.8)
        status, _, body = _get(f"{monitor.url}/health")
    said = json.loads(body)
    assert (status, said["fault"]) == (503, "event_loop")
    assert said["fault_seconds"] >= 0.8
    assert said["detail"].startswith("the event loop has been blocked for ")
    (line,) = (each for each in caplog.records if each.name == "progressor.monitor")
    assert vars(line).items() >= {"fault": "event_loop", "cause": said["detail"]}.items()
    assert (await _health(monitor))[0] == 200


async def test_a_database_that_is_away_is_named(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its error and the time since when it is away, if that is known; in the log too."""

    async def never() -> Health:
        await asyncio.Event().wait()
        raise AssertionError

    monitor.watch(partial(health_within, never, 0.05))
    monkeypatch.setattr(system, "longest_outage", lambda: None)
    status, said = await _health(monitor)
    assert (status, said["fault"], said["fault_seconds"]) == (503, "database", None)
    assert str(said["detail"]).startswith("PostgreSQL did not answer within 0.05 s, without an error")
    outage = Outage(Logger("progressor.test"), OutageLines("gone", "still gone", "back"))
    outage.failed("OperationalError: refused")
    monkeypatch.setattr(system, "longest_outage", lambda: outage)
    monkeypatch.setattr(outage, "_since", time.monotonic() - 180)
    status, said = await _health(monitor)
    assert (status, said["fault"]) == (503, "database")
    assert said["detail"] == "PostgreSQL has not been available for 3 min: OperationalError: refused"
    assert isinstance(said["fault_seconds"], float)
    lines = [each for each in caplog.records if each.name == "progressor.monitor"]
    assert [vars(each)["fault"] for each in lines] == ["database"]


def test_metrics_in_both_formats(monitor: Monitor) -> None:
    """As the scraper asks for them."""
    status, content_type, body = _get(f"{monitor.url}/metrics")
    assert (status, content_type.startswith("text/plain")) == (200, True)
    assert b"# TYPE progressor_loop_lag_ms histogram" in body
    _, content_type, body = _get(f"{monitor.url}/metrics", accept="application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_other_paths_and_heads(monitor: Monitor) -> None:
    """There is nothing else, and a HEAD has no body."""
    assert _get(f"{monitor.url}/")[0] == 404
    assert _get(f"{monitor.url}/metrics", method="HEAD")[::2] == (200, b"")


def test_a_taken_port_is_refused(monitor: Monitor) -> None:
    """The error names the option."""
    port = int(monitor.url.rpartition(":")[2])
    with pytest.raises(InvalidRequest, match="--metrics-port"):
        Monitor("127.0.0.1", port)


@pytest.mark.parametrize("host", ["nohost.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_refused(host: str) -> None:
    """It is the host that is named, not the port."""
    with pytest.raises(InvalidRequest, match="--metrics-host") as refused:
        Monitor(host, 0)
    assert refused.value.field == "metrics_host"
    assert "port" not in str(refused.value)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6() -> None:
    """An IPv6 address is written in brackets."""
    try:
        running = Monitor("::1", 0)
    except InvalidRequest:
        pytest.skip("this machine has no IPv6 loopback")
    with running:
        assert running.url.startswith("http://[::1]:")
        assert _get(f"{running.url}/health")[0] == 503
