"""Watches over HTTP: server-sent events, from where a reader left off, within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    InvalidRequest,
    Namespace,
    NonRetryable,
    Process,
    ProcessChange,
    ProcessNotFound,
    StorageUnavailable,
)
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.scopes import Access
from progressor.http.server.options import HttpOptions
from progressor.http.server.routers import streams
from progressor.http.server.serve import ApiServer
from tests.open_access import OpenAccess
from tests.support import eventually

NS = "watch.http"
PATH_OF_ROUTE = "/v1/namespaces/{namespace}/processes/{process_id}/watch"
PATH = f"/v1/namespaces/{NS}/processes/p/watch"

counter = Namespace(NS, state=int, feed=True)


@counter.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@counter.call
async def add(process: Process[int]) -> None:
    """Add one, with an event."""
    process.state = (process.state or 0) + 1
    process.emit("added", total=process.state)


@counter.call
async def fail(process: Process[int]) -> None:
    """Break."""
    raise NonRetryable("no tea")


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine that has started a process."""
    async with Engine(dsn, [counter]) as engine:
        await engine.client.start(NS, "p")
        yield engine.client


def served(
    dsn: str,
    *,
    access: Access | None = None,
    port: int = 0,
    namespaces: Sequence[Namespace[Any]] = (),
    **options: Any,
) -> ApiServer:
    client = Client(dsn, namespaces)
    app = make_app(client, access=access or OpenAccess(), options=HttpOptions(**options))
    return ApiServer(client, app, host="127.0.0.1", port=port)


@pytest.fixture
async def one(dsn: str, client: Client) -> AsyncIterator[ApiServer]:
    """A server that has room for three watches."""
    async with served(dsn, max_watches=3) as one:
        yield one


