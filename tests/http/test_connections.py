"""Connections: what a peer may send before anybody knows who it is, and how many of them there may be."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from progressor import Client, Engine
from progressor.http.server import connections
from progressor.http.server.app import make_app
from progressor.http.server.options import HttpOptions
from progressor.http.server.serve import ApiServer
from progressor.loggers import message_of
from tests.acceptance.support import Gate
from tests.http import shop
from tests.open_access import OpenAccess
from tests.support import eventually

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
ASK = LIVE + b"\r\n"
ORDER = "/v1/namespaces/shop.order/processes/o1"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serving(dsn: str, options: HttpOptions | None = None) -> ApiServer:
    client = Client(dsn)
    app = make_app(client, access=OpenAccess(), options=options or HttpOptions())
    return ApiServer(client, app, host="127.0.0.1", port=0)


async def connected(api: ApiServer) -> Peer:
    host, port = api.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def peer_of(api: ApiServer) -> AsyncIterator[Peer]:
    reader, writer = await connected(api)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One answer as it came over the wire."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body


async def refused_for(peer: Peer) -> str:
    """The kind of the problem that a connection is closed with."""
    reader, _ = peer
    status, headers, body = await answer_of(reader)
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert await reader.read() == b""
    document = json.loads(body)
    assert document["status"] == status
    kind: str = document["type"].rpartition(":")[2]
    return kind


ENDLESS = {
    "fields": (LIVE, b"a: " + b"b" * 100 + b"\r\n"),
    "one field": (LIVE + b"a: ", b"b" * 4000),
    "a URL": (b"GET /", b"x" * 4000),
    "empty lines": (b"", b"\r\n" * 2000),
    "trailers": (
        LIVE + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"a: " + b"b" * 4000 + b"\r\n",
    ),
    "a chunk's extensions": (LIVE + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a" * 4000),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_never_becomes_a_request_is_refused(dsn: str, what: str) -> None:
    """After 64 KiB, in a first request as in a later one, and nothing of it is kept."""
    begin, more = ENDLESS[what]
    async with serving(dsn) as api, peer_of(api) as (reader, writer):
        writer.write(ASK)
        assert (await answer_of(reader))[0] == 200
        writer.write(begin)
        if "chunked" in begin.decode():
            # It asked for nothing that the body is needed for.
            assert (await answer_of(reader))[0] == 200
        writer.write(more * (2 * connections.HEAD_BYTES // len(more)))
        assert await refused_for((reader, writer)) == "head-too-large"


async def test_too_many_fields_are_refused(dsn: str) -> None:
    """However small: each costs more than it weighs."""
    async with serving(dsn) as api:
        async with peer_of(api) as peer:
            peer[1].write(LIVE + b"a:b\r\n" * connections.HEAD_FIELDS + b"\r\n")
            assert await refused_for(peer) == "head-too-large"
        async with peer_of(api) as peer:
            peer[1].write(LIVE + b"a:b\r\n" * (connections.HEAD_FIELDS - 1) + b"\r\n")
            assert (await answer_of(peer[0]))[0] == 200


async def test_a_head_of_the_largest_size_is_taken(dsn: str) -> None:
    """To the byte; and one that has one byte more is not."""
    async with serving(dsn) as api:
        for beyond, status in ((0, 200), (1, 431)):
            async with peer_of(api) as (reader, writer):
                filler = b"b" * (connections.HEAD_BYTES + beyond - len(LIVE + b"a: \r\n\r\n"))
                writer.write(LIVE + b"a: " + filler + b"\r\n\r\n")
                assert (await answer_of(reader))[0] == status


async def test_what_is_not_http_is_refused_by_a_problem(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a line in the log, which anybody could fill."""
    async with serving(dsn) as api:
        for sent in (
            b"\x16\x03\x01\x02\x00",
            b"GET / HTTP/1.1\r\n a\r\n\r\n",
            b"CONNECT x:1 HTTP/1.1\r\n\r\n",
        ):
            async with peer_of(api) as peer:
                peer[1].write(sent + b"\r\n\r\n")
                assert await refused_for(peer) == "malformed"
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


