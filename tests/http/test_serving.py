"""The API on a socket: what it says of itself, and how it stops."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from progressor import Client, Engine, InvalidRequest, ReplyTimeout
from progressor.client.results import Health
from progressor.http import HttpClient
from progressor.http.server import request_body
from progressor.http.server.app import make_app
from progressor.http.server.options import HttpOptions
from progressor.http.server.serve import ApiServer
from progressor.loggers import message_of
from tests.acceptance.support import Gate
from tests.http import shop
from tests.open_access import OpenAccess
from tests.support import eventually

ORDER = "/v1/namespaces/shop.order/processes/o1"


def serving(dsn: str, *, drain: float = 5.0, port: int = 0) -> ApiServer:
    client = Client(dsn)
    app = make_app(client, access=OpenAccess(), options=HttpOptions(drain=drain))
    return ApiServer(client, app, host="127.0.0.1", port=port)


async def test_a_stop_tells_who_waits_where_to_ask(dsn: str) -> None:
    """202 for what has no answer yet; the task goes on, and another server gives the answer."""
    gate = Gate()
    async with Engine(dsn, [shop.make(gate)]), httpx.AsyncClient(timeout=60) as http:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(serving(dsn, drain=0.1))
            await http.post(first.url + ORDER, json={"item": "tea"})
            waiting = asyncio.ensure_future(http.post(f"{first.url}{ORDER}/calls/wait"))
            await gate.entered()
            # The handler may begin before the server hears that its request is accepted.
            await eventually(lambda: first.busy == 1, "it waits for the answer")
        answer = await waiting
        assert answer.status_code == 202
        assert first.busy == 0
        gate.open()
        async with serving(dsn) as second:
            task = second.url + answer.headers["Location"]
            assert (await http.get(task, headers={"Prefer": "wait=30"})).json() == "waited"


async def test_a_stop_lets_answers_come(dsn: str) -> None:
    """Who waits gets the answer if it comes in time; who asks whether it is ready hears that it stops."""
    gate = Gate()
    async with Engine(dsn, [shop.make(gate)]), httpx.AsyncClient(timeout=60) as http:
        one = serving(dsn, drain=30)
        await one.__aenter__()
        await http.post(one.url + ORDER, json={"item": "tea"})
        waiting = asyncio.ensure_future(http.post(f"{one.url}{ORDER}/calls/wait"))
        await gate.entered()
        await eventually(lambda: one.busy == 1, "it waits for the answer")
        assert (await http.get(f"{one.url}/health/ready")).status_code == 200
        stopping = asyncio.ensure_future(one.__aexit__(None, None, None))
        await eventually(lambda: one.is_stopping, "it stops")
        # On connections of their own, as probes are: it still listens.
        async with httpx.AsyncClient(base_url=one.url, timeout=60) as probe:
            ready, live, asked = [
                await probe.get(path) for path in ("/health/ready", "/health/live", "/v1/namespaces")
            ]
        assert (ready.status_code, ready.json()) == (503, {"ok": False})
        assert (live.status_code, live.json()) == (200, {"ok": True})
        assert asked.status_code == 200
        gate.open()
        assert (await waiting).json() == "waited"
        await stopping


async def test_who_has_just_connected_is_answered(dsn: str) -> None:
    """The server took the connection as it stopped; its peer has nobody else to ask."""
    one = serving(dsn)
    await one.__aenter__()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(one.url.rpartition(":")[2]))
    state = one._server.server_state
    await eventually(lambda: len(state.connections) == 1, "it is taken")
    stopping = asyncio.ensure_future(one.__aexit__(None, None, None))
    await eventually(lambda: not one._server.servers[0].is_serving(), "no more are taken")
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: api\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await stopping


async def test_a_caller_who_leaves_stops_nothing(dsn: str) -> None:
    """Its task goes on, and nobody waits for it any more."""
    gate = Gate()
    async with Engine(dsn, [shop.make(gate)]), serving(dsn) as one:
        async with httpx.AsyncClient(timeout=60) as http:
            await http.post(one.url + ORDER, json={"item": "tea"})
            waiting = asyncio.ensure_future(http.post(f"{one.url}{ORDER}/calls/wait"))
            await gate.entered()
            waiting.cancel()
        await eventually(lambda: one.busy == 0, "nobody waits")
        gate.open()
        trace = await one.client.trace("shop.order", "o1")
        assert await one.client.result("shop.order", "o1", trace[-1].task_id) == "waited"


@pytest.fixture
async def held(dsn: str) -> AsyncIterator[None]:
    """An order whose init waits, because its namespace is paused."""
    async with Engine(dsn, [shop.make()]) as engine:
        await engine.client.pause(shop.NS)
        await engine.client.submit_start(shop.NS, "o1", {"item": "tea"})
        yield


@pytest.mark.usefixtures("held")
async def test_a_reader_waits_as_long_as_it_prefers(dsn: str) -> None:
    """For the init, and hears that it took too long; and so does who reads events."""
    async with serving(dsn) as one, httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        reading = [http.get(url, headers={"Prefer": "wait=0"}) for url in (ORDER, f"{ORDER}/events")]
        for answer in await asyncio.gather(*reading):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.headers["Preference-Applied"] == "wait=1"
            assert answer.json()["type"] == "urn:progressor:problem:reply-timeout"
            assert answer.json()["paused"]
        async with HttpClient(one.url) as client:
            with pytest.raises(ReplyTimeout, match="is paused"):
                await client.get(shop.NS, "o1", timeout=2)


@pytest.mark.usefixtures("held")
async def test_a_stop_tells_readers_that_wait(dsn: str) -> None:
    """By the problem of a time-out, and not later than all others."""
    async with httpx.AsyncClient(timeout=60) as http:
        async with serving(dsn, drain=0.1) as one:
            urls = (one.url + ORDER, f"{one.url}{ORDER}/events")
            reading = [asyncio.ensure_future(http.get(url)) for url in urls]
            await eventually(lambda: one.busy == 2, "both wait")
        for answer in await asyncio.gather(*reading):
            assert answer.status_code == 503
            assert answer.json()["type"] == "urn:progressor:problem:reply-timeout"


@pytest.mark.usefixtures("held")
async def test_a_reader_who_leaves_is_not_waited_for(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted as gone."""
    caplog.set_level(logging.INFO, "progressor.http")
    async with serving(dsn) as one:
        async with httpx.AsyncClient(timeout=60) as http:
            reading = asyncio.ensure_future(http.get(one.url + ORDER))
            await eventually(lambda: one.busy == 1, "it waits")
            reading.cancel()
        await eventually(lambda: statuses(caplog), "it was answered, though nobody hears it")
        assert one.busy == 0
    assert statuses(caplog) == [499]