class Stream:
    """An open stream, read event by event."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._blocks = self._read()

    async def _read(self) -> AsyncIterator[str]:
        rest = ""
        async for text in self.answer.aiter_text():
            *blocks, rest = (rest + text).split("\n\n")
            for block in blocks:
                yield block

    async def block(self) -> str:
        """The next block, a comment too."""
        async with asyncio.timeout(30):
            return await anext(self._blocks)

    async def event(self) -> dict[str, str]:
        """The next event by its fields."""
        while True:
            fields = dict(line.split(": ", 1) for line in (await self.block()).splitlines() if ": " in line)
            if "data" in fields:
                return fields

    async def change(self) -> dict[str, Any]:
        """What the next event holds."""
        found: dict[str, Any] = json.loads((await self.event())["data"])
        return found


@asynccontextmanager
async def opened(one: ApiServer, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    async with (
        httpx.AsyncClient(base_url=one.url, timeout=60) as http,
        http.stream("GET", PATH + query, headers=headers) as answer,
    ):
        yield Stream(answer)


async def test_a_stream(client: Client, one: ApiServer) -> None:
    """Each change is an event with its position as id; it ends once the process is removed."""
    async with opened(one, "?state=true") as stream:
        assert stream.answer.status_code == 200
        assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
        assert stream.answer.headers["Cache-Control"] == "no-store"
        assert stream.answer.headers["X-Accel-Buffering"] == "no"
        first = await stream.event()
        shown = json.loads(first["data"])
        assert first["id"] == shown["position"]
        assert (shown["status"], shown["events"], shown["state"]) == ("running", [], 0)
        await client.call(NS, "p", "add")
        change = await stream.change()
        assert [(each["event_id"], each["payload"]) for each in change["events"]] == [(1, {"total": 1})]
        assert change["state"] == 1
        await client.notify(NS, "p", "fail")
        broken = await stream.change()
        assert (broken["status"], "no tea" in broken["detail"]) == ("error", True)
        await client.remove(NS, "p")
        assert (await stream.change())["status"] == "removed"
        with pytest.raises(StopAsyncIteration):
            await stream.block()


async def test_a_state_of_another_type(client: Client, dsn: str) -> None:
    """A server with an app shows states as they are stored, whatever type that app declares."""
    other = Namespace(NS, state=list[str])
    async with served(dsn, namespaces=[other]) as one, opened(one, "?state=true") as stream:
        assert (await stream.change())["state"] == 0


async def test_what_is_measured(client: Client, one: ApiServer) -> None:
    """A stream is a request that lasts until it begins, not for as long as somebody reads it."""
    labels = f'method="GET",route="{PATH_OF_ROUTE}",status="200"'
    async with opened(one) as stream, httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        await stream.event()
        open_now = (await http.get("/metrics")).text
    await eventually(lambda: one._shared.watch_places.taken == 0, "it has left")
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        closed = (await http.get("/metrics")).text
    counts = [
        [line for line in text.splitlines() if "http_request_ms_count" in line and labels in line]
        for text in (open_now, closed)
    ]
    assert counts[0] == counts[1] != []


async def test_going_on(client: Client, one: ApiServer) -> None:
    """The header of a browser that comes back goes before the address that it had."""
    async with opened(one) as stream:
        first = await stream.event()
    for _ in range(2):
        await client.call(NS, "p", "add")
    async with opened(one, f"?after={first['id']}") as stream:
        second = await stream.event()
    # A caller has as many streams as are free beside them.
    await eventually(lambda: one._shared.watch_places.taken == 0, "their places are free")
    await client.call(NS, "p", "add")
    async with opened(one, f"?after={first['id']}", **{"Last-Event-ID": second["id"]}) as stream:
        third = await stream.change()
    ids = [each["event_id"] for each in json.loads(second["data"])["events"]]
    assert (ids, [each["event_id"] for each in third["events"]]) == ([1, 2], [3])


async def test_going_on_after_a_restore(client: Client, one: ApiServer, dsn: str) -> None:
    """A reader whose last event was lost gets all events again, also if as many have come since."""
    for _ in range(2):
        await client.call(NS, "p", "add")
    async with opened(one) as stream:
        first = await stream.event()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM progressor.events WHERE event_id > 1")
        connection.execute("UPDATE progressor.processes SET last_event_id = 1")
    for _ in range(2):
        await client.call(NS, "p", "add")
    async with opened(one, **{"Last-Event-ID": first["id"]}) as stream:
        anew, second = await stream.change(), await stream.change()
    assert (anew["last_event_id"], anew["events"]) == (0, [])
    assert [each["event_id"] for each in second["events"]] == [1, 2, 3]


async def test_what_is_refused(client: Client, one: ApiServer) -> None:
    """By a problem, before a stream begins."""
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        gone = await http.get(PATH.replace("/p/", "/nobody/"))
        bad = await http.get(PATH, headers={"Last-Event-ID": "now"})
        other = await http.get(PATH, headers={"Accept": "application/json"})
        head = await http.head(PATH)
    assert [each.status_code for each in (gone, bad, other)] == [404, 400, 406]
    assert bad.json()["field"] == "after"
    assert (head.status_code, head.headers["Content-Type"][:17]) == (200, "text/event-stream")


async def test_bounds(client: Client, one: ApiServer) -> None:
    """A caller has as many as are free beside them; one that ends makes room."""
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        async with opened(one) as stream, opened(one) as second:
            await stream.event()
            await second.event()
            refused = await http.get(PATH)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            assert "watches are open here" in refused.json()["detail"]
        places = one._shared.watch_places
        await eventually(lambda: places.taken == 0, "its place is free")
        assert not one.client._node.watcher._watches
        async with opened(one) as stream:
            assert (await stream.change())["status"] == "running"
        # Watches take no place of other requests.
        assert one._shared.places.taken == 0


async def test_all_places_taken(client: Client, dsn: str) -> None:
    """The next one is told to come later."""
    async with served(dsn, max_watches=1) as one, opened(one) as stream:
        await stream.event()
        async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
            refused = await http.get(PATH)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")


async def test_an_idle_watch_that_is_lost(
    client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HttpClient asks again, however long ago the last change was: signs of life came since."""
    monkeypatch.setattr(streams, "_HEARTBEAT", 0.05)
    async with served(dsn) as one, HttpClient(one.url, timeout=1) as over_http:
        changes = over_http.watch(NS, "p")
        await anext(changes)
        coming = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(1.5)
        (lost,) = one._shared.waits._streams
        lost.reschedule(0)
        await eventually(lambda: lost not in one._shared.waits._streams, "it is lost")
        await client.call(NS, "p", "add")
        assert [each.event_id for each in (await coming).events] == [1]


