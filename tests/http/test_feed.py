"""The feed over HTTP: pages and streams, from where a reader left off, of what its token sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from progressor import (
    Client,
    Codec,
    Engine,
    Event,
    FeedEvent,
    FeedTruncated,
    Intent,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    Process,
    ProgressorError,
    StorageUnavailable,
    Task,
    Undecryptable,
)
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.scopes import Access
from progressor.http.server.options import HttpOptions
from progressor.http.server.routers import feed, streams
from progressor.http.server.serve import ApiServer
from progressor.storage.feed import reading
from tests.open_access import OpenAccess
from tests.support import eventually

SHOP, BANK, QUIET = "feed.shop", "feed.bank", "feed.quiet"
STREAM = {"Accept": "text/event-stream"}


def namespace(name: str, *, feed: bool = True, codec: Codec | None = None) -> Namespace[Any]:
    made = Namespace(name, state=int, feed=feed, codec=codec)

    @made.init
    async def begin(process: Process[int]) -> None:
        """Begin at nothing."""
        process.state = 0

    @made.call
    async def add(process: Process[int], n: int = 1) -> None:
        """Add some, with an event."""
        process.state = (process.state or 0) + n
        process.emit("added", n=n)
        process.emit("counted")

    return made


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine with two namespaces that have a feed, and one without."""
    served = [namespace(SHOP), namespace(BANK), namespace(QUIET, feed=False)]
    async with Engine(dsn, served) as engine:
        for each in served:
            await engine.client.start(each.name, "p")
        yield engine.client


@asynccontextmanager
async def api(dsn: str, access: Access | None = None, **options: Any) -> AsyncIterator[ApiServer]:
    client = Client(dsn)
    app = make_app(client, access=access or OpenAccess(), options=HttpOptions(**options))
    async with ApiServer(client, app, host="127.0.0.1", port=0) as one:
        yield one


@pytest.fixture
async def one(dsn: str, client: Client) -> AsyncIterator[ApiServer]:
    """A server that lets everybody in."""
    async with api(dsn) as one:
        yield one


