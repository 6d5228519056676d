"""What a server takes: bodies, requests at once, requests of one caller; and who asks through a proxy."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from progressor import Client
from progressor.client.results import Health
from progressor.errors import InvalidRequest
from progressor.http.server.app import make_app
from progressor.http.server.auth import rate_limit
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.client_certificates import Certificates, networks
from progressor.http.server.auth.oidc import Provider
from progressor.http.server.auth.rate_limit import CallerRate, RateLimit
from progressor.http.server.options import HttpOptions
from progressor.rights import Rights, Scope
from tests.acceptance.support import Gate
from tests.http import shop
from tests.http.conftest import Serve, asking

PROCESS = f"/v1/namespaces/{shop.NS}/processes/a"
HEADER = "X-Client-Subject"


class Clock:
    """A monotonic clock that stands."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rate_limit, "time", clock)
    return clock


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    async with Client(dsn) as client:
        yield client


class Endless:
    """A body without an end; how much of it was taken."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += 1000
            yield b" " * 1000


async def test_a_body_is_refused_before_it_is_read_whole(serve: Serve) -> None:
    """By what is said of it, or by what came so far, if nothing was said."""
    api = await serve(shop.make(), options=HttpOptions(max_value_bytes=10_000))
    headers = {"Content-Type": "application/json"}
    stated = await api.post(PROCESS, content=b'"' + b"x" * 9_999 + b'"', headers=headers)
    endless = Endless()
    chunked = await api.post(PROCESS, content=endless, headers=headers)
    for answer in (stated, chunked):
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:progressor:problem:too-large")
    assert endless.taken <= 20_000
    assert (await api.post(PROCESS, json={"item": "x" * 9_000})).status_code == 201


async def test_a_body_that_is_refused_hears_of_its_own_limit(serve: Serve) -> None:
    """That of an import is another one than that of arguments."""
    api = await serve(shop.make(), options=HttpOptions(max_value_bytes=100, max_import_bytes=1000))
    said = {"POST": "100 bytes at most (max_value_bytes)", "PUT": "1,000 bytes at most (max_import_bytes)"}
    for method, limit in said.items():
        answer = await api.request(method, PROCESS, json={"item": "x" * 2000})
        assert answer.status_code == 413
        assert answer.json()["detail"].endswith(limit)


async def test_a_body_of_a_stranger_is_not_read(serve: Serve, client: Client) -> None:
    """First who asks, then what."""
    api = await serve(shop.make(), access=Authenticator(client.tokens, AccessOptions()))
    endless = Endless()
    assert (await api.post(PROCESS, content=endless)).status_code == 401
    assert endless.taken <= 1000


async def test_one_request_too_many_is_told_to_come_back(serve: Serve) -> None:
    """While others wait; and is taken when one of them has left."""
    gate = Gate()
    api = await serve(shop.make(gate), options=HttpOptions(max_requests=2))
    await api.post(PROCESS, json={"item": "tea"})
    waiting = [asyncio.create_task(api.post(PROCESS + "/calls/wait")) for _ in range(2)]
    await gate.entered()
    many = await api.get(PROCESS)
    assert (many.status_code, many.headers["Retry-After"]) == (503, "1")
    assert many.json()["type"].endswith(":overloaded")
    # A server that is busy lives.
    assert (await api.get("/health/live")).status_code == 200
    gate.open()
    assert [answer.json() for answer in await asyncio.gather(*waiting)] == ["waited"] * 2
    assert (await api.get(PROCESS)).status_code == 200


async def test_a_probe_takes_no_place(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for a database that does not answer keeps no request out."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(_: Client) -> Health:
        begun.set()
        await gate.wait()
        return Health(True, None, 0, ())

    monkeypatch.setattr(Client, "health", slow)
    api = await serve(shop.make(), options=HttpOptions(max_requests=1))
    probe = asyncio.create_task(api.get("/health"))
    await begun.wait()
    assert (await api.post(PROCESS, json={"item": "tea"})).status_code == 201
    gate.set()
    assert (await probe).status_code == 200


async def test_a_caller_leaves_as_many_places_as_it_has(client: Client, serve: Serve) -> None:
    """One that waits with all its requests keeps nobody else from being answered."""
    gate = Gate()
    options = HttpOptions(max_requests=10)
    api = await serve(
        shop.make(gate), options=options, access=Authenticator(client.tokens, AccessOptions())
    )
    rights: dict[str, Any] = {"scopes": ["all"], "namespaces": ["*"], "lifetime": None}
    one, two = [
        {"Authorization": f"Bearer {(await client.tokens.create('x', **rights)).bearer.text}"}
        for _ in range(2)
    ]
    await api.post(PROCESS, json={"item": "tea"}, headers=one)
    waiting = [asyncio.create_task(api.post(PROCESS + "/calls/wait", headers=one)) for _ in range(10)]
    await gate.entered()
    refused, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in refused:
        assert each.result().status_code == 429
        assert each.result().headers["Retry-After"] == "1"
    assert (await api.get(PROCESS, headers=one)).status_code == 429
    assert (await api.get(PROCESS, headers=two)).status_code == 200
    gate.open()
    answers = [answer.status_code for answer in await asyncio.gather(*waiting)]
    assert (answers.count(200), answers.count(429)) == (6, 4)
    assert (await api.get(PROCESS, headers=one)).status_code == 200


async def test_names_of_calls_that_there_are_not_are_not_kept(serve: Serve) -> None:
    """However many of them are asked for."""
    api = await serve(shop.make())
    await api.post(PROCESS, json={"item": "tea"})
    app = api._transport.app  # type: ignore[attr-defined]
    for number in range(20):
        answer = await api.post(f"{PROCESS}/calls/no-{number}", json={})
        assert answer.status_code == 400
    (kept,) = app.state.server.publications._kept.values()
    assert len(kept.validators) == 1


async def test_a_body_that_is_packed_is_not_taken_for_what_it_holds(serve: Serve) -> None:
    """It is refused by the name of its coding; one that says that it has none is read."""
    api = await serve(shop.make())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused = await api.post(PROCESS, content=gzip.compress(b'{"item": "tea"}'), headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (415, "urn:progressor:problem:wrong-media-type")
    assert refused.headers["Accept-Encoding"] == "identity"
    read = await api.post(
        PROCESS, content=b'{"item": "tea"}', headers={**headers, "Content-Encoding": "identity"}
    )
    assert read.status_code == 201


async def test_a_problem_shows_a_few_of_many_faults(serve: Serve) -> None:
    """And counts them all."""
    api = await serve(shop.make())
    answer = await api.put(PROCESS, json={"events": [{"payload": 1, "x": 1}] * 5000})
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20
    assert answer.json()["error_count"] == 5000


async def test_a_caller_that_asks_too_often(client: Client, stack: AsyncExitStack, clock: Clock) -> None:
    """It is told how often it may, on every answer; others have a bucket of their own."""
    access = Authenticator(client.tokens, AccessOptions(rate=CallerRate(2.0, 3)))
    api = await stack.enter_async_context(asking(make_app(client, access=access)))
    rights: dict[str, Any] = {"scopes": ["all"], "namespaces": ["*"], "lifetime": None}
    one, two = [(await client.tokens.create("x", **rights)).bearer.text for _ in range(2)]

    async def ask(token: str) -> httpx.Response:
        return await api.get(PROCESS, headers={"Authorization": f"Bearer {token}"})

    left = [(await ask(one)).headers["RateLimit"] for _ in range(3)]
    assert left == ['"caller";r=2;t=1', '"caller";r=1;t=1', '"caller";r=0;t=2']
    refused = await ask(one)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert refused.headers["RateLimit-Policy"] == '"caller";q=3;w=2'
    assert refused.json()["type"].endswith(":too-many-requests")
    assert (await ask(two)).status_code == 404
    # What was refused has cost nothing: half a second is one request.
    await ask(one)
    clock.at += 0.5
    assert (await ask(one)).status_code == 404
    assert (await ask(one)).status_code == 429


def test_a_bucket_is_full_after_a_while(clock: Clock) -> None:
    """And never fuller."""
    buckets = RateLimit(CallerRate(1.0, 2))
    assert [buckets.take("a").left for _ in range(3)] == [1, 0, -1]
    clock.at += 100
    assert [buckets.take("a").left for _ in range(3)] == [1, 0, -1]


WEB = Rights(frozenset({Scope.PROCESSES_READ, Scope.STATE_READ}), ("shop.*",))


async def certified(
    client: Client, headers: list[tuple[str, str]], *, peer: tuple[str, int] | None
) -> httpx.Response:
    proxies = networks("http_trusted_proxies", ["10.0.0.7", "10.1.0.0/16", "::1"])
    certificates = Certificates(HEADER, proxies, {"CN=web": WEB})
    access = Authenticator(client.tokens, AccessOptions(certificates=certificates))
    app = make_app(client, access=access)
    transport = httpx.ASGITransport(app, client=peer)  # type: ignore[arg-type] # of a socket there is none
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
        return await api.get(PROCESS, headers=headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "https://evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://api"}, 404),
        # A browser says so; the proxy has changed the host.
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://shop.example"}, 404),
    ],
)
async def test_a_certificate_does_not_count_for_a_page_of_another_site(
    client: Client, headers: dict[str, str], status: int
) -> None:
    """A browser shows it whichever page asks."""
    said = [(HEADER, "CN=web"), *headers.items()]
    assert (await certified(client, said, peer=("10.0.0.7", 1))).status_code == status


@pytest.mark.parametrize("address", ["10.0.0.7", "10.1.200.3", "::1", "::ffff:10.0.0.7"])
async def test_a_certificate_that_the_proxy_names(client: Client, address: str) -> None:
    """Its subject has the rights of the setting."""
    answer = await certified(client, [(HEADER, "CN=web")], peer=(address, 1))
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        ([(HEADER, "CN=web")], ("10.0.0.8", 1)),
        ([(HEADER, "CN=web")], ("127.0.0.1", 1)),
        ([(HEADER, "CN=web")], None),
        ([(HEADER, "CN=web"), ("X-Forwarded-For", "10.0.0.7")], ("192.0.2.1", 1)),
        ([(HEADER, "CN=web"), (HEADER, "CN=web")], ("10.0.0.7", 1)),
        ([(HEADER, "CN=web,CN=root")], ("10.0.0.7", 1)),
        ([(HEADER, "CN=nobody")], ("10.0.0.7", 1)),
        ([(HEADER, "")], ("10.0.0.7", 1)),
        ([], ("10.0.0.7", 1)),
    ],
)
async def test_a_certificate_that_does_not_count(
    client: Client, headers: list[tuple[str, str]], peer: tuple[str, int] | None
) -> None:
    """From another address, twice, unknown, or none."""
    assert (await certified(client, headers, peer=peer)).status_code == 401


async def test_a_public_address_needs_somebody_to_know(client: Client) -> None:
    """A token, a provider, certificates; or that it was said. On loopback nothing is needed."""
    empty = AccessOptions()
    for host in ("0.0.0.0", "::", "192.0.2.1", "api.example", ""):
        with pytest.raises(InvalidRequest, match="anybody could ask") as caught:
            await Authenticator(client.tokens, empty).begin(host)
        assert caught.value.field == "host"
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        await Authenticator(client.tokens, empty).begin(host)
    certificates = Certificates(HEADER, networks("x", ["10.0.0.7"]), {})
    for options in (
        AccessOptions(insecure_no_auth=True),
        AccessOptions(provider=Provider("https://idp.example", "me")),
        AccessOptions(certificates=certificates),
    ):
        await Authenticator(client.tokens, options).begin("0.0.0.0")
    await client.tokens.create("x", scopes=["all"], namespaces=["*"], lifetime=None)
    await Authenticator(client.tokens, empty).begin("0.0.0.0")