async def test_a_heartbeat(client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing happens comments keep the connection; a caller without its rights is sent away."""
    monkeypatch.setattr(streams, "_HEARTBEAT", 0.05)
    token, bearer = await client.tokens.create(
        "test", scopes=["all"], namespaces=["watch.*"], lifetime=None
    )
    said = {"Authorization": f"Bearer {bearer.text}"}
    access = Authenticator(client.tokens, AccessOptions())
    async with served(dsn, access=access) as one, opened(one, **said) as stream:
        assert (await stream.change())["status"] == "running"
        assert await stream.block() == ":"
        await client.tokens.revoke(token.token_id)
        last = await stream.event()
        assert last["event"] == "problem"
        assert json.loads(last["data"])["status"] == 401
        with pytest.raises(StopAsyncIteration):
            await stream.block()


async def test_texts_of_failures(client: Client, dsn: str) -> None:
    """They are for callers with errors:read; events are not read for one who asks for none."""
    scopes = ["processes:read"]
    _, bearer = await client.tokens.create("test", scopes=scopes, namespaces=["*"], lifetime=None)
    said = {"Authorization": f"Bearer {bearer.text}"}
    access = Authenticator(client.tokens, AccessOptions())
    async with served(dsn, access=access) as one, opened(one, "?events=false", **said) as stream:
        await stream.change()
        await client.call(NS, "p", "add")
        change = await stream.change()
        assert (change["events"], change["last_event_id"]) == ([], 1)
        await client.notify(NS, "p", "fail")
        broken = await stream.change()
        assert (broken["status"], broken["detail"]) == ("error", None)


async def drained(stream: Stream) -> None:
    """Read the rest, to its end."""
    with suppress(StopAsyncIteration):
        while True:
            await stream.block()


async def test_a_stop_ends_streams(client: Client, dsn: str) -> None:
    """At once, and whole; no wait for an answer is cut short by that."""
    async with served(dsn, drain=30) as one, opened(one) as first, opened(one) as second:
        position = (await first.event())["id"]
        await second.event()
        stopping = asyncio.ensure_future(one._shared.waits.drain(30))
        await drained(first)
        await drained(second)
        await stopping
        # Whoever comes meanwhile gets a stream that ends.
        async with opened(one, **{"Last-Event-ID": position}) as late:
            assert late.answer.status_code == 200
            await drained(late)
    assert one.busy == 0


async def take(changes: AsyncIterator[ProcessChange], count: int) -> list[ProcessChange]:
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]


async def test_the_client_over_http(client: Client, one: ApiServer) -> None:
    """The changes of Client, with their errors."""
    async with HttpClient(one.url) as over:
        changes = over.process(counter, "p").watch(state=True)
        (first,) = await take(changes, 1)
        await client.call(NS, "p", "add")
        (second,) = await take(changes, 1)
        (same,) = await take(client.watch(NS, "p", after=first.position, state=True), 1)
        assert (first.status, second) == ("running", same)
        await client.remove(NS, "p")
        assert [each.status async for each in changes] == ["removed"]
        with pytest.raises(ProcessNotFound):
            await take(over.watch(NS, "p"), 1)
        with pytest.raises(InvalidRequest):
            over.watch(NS, "p", after="now")


async def test_a_server_that_is_replaced(client: Client, dsn: str) -> None:
    """The loop goes on behind its last change, as soon as another server is there."""
    async with HttpClient("http://127.0.0.1:9", timeout=0.2) as nobody:
        with pytest.raises(StorageUnavailable):
            await take(nobody.watch(NS, "p"), 1)
    async with served(dsn) as one:
        port = int(one.url.rpartition(":")[2])
        over = HttpClient(one.url)
        changes = over.watch(NS, "p")
        await take(changes, 1)
        waiting = asyncio.ensure_future(take(changes, 1))
    await client.call(NS, "p", "add")
    async with served(dsn, port=port):
        (change,) = await waiting
        assert [event.event_id for event in change.events] == [1]
        await over.close()