async def connected(one: ApiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(one.url.rpartition(":")[2]))


_HALF = f"""POST {ORDER} HTTP/1.1\r
Host: api\r
Content-Type: application/json\r
Content-Length: 100\r
\r
{{"item": """.encode()


async def test_a_caller_who_leaves_in_mid_body_is_no_defect(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted as gone, and nothing is said of an error."""
    caplog.set_level(logging.INFO)
    async with Engine(dsn, [shop.make()]), serving(dsn) as one:
        _, writer = await connected(one)
        writer.write(_HALF)
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: statuses(caplog), "it was answered, though nobody hears it")
    assert statuses(caplog) == [499]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_the_rest_of_a_body_is_not_waited_for_for_ever(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender is told, and the connection is closed."""
    monkeypatch.setattr(request_body, "_PATIENCE_SECONDS", 0.01)
    async with Engine(dsn, [shop.make()]), serving(dsn) as one:
        reader, writer = await connected(one)
        writer.write(_HALF)
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    assert head.startswith("HTTP/1.1 408 ")
    assert "connection: close" in head.lower()
    assert json.loads(body)["type"] == "urn:progressor:problem:too-slow"


async def test_a_connection_finds_out_whose_peer_has_vanished(dsn: str) -> None:
    """Each that is accepted inherits it."""
    one = serving(dsn)
    with one._socket as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            found = [
                accepted.getsockopt(socket.IPPROTO_TCP, each)
                for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert found == [60, 15, 4]
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000


def statuses(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Those of the requests that were answered."""
    return [vars(each)["status"] for each in caplog.records if message_of(each) == "request answered"]


async def test_it_says_how_it_is(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """Alive, ready, with metrics; and a line for each request that holds nothing of it but its route."""
    caplog.set_level(logging.INFO, "progressor.http")
    async with (
        Engine(dsn, [shop.make()]),
        serving(dsn) as one,
        httpx.AsyncClient(base_url=one.url, timeout=60) as http,
    ):
        await http.post(ORDER, json={"item": "a-secret"}, headers={"Authorization": "Bearer a-secret"})
        await http.get("/v1/processes", params={"metadata": '{"a-secret": 1}'})
        await http.get("/a-secret")
        assert (await http.get("/health/live")).json() == {"ok": True}
        assert (await http.get("/health/ready")).status_code == 200
        assert (await http.get("/health")).json()["namespaces"] == ["shop.order"]
        text = (await http.get("/metrics")).text
    route = 'route="/v1/namespaces/{namespace}/processes/{process_id}",status="201"'
    assert f'progressor_http_request_ms_count{{method="POST",{route}}}' in text
    assert 'route="other",status="404"' in text
    assert "a-secret" not in text
    lines = [vars(each) for each in caplog.records if message_of(each) == "request answered"]
    assert [(each["method"], each["status"]) for each in lines[:3]] == [
        ("POST", 201),
        ("GET", 200),
        ("GET", 404),
    ]
    assert not any("a-secret" in str(each) for each in lines)


async def test_an_address_that_is_taken_is_refused(dsn: str) -> None:
    """With the option to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidRequest, match="--port"):
            serving(dsn, port=taken.getsockname()[1])


async def test_probes_ask_the_database_nothing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is away every API stays ready: a request that waits is better than none that is sent."""
    async with (
        Engine(dsn, [shop.make()]),
        serving(dsn) as one,
        httpx.AsyncClient(base_url=one.url, timeout=60) as http,
    ):

        async def away() -> Health:
            return Health(False, "PostgreSQL did not answer", 0, ())

        monkeypatch.setattr(one.client, "health", away)
        assert (await http.get("/health")).status_code == 503
        assert (await http.get("/health/ready")).status_code == 200