@pytest.fixture
async def http(one: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client of that server."""
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        yield http


async def page(http: httpx.AsyncClient, query: str = "", **headers: str) -> dict[str, Any]:
    answer = await http.get(f"/v1/feed{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def told(events: list[dict[str, Any]]) -> list[tuple[str, str | None, Any]]:
    return [(each["namespace"], each["name"] or each["kind"], each["payload"]) for each in events]


async def test_pages(client: Client, http: httpx.AsyncClient) -> None:
    """Each goes on behind the position of the one before, and says whether there is more."""
    begun = await page(http)
    assert (begun["events"], begun["has_more"]) == ([], False)
    for n in (1, 2):
        await client.call(SHOP, "p", "add", n)
    first = await page(http, f"?after={begun['position']}&limit=3")
    assert told(first["events"]) == [
        (SHOP, "added", {"n": 1}),
        (SHOP, "counted", {}),
        (SHOP, "added", {"n": 2}),
    ]
    assert first["has_more"]
    assert first["position"] == first["events"][-1]["position"]
    second = await page(http, f"?after={first['position']}")
    assert (told(second["events"]), second["has_more"]) == ([(SHOP, "counted", {})], False)
    assert (await page(http, f"?after={second['position']}"))["events"] == []


async def test_a_page_is_what_subscribe_tells(client: Client, http: httpx.AsyncClient) -> None:
    """All members are those of a FeedEvent."""
    await client.call(SHOP, "p", "add", 3)
    (event, _) = (await page(http, "?after=beginning&namespaces=feed.shop"))["events"]
    async with aclosing(client.subscribe(namespaces=[SHOP], after="beginning")) as events:  # type: ignore[type-var]
        wanted = await anext(events)
    assert {**event, "timestamp": datetime.fromisoformat(event["timestamp"])} == wanted._asdict()


async def test_a_page_waits(client: Client, http: httpx.AsyncClient) -> None:
    """For as long as it is told, until something comes."""
    begun = await page(http)
    waiting = asyncio.create_task(page(http, f"?after={begun['position']}", Prefer="wait=30"))
    await asyncio.sleep(0)
    await client.call(SHOP, "p", "add")
    assert told((await waiting)["events"])[0] == (SHOP, "added", {"n": 1})
    answer = await http.get("/v1/feed", headers={"Prefer": "wait=1"})
    assert (answer.json()["events"], answer.headers["Preference-Applied"]) == ([], "wait=1")


async def test_a_page_of_a_long_feed(
    client: Client, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that takes too long ends with an empty page, behind which the next one goes on."""
    monkeypatch.setattr(feed, "_SEARCH", 0.0)
    monkeypatch.setattr(reading, "_WINDOW", 1)
    begun = (await page(http))["position"]
    # More rows than can be looked at, one at a time, in the millisecond that a page has at least.
    for n in range(60):
        await client.call(SHOP, "p", "add", n)
    await client.call(BANK, "p", "add", 9)
    pages = 0
    while not (found := await page(http, f"?after={begun}&namespaces={BANK}&events=added"))["events"]:
        assert found["has_more"]
        begun, pages = found["position"], pages + 1
    assert (told(found["events"]), pages > 0) == ([(BANK, "added", {"n": 9})], True)


async def test_a_choice(client: Client, http: httpx.AsyncClient) -> None:
    """Namespaces, names of events and kinds, each as often as there are some; and a time."""
    before = datetime.now(UTC)
    for name in (SHOP, BANK):
        await client.call(name, "p", "add")
    shop = await page(http, f"?after=beginning&namespaces={SHOP}&events=added&events=other")
    assert told(shop["events"]) == [(SHOP, "added", {"n": 1})]
    both = await page(http, f"?after=beginning&namespaces={SHOP}&namespaces=*.bank&events=counted")
    assert {each["namespace"] for each in both["events"]} == {SHOP, BANK}
    kinds = await page(http, f"?after=beginning&namespaces={SHOP}&kinds=created&kinds=broken")
    assert [each["kind"] for each in kinds["events"]] == ["created"]
    since = {"after": before.isoformat(), "kinds": ["event", "step"], "events": "added"}
    answer = await http.get("/v1/feed", params=since)
    assert [each["kind"] for each in answer.json()["events"]] == ["event", "step"] * 2


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("?after=soon", 400, "after"),
        ("?namespaces=", 400, "namespaces"),
        ("?kinds=born", 400, "kinds"),
        ("?limit=0", 400, "limit"),
        ("?limit=1&limit=2", 400, "limit"),
        (f"?namespaces={QUIET}", 400, "namespaces"),
        ("?namespaces=feed.nobody", 404, None),
        ("?after=ffffffffffffffff-1-1-1-1", 410, None),
    ],
)
async def test_what_is_refused(http: httpx.AsyncClient, query: str, status: int, field: str | None) -> None:
    """By a problem that names it, as a page and before a stream begins."""
    for headers in ({}, STREAM):
        answer = await http.get(f"/v1/feed{query}", headers=headers)
        assert answer.status_code == status, answer.text
        assert answer.json().get("field") == field


async def test_a_media_type_that_is_none(http: httpx.AsyncClient) -> None:
    """It is refused; a page is what whoever takes all gets."""
    assert (await http.get("/v1/feed", headers={"Accept": "text/html"})).status_code == 406
    assert (await http.get("/v1/feed", headers={"Accept": "*/*"})).headers["Content-Type"] == (
        "application/json"
    )
    refused = {"Accept": "text/event-stream;q=0, application/json"}
    assert (await http.get("/v1/feed", headers=refused)).headers["Content-Type"] == "application/json"
    assert (await http.head("/v1/feed?namespaces=feed.nobody", headers=STREAM)).status_code == 404
    found = await http.head("/v1/feed", headers=STREAM)
    assert found.headers["Content-Type"].startswith(STREAM["Accept"])