async def test_another_protocol_is_not_changed_to(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """A request that asks for a WebSocket is answered as any other, and the connection is closed."""
    async with serving(dsn) as api, peer_of(api) as (reader, writer):
        writer.write(LIVE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        status, headers, _ = await answer_of(reader)
        assert (status, headers["connection"]) == (200, "close")
        assert await reader.read() == b""
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
BODY = b'{"item": "tea"}'
FRAMED = {
    "in one piece": [H2C + b"Content-Length: 15\r\n\r\n" + BODY],
    "later": [H2C + b"Content-Length: 15\r\n\r\n", BODY[:7], BODY[7:]],
    "chunked": [
        H2C + b"Transfer-Encoding: chunked\r\n\r\n7\r\n" + BODY[:7],
        b"\r\n8\r\n" + BODY[7:] + b"\r\n0\r\n\r\n",
    ],
    "upgrade first": [b"Upgrade: h2c\r\ncontent-length: 15\r\nconnection: upgrade\r\n\r\n" + BODY],
}


@pytest.mark.parametrize("way", FRAMED)
async def test_a_request_that_offers_another_protocol_keeps_its_body(dsn: str, way: str) -> None:
    """As HttpClient of Java and `curl --http2` offer it, each time; and the next request follows it."""
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % ORDER.encode()
    async with Engine(dsn, [shop.make()]) as engine, serving(dsn) as api, peer_of(api) as (reader, writer):
        for piece in [head + FRAMED[way][0], *FRAMED[way][1:]]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(ASK)
        status, headers, _ = await answer_of(reader)
        assert (status, headers.get("connection")) == (201, None)
        assert (await answer_of(reader))[0] == 200
        assert (await engine.client.get(shop.NS, "o1")).state.item == "tea"


async def test_an_empty_body_behind_an_offer_ends_at_once(dsn: str) -> None:
    """A length of 0 is a length."""
    async with serving(dsn) as api, peer_of(api) as (reader, writer):
        writer.write(LIVE + H2C + b"Content-Length: 0\r\n\r\n" + ASK)
        assert [(await answer_of(reader))[0] for _ in range(2)] == [200, 200]


async def test_a_head_that_does_not_come_is_not_waited_for(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often another byte of it comes."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    async with serving(dsn) as api, peer_of(api) as peer:
        peer[1].write(b"GET / HTTP/1.1\r\na: b")
        assert await refused_for(peer) == "too-slow"


async def test_requests_that_come_at_once_are_answered_in_their_order(dsn: str) -> None:
    """Each once the one before is; what is no request is refused after all of them."""
    async with serving(dsn) as api, peer_of(api) as (reader, writer):
        paths = [b"/health/live" if each % 3 else b"/nowhere" for each in range(2000)]
        asked = [b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths]
        writer.write(b"".join(asked) + b"nonsense\r\n\r\n")
        for path in paths:
            assert (await answer_of(reader))[0] == (404 if path == b"/nowhere" else 200)
        assert await refused_for((reader, writer)) == "malformed"


async def test_requests_behind_one_that_waits_are_held(dsn: str) -> None:
    """A bounded number of their bytes; they are answered once it is."""
    gate = Gate()
    async with Engine(dsn, [shop.make(gate)]), serving(dsn) as api, peer_of(api) as (reader, writer):
        await api.client.start(shop.NS, "o1", {"item": "tea"})
        wait = f"POST {ORDER}/calls/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        many, large = 1000, LIVE + b"a: " + b"b" * 4000 + b"\r\n\r\n"
        writer.write(wait + large * many)
        await gate.entered()
        assert api.connections.held_bytes < len(large) * many / 4
        gate.open()
        for _ in range(1 + many):
            assert (await answer_of(reader))[0] == 200


async def test_a_connection_without_a_request_gives_its_place_to_a_new_one(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that is idle for longest; where all have requests, the new one is refused. A line says so."""
    gate = Gate()
    async with Engine(dsn, [shop.make(gate)]), serving(dsn, HttpOptions(max_connections=2)) as api:
        await api.client.start(shop.NS, "o1", {"item": "tea"})
        idle = [await connected(api) for _ in range(3)]
        assert await idle[0][0].read() == b""
        for _, writer in idle[1:]:
            writer.write(f"POST {ORDER}/calls/wait HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode())
        await eventually(lambda: api.busy == 2, "both wait")
        async with peer_of(api) as peer:
            assert await refused_for(peer) == "overloaded"
        gate.open()
        for reader, writer in idle[1:]:
            assert (await answer_of(reader))[0] == 200
            writer.close()
        idle[0][1].close()
    assert [message_of(each) for each in caplog.records if each.name == "progressor.http"].count(
        "connections at their bound"
    ) == 1


async def test_idle_heads_make_room_for_others(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all connections together a bounded number of bytes is held that are no request yet."""
    monkeypatch.setattr(connections, "HELD_BYTES", 100_000)
    async with serving(dsn) as api:
        sent = [await connected(api) for _ in range(5)]
        for _, writer in sent:
            writer.write(LIVE + b"a: " + b"b" * 40_000)
        for reader, _ in sent[:3]:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        for reader, writer in sent[3:]:
            writer.write(b"\r\n\r\n")
            assert (await answer_of(reader))[0] == 200
        for _, writer in sent:
            writer.close()


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_leave_descriptors_for_the_database(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However many are wanted; a line says that they are fewer."""
    with descriptors(300):
        async with serving(dsn) as api:
            assert api.connections.most == 300 - 128
    assert "fewer connections than are wanted, for the limit of file descriptors is low" in [
        message_of(each) for each in caplog.records
    ]


async def test_what_is_no_request_behind_one_without_a_body(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is answered in its turn, and nothing is logged as a defect."""
    async with serving(dsn) as api, peer_of(api) as (reader, writer):
        writer.write(b"HEAD /v1/namespaces HTTP/1.1\r\nHost: x\r\n\r\n\x01\x02\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert await refused_for((reader, writer)) == "malformed"
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
