"""HttpClient on sockets: how many requests it has under way, how often it sends one, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from progressor import Engine, errors
from progressor.http import HttpClient
from tests.acceptance.support import Gate
from tests.http import shop
from tests.http.test_serving import serving
from tests.support import eventually

NS = shop.NS
# More than a client's pool commonly holds.
_WAITS = 120
# Long before a client gives a silent server up that does not know its own time-out.
_SOON = 9.0


@asynccontextmanager
async def a_server(make: Callable[[], asyncio.Protocol]) -> AsyncIterator[str]:
    """The URL of a server with such connections."""
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Leaving(asyncio.Protocol):
    """Closes a connection as soon as a request has come."""

    seen = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        type(self).seen += 1
        self._transport.close()


async def test_waits_keep_no_other_request_waiting(dsn: str) -> None:
    """However many wait for their answers, a process is read beside them."""
    gate = Gate()
    async with (
        Engine(dsn, [shop.make(gate)]),
        serving(dsn) as api,
        HttpClient(api.url) as client,
    ):
        for number in range(_WAITS):
            await client.start(NS, f"o{number}", {"item": "tea"})
        waiting = [asyncio.ensure_future(client.call(NS, f"o{number}", "wait")) for number in range(_WAITS)]
        await eventually(lambda: api.busy == _WAITS, "all wait")
        assert (await client.get(NS, "o0", timeout=5)).status == "running"
        gate.open()
        assert await asyncio.gather(*waiting) == ["waited"] * _WAITS


@pytest.mark.parametrize("method", ["remove", "put", "retire"])
async def test_what_must_not_be_repeated_is_sent_once(method: str) -> None:
    """A connection that ends after the request had gone out: nobody knows what became of it."""

    class Once(Leaving):
        pass

    async with a_server(Once) as url, HttpClient(url) as client:
        ask = {
            "remove": lambda: client.remove(NS, "o1"),
            "put": lambda: client.put(NS, "o1", state=1),
            "retire": lambda: client.retire(NS),
        }[method]
        with pytest.raises(errors.StorageUnavailable, match="cannot be reached"):
            await ask()
    assert Once.seen == 1


async def test_a_timeout_counts_from_the_call() -> None:
    """A server that takes a request and never answers: the transport's own patience is longer."""
    async with a_server(asyncio.Protocol) as url, HttpClient(url) as client:
        async with asyncio.timeout(_SOON):
            with pytest.raises(errors.StorageUnavailable, match="has not answered in time"):
                await client.get(NS, "o1", timeout=0.5)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "", 7])
def test_a_url_is_checked(url: str) -> None:
    """By name, before anything is sent."""
    with pytest.raises(errors.InvalidRequest) as caught:
        HttpClient(url)
    assert caught.value.field == "url"


async def test_a_closed_client_says_so() -> None:
    """At once, whatever patience it has, as Client does."""
    client = HttpClient("http://127.0.0.1:1", timeout=timedelta(hours=1))
    await client.close()
    async with asyncio.timeout(20):
        with pytest.raises(errors.StorageUnavailable, match="the client is closed"):
            await client.get(NS, "o1")


async def test_a_close_ends_the_patience_of_a_request() -> None:
    """It is not sent again."""
    client = HttpClient("http://127.0.0.1:1", timeout=timedelta(hours=1))
    asked = asyncio.create_task(client.get(NS, "o1"))
    await asyncio.sleep(0)
    await client.close()
    async with asyncio.timeout(20):
        with pytest.raises(errors.StorageUnavailable):
            await asked