class Stream:
    """An open stream, read block by block."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._blocks = self._read()

    async def _read(self) -> AsyncIterator[dict[str, str]]:
        rest = ""
        async for text in self.answer.aiter_text():
            *blocks, rest = (rest + text).split("\n\n")
            for block in blocks:
                yield dict(line.split(": ", 1) for line in block.splitlines())

    def rest(self) -> AsyncIterator[dict[str, str]]:
        """All blocks that still come."""
        return self._blocks

    async def block(self) -> dict[str, str]:
        """The next block by its fields."""
        async with asyncio.timeout(30):
            return await anext(self._blocks)

    async def event(self) -> dict[str, Any]:
        """What the next event holds."""
        while "data" not in (fields := await self.block()):
            pass
        found: dict[str, Any] = json.loads(fields["data"])
        assert fields["id"] == found["position"]
        return found


@asynccontextmanager
async def opened(one: ApiServer, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    async with (
        httpx.AsyncClient(base_url=one.url, timeout=60) as http,
        http.stream("GET", f"/v1/feed{query}", headers=STREAM | headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        yield Stream(answer)


async def test_a_stream(client: Client, one: ApiServer) -> None:
    """It begins with its position, so that a reader misses nothing, and goes on behind any."""
    async with opened(one) as stream:
        assert await stream.block() == {"retry": "1000"}
        begun = await stream.block()
        assert list(begun) == ["id"]
        await client.call(SHOP, "p", "add", 4)
        first, second = await stream.event(), await stream.event()
        assert told([first, second]) == [(SHOP, "added", {"n": 4}), (SHOP, "counted", {})]
    async with opened(one, **{"Last-Event-ID": begun["id"]}) as stream:
        assert await stream.event() == first
    async with opened(one, f"?after={begun['id']}", **{"Last-Event-ID": first["position"]}) as stream:
        assert await stream.event() == second


async def test_places(client: Client, one: ApiServer) -> None:
    """A stream takes one of those of watches, and gives it back."""
    places = one._shared.watch_places
    async with opened(one) as stream:
        await stream.block()
        assert (places.taken, one._shared.places.taken) == (1, 0)
    await eventually(lambda: places.taken == 0, "its place is free")
    memory = one._shared.options.max_memory_bytes
    assert one._shared.watch_places.memory.free == memory


async def test_a_stream_of_nothing(client: Client, one: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its position moves on all the same: what is passed over may be deleted once."""
    monkeypatch.setattr(streams, "_HEARTBEAT", 0.05)
    async with opened(one, "?events=rare") as stream:
        await stream.block()
        begun = await stream.block()
        await client.call(SHOP, "p", "add")
        while (moved := await stream.block()) == begun:
            pass
        assert list(moved) == ["id"]


async def test_a_server_that_stops(client: Client, dsn: str) -> None:
    """It ends its streams, and answers those who wait for a page with what there is."""
    async with api(dsn) as one, opened(one) as stream, httpx.AsyncClient(base_url=one.url) as http:
        await stream.block()
        begun = await stream.block()
        waiting = asyncio.create_task(page(http, Prefer="wait=30"))
        await eventually(lambda: one._shared.waits.count == 2, "it waits")
        await one._shared.waits.drain(0)
        assert (await waiting)["events"] == []
        assert [each async for each in stream.rest() if each != begun] == []


Bearer = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
async def bearer(client: Client) -> Bearer:
    """Makes a token with scopes and patterns, and returns the headers that show it."""

    async def made(scopes: list[str], namespaces: list[str]) -> dict[str, str]:
        _, secret = await client.tokens.create("test", scopes=scopes, namespaces=namespaces, lifetime=None)
        return {"Authorization": f"Bearer {secret.text}"}

    return made


async def test_what_a_token_sees(client: Client, dsn: str, bearer: Bearer) -> None:
    """Without a choice all of that, and never more: patterns that reach further are refused."""
    reads = ["processes:read", "state:read"]
    shop, shops = await bearer(reads, [SHOP]), await bearer(reads, ["feed.sh*"])
    blind = await bearer(["processes:read"], ["*"])
    for name in (SHOP, BANK):
        await client.call(name, "p", "add")
    access = Authenticator(client.tokens, AccessOptions())
    async with api(dsn, access) as one, httpx.AsyncClient(base_url=one.url) as http:
        for said in (shop, shops):
            found = await page(http, "?after=beginning&events=added", **said)
            assert told(found["events"]) == [(SHOP, "added", {"n": 1})]
            for hidden in (BANK, "feed.*", "*"):
                for accept in ({}, STREAM):
                    refused = await http.get(f"/v1/feed?namespaces={hidden}", headers=said | accept)
                    assert (refused.status_code, refused.json()["namespace"]) == (403, hidden)
        assert told(
            (await page(http, "?after=beginning&namespaces=feed.shop&events=added", **shops))["events"]
        )
        refused = await http.get("/v1/feed", headers=blind)
        assert (refused.status_code, refused.json()["scope"]) == (403, "state:read")
        kinds = await page(http, "?after=beginning&kinds=created", **blind)
        assert {each["payload"] for each in kinds["events"]} == {None}


async def test_a_token_that_is_revoked(client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream ends with the problem, and what came meanwhile is not sent."""
    monkeypatch.setattr(streams, "_HEARTBEAT", 0.05)
    token, secret = await client.tokens.create("test", scopes=["all"], namespaces=["*"], lifetime=None)
    access = Authenticator(client.tokens, AccessOptions())
    async with api(dsn, access) as one, opened(one, Authorization=f"Bearer {secret.text}") as stream:
        await stream.block()
        await stream.block()
        await client.tokens.revoke(token.token_id)
        while "data" not in (last := await stream.block()):
            pass
        assert (last["event"], json.loads(last["data"])["status"]) == ("problem", 401)
        with pytest.raises(StopAsyncIteration):
            await stream.block()


class Sealed:
    """A codec that can be told to lose its key."""

    lost: Exception | None = None

    def encode(self, data: bytes) -> bytes:
        return b"sealed:" + data

    def decode(self, data: bytes) -> bytes:
        if self.lost is not None and b"2" in data:
            raise self.lost
        return data.removeprefix(b"sealed:")


async def test_an_event_that_does_not_decrypt(dsn: str) -> None:
    """What comes before it is told; then its problem ends the page and the stream."""
    codec = Sealed()
    made = namespace("feed.sealed", codec=codec)
    async with Engine(dsn, [made]) as engine:
        await engine.client.start("feed.sealed", "p")
        for n in (1, 2):
            await engine.client.call("feed.sealed", "p", "add", n)
        app = make_app(engine.client, access=OpenAccess())
        codec.lost = Undecryptable("feed.sealed", "p", "event", detail="no key")
        async with ApiServer(engine.client, app, host="127.0.0.1", port=0) as one:
            query = "?after=beginning&namespaces=feed.sealed&events=added"
            async with opened(one, query) as stream:
                assert told([await stream.event()]) == [("feed.sealed", "added", {"n": 1})]
                assert (await stream.block())["event"] == "problem"
                with pytest.raises(StopAsyncIteration):
                    await stream.block()
            async with httpx.AsyncClient(base_url=one.url) as http:
                first = await page(http, query)
                assert told(first["events"]) == [("feed.sealed", "added", {"n": 1})]
                assert first["has_more"]
                after = f"?after={first['position']}&events=added"
                refused = await http.get(f"/v1/feed{after}")
                assert refused.status_code == 500
                behind = refused.json()["position"]
                assert (await page(http, f"?after={behind}&events=added"))["events"] == []
            async with HttpClient(one.url) as over_http:
                events = over_http.subscribe(after=first["position"], events=["added"])
                with pytest.raises(Undecryptable) as caught:
                    await first_of(events)
                assert caught.value.__notes__ == [f"the position of this event in the feed is {behind}"]


async def test_a_codec_that_fails(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises, what comes before is told; the log says what failed, and the caller does not."""
    codec = Sealed()
    made = namespace("feed.sealed", codec=codec)
    async with Engine(dsn, [made]) as engine:
        await engine.client.start("feed.sealed", "p")
        for n in (1, 2):
            await engine.client.call("feed.sealed", "p", "add", n)
        codec.lost = ValueError("the secret of 2")
        app = make_app(engine.client, access=OpenAccess())
        async with ApiServer(engine.client, app, host="127.0.0.1", port=0) as one:
            query = "?after=beginning&events=added"
            async with opened(one, query) as stream:
                assert told([await stream.event()]) == [("feed.sealed", "added", {"n": 1})]
                last = await stream.block()
                assert (last["event"], "secret" in last["data"]) == ("problem", False)
            async with httpx.AsyncClient(base_url=one.url) as http:
                assert len((await page(http, query))["events"]) == 1
    assert "the secret of 2" in caplog.text


class Raw:
    """A raw handler, whose bytes are no JSON."""

    async def process(self, _task: Task, _process: Process[Any]) -> Intent:
        return Intent(events=(Event(b"\xff" * 3_000_000, {"name": "b"}),), aux_state=b"\xfe")


async def test_bytes_that_are_no_json(dsn: str) -> None:
    """A payload of a raw namespace is bytes for HttpClient, as it is for Client."""
    async with Engine(dsn, [Namespace("feed.raw", handler=Raw(), feed=True)]) as engine:
        await engine.client.start("feed.raw", "p")
        wanted = await first_of(engine.client.subscribe(after="beginning"))
        async with api(dsn) as one, HttpClient(one.url) as over_http:
            assert await first_of(over_http.subscribe(after="beginning")) == wanted
            changes = over_http.watch("feed.raw", "p", state=True)
            assert (await anext(changes)).state == b"\xfe"


async def first_of(found: AsyncIterator[FeedEvent]) -> FeedEvent:
    async with aclosing(found) as events, asyncio.timeout(30):  # type: ignore[type-var]
        return await anext(events)


async def test_a_client(client: Client, one: ApiServer) -> None:
    """It tells the events that Client tells, by the same choice."""
    await client.call(SHOP, "p", "add", 5)
    async with HttpClient(one.url) as over_http:
        for choice in (
            {"namespaces": [SHOP]},
            {"namespaces": SHOP, "events": ["counted"]},
            {"kinds": ["created"], "namespaces": ["*.bank"]},
        ):
            wanted = await first_of(client.subscribe(after="beginning", **choice))  # type: ignore[arg-type]
            assert await first_of(over_http.subscribe(after="beginning", **choice)) == wanted  # type: ignore[arg-type]
        moment = wanted.timestamp
        assert await first_of(over_http.subscribe(after=moment)) == await first_of(
            client.subscribe(after=moment)
        )
        with pytest.raises(NamespaceNotFound):
            await first_of(over_http.subscribe(namespaces=["feed.nobody"]))
        with pytest.raises(FeedTruncated):
            await first_of(over_http.subscribe(after="ffffffffffffffff-1-1-1-1"))
        for wrong in ({"after": "soon"}, {"namespaces": [QUIET]}):
            with pytest.raises(InvalidRequest):
                await first_of(over_http.subscribe(**wrong))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="events must name one at least"):
            over_http.subscribe(events=[])


def streams_of(one: ApiServer) -> set[asyncio.Timeout]:
    return one._shared.waits._streams


async def test_a_client_goes_on(client: Client, dsn: str) -> None:
    """Behind the last event that came, however often its stream is lost."""
    async with api(dsn) as one, HttpClient(one.url) as over_http:
        async with httpx.AsyncClient(base_url=one.url) as http:
            begun = (await page(http))["position"]
        events = over_http.subscribe(after=begun)
        for n in range(3):
            coming = asyncio.ensure_future(anext(events))
            await eventually(lambda: len(streams_of(one)) == 1, "a stream is open")
            (lost,) = streams_of(one)
            lost.reschedule(0)
            await eventually(lambda: lost not in streams_of(one), "it is lost")  # noqa: B023 - at once
            await client.call(SHOP, "p", "add", n)
            assert (await coming).payload == {"n": n}
            assert (await anext(events)).name == "counted"


async def test_a_client_that_is_closed(client: Client, one: ApiServer) -> None:
    """Its loops end at once, those that wait and those that begin."""
    over_http = HttpClient(one.url)
    events, changes = over_http.subscribe(), over_http.watch(SHOP, "p")
    await anext(changes)
    waiting = [asyncio.ensure_future(anext(events)), asyncio.ensure_future(anext(changes))]
    await eventually(lambda: len(streams_of(one)) == 2, "both are open")
    await asyncio.gather(over_http.close(), over_http.close())
    async with asyncio.timeout(10):
        for each in (*waiting, anext(over_http.subscribe())):
            with pytest.raises(StorageUnavailable, match="the client is closed"):
                await each


async def test_a_problem_that_stays(dsn: str) -> None:
    """A stream that ends with one each time is asked for no longer than the client's time."""
    async with Engine(dsn, [Namespace("feed.raw", handler=Raw(), feed=True)]) as engine:
        await engine.client.start("feed.raw", "p")
        async with api(dsn) as one, HttpClient(one.url, timeout=1) as over_http:
            memory = one._shared.watch_places.memory
            memory.take_now("others", memory.free - (4 << 20))
            with pytest.raises(ProgressorError):
                await first_of(over_http.subscribe(after="beginning"))


async def test_a_client_whose_server_is_gone(client: Client, dsn: str) -> None:
    """It gives up once its time is over, however long its stream has lived."""
    async with HttpClient("http://127.0.0.1:9", timeout=0.2) as over_http:
        with pytest.raises(StorageUnavailable):
            await first_of(over_http.subscribe())
