"""Static tokens at the door: who shows one that holds is let in, for no longer than is stated."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import httpx
import psycopg
import pytest

from progressor import Client, ReplyTimeout
from progressor.client.tokens import NewToken
from progressor.http import HttpClient
from progressor.http.client.decode import NotAllowed
from progressor.http.server.app import make_app
from progressor.http.server.auth import tokens
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.origins import AllowedHosts
from progressor.http.server.options import HttpOptions
from progressor.rights import Bearer
from tests.http import shop
from tests.http.conftest import Serve, asking

PROCESS = f"/v1/namespaces/{shop.NS}/processes/a"


class Clock:
    """The monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.offset = 0.0
        self._real = time.monotonic

    def monotonic(self) -> float:
        return self._real() + self.offset


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tokens, "time", clock)
    return clock


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    async with Client(dsn) as client:
        yield client


@pytest.fixture
async def api(serve: Serve, client: Client) -> httpx.AsyncClient:
    """A guarded API of the shop's orders, on a public address."""
    return await serve(shop.make(), access=Authenticator(client.tokens, AccessOptions()))


async def made(client: Client, *scopes: str, lifetime: timedelta | None = None) -> NewToken:
    return await client.tokens.create("test", scopes=scopes, namespaces=["shop.*"], lifetime=lifetime)


def shown(new: NewToken) -> dict[str, str]:
    return {"Authorization": f"Bearer {new.bearer.text}"}


async def test_its_bearer_does_what_was_granted(api: httpx.AsyncClient, client: Client) -> None:
    """And nothing else, by a problem that names what is missing."""
    token = await made(client, "processes:start")
    started = await api.post(PROCESS, json={"item": "tea"}, headers=shown(token))
    assert (started.status_code, started.json()) == (201, "1 x tea")
    refused = await api.get(PROCESS, headers=shown(token))
    assert refused.status_code == 403
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["scope"] == "processes:read"
    assert 'error="insufficient_scope", scope="processes:read"' in refused.headers["WWW-Authenticate"]
    elsewhere = await api.post("/v1/namespaces/other/processes/a", headers=shown(token))
    assert (elsewhere.status_code, elsewhere.json()["namespace"]) == (403, "other")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dTpw",
        "Bearer garbage",
        "Bearer prg_",
        f"Bearer {Bearer('0' * 16, '0' * 64).text}",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "Bearer " + "x" * 7000,
    ],
)
async def test_nothing_that_holds_is_401(api: httpx.AsyncClient, header: str | None) -> None:
    """With a challenge, and without what was shown."""
    answer = await api.get(PROCESS, headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="progressor"')
    assert ("invalid_token" in answer.headers["WWW-Authenticate"]) is (header is not None)
    assert not header or header.split()[-1] not in answer.text or header == "Bearer"


async def test_two_headers_are_none(api: httpx.AsyncClient, client: Client) -> None:
    """Of two it would not be clear which one a proxy has looked at."""
    token = await made(client, "all")
    header = ("Authorization", f"Bearer {token.bearer.text}")
    assert (await api.get(PROCESS, headers=[header, header])).status_code == 401


async def test_a_wrong_secret(api: httpx.AsyncClient, client: Client) -> None:
    """The id alone is worth nothing."""
    token = await made(client, "all")
    wrong = Bearer(token.token.token_id, "0" * 64)
    answer = await api.get(PROCESS, headers={"Authorization": f"Bearer {wrong.text}"})
    assert (answer.status_code, answer.json()["detail"]) == (401, "there is no such token")


async def test_a_revoked_token_lives_on_as_long_as_is_stated(
    api: httpx.AsyncClient, client: Client, clock: Clock
) -> None:
    """What was read before is used until it is too old, and not a moment longer."""
    token = await made(client, "all")
    assert (await api.get(PROCESS, headers=shown(token))).status_code == 404
    await client.tokens.revoke(token.token.token_id)
    assert (await api.get(PROCESS, headers=shown(token))).status_code == 404
    clock.offset += AccessOptions().token_kept_for.total_seconds()
    answer = await api.get(PROCESS, headers=shown(token))
    assert (answer.status_code, answer.json()["detail"]) == (401, "this token was revoked")


async def test_a_token_ends_though_it_is_kept(api: httpx.AsyncClient, client: Client, clock: Clock) -> None:
    """Its end is known when it is read."""
    token = await made(client, "all", lifetime=timedelta(seconds=3))
    assert (await api.get(PROCESS, headers=shown(token))).status_code == 404
    clock.offset += 3
    answer = await api.get(PROCESS, headers=shown(token))
    assert (answer.status_code, answer.json()["detail"]) == (401, "this token has ended")


async def test_use_is_noted_once_in_a_while(
    api: httpx.AsyncClient, client: Client, clock: Clock, dsn: str
) -> None:
    """Of many requests the first one writes."""
    token = await made(client, "all")

    def noted() -> object:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT last_used_at, xmin::text FROM progressor.tokens").fetchone()

    before = noted()
    await api.get(PROCESS, headers=shown(token))
    first = noted()
    assert first != before
    for _ in range(3):
        clock.offset += 10
        await api.get(PROCESS, headers=shown(token))
    assert noted() == first


async def test_what_failed_is_for_errors_read(api: httpx.AsyncClient, client: Client) -> None:
    """Without that scope neither an answer nor a process tells what a handler said."""
    simple = await made(client, "processes:start", "processes:call", "processes:read", "state:read")
    everything = await made(client, "all")
    await api.post(PROCESS, json={"item": "tea"}, headers=shown(simple))
    failed = await api.post(PROCESS + "/calls/break", headers=shown(simple))
    assert failed.status_code == 500
    seen = await api.get(PROCESS, headers=shown(simple))
    again = await api.post(PROCESS + "/calls/echo", headers=shown(simple))
    assert (seen.status_code, again.status_code) == (200, 409)
    for answer in (failed, seen, again):
        assert "a secret of the handler" not in answer.text
    for path in (PROCESS,):
        assert "a secret of the handler" in (await api.get(path, headers=shown(everything))).text
    broken = await api.post(PROCESS + "/calls/echo", headers=shown(everything))
    assert "a secret of the handler" in broken.text


async def test_to_wait_longer_than_the_server_needs_to_read(serve: Serve, client: Client) -> None:
    """Who may only call is told that the request goes on, and what the token lacks."""
    options = HttpOptions(longest_wait=0.05)
    api = await serve(shop.make(), options=options, access=Authenticator(client.tokens, AccessOptions()))
    await client.start(shop.NS, "a", {"item": "tea"})
    await client.pause(shop.NS)
    calls = await made(client, "processes:call")
    async with HttpClient("http://api", token=calls.bearer.text, transport=api._transport) as caller:
        with pytest.raises(ReplyTimeout) as late:
            await caller.call(shop.NS, "a", "echo", 1, idempotency_key="key")
        with pytest.raises(NotAllowed, match="processes:read"):
            await caller.result(shop.NS, "a", late.value.task_id or 0)
    assert (late.value.idempotency_key, late.value.paused) == ("key", True)
    assert "processes:read" in str(late.value.__cause__)
    await client.resume(shop.NS)
    reads = await made(client, "processes:read", "processes:call")
    async with HttpClient("http://api", token=reads.bearer.text, transport=api._transport) as caller:
        assert await caller.call(shop.NS, "a", "echo", 1, idempotency_key="key") == 1


async def test_health_is_for_those_who_administer(serve: Serve, client: Client) -> None:
    """Nobody else takes it for an API that does not work."""
    api = await serve(shop.make(), access=Authenticator(client.tokens, AccessOptions()))
    reads = await made(client, "processes:read")
    async with HttpClient("http://api", token=reads.bearer.text, transport=api._transport) as caller:
        health = await caller.health()
    assert not health.ok
    assert "admin" in (health.detail or "")


async def test_no_database_is_not_a_wrong_token(
    api: httpx.AsyncClient, client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 with Retry-After: the token may hold."""
    token = await made(client, "all")
    with psycopg.connect(dsn) as connection, monkeypatch.context() as patch:
        patch.setattr(tokens, "_LOOK_SECONDS", 0.05)
        connection.execute("LOCK TABLE progressor.tokens")
        answer = await api.get(PROCESS, headers=shown(token))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["type"].endswith(":storage-unavailable")
    assert (await api.get(PROCESS, headers=shown(token))).status_code == 404


_FROM_ELSEWHERE = (
    ("Host", "evil.example"),
    ("Host", "["),
    ("Origin", "https://evil.example"),
    ("Origin", "null"),
    ("Origin", "http://["),
    # A proxy on this machine asks from a loopback address, for whomever.
    ("X-Forwarded-For", "203.0.113.7"),
    ("Forwarded", "for=203.0.113.7"),
    ("X-Forwarded-Host", "shop.example"),
    ("X-Real-IP", "203.0.113.7"),
    ("Via", "1.1 proxy"),
)


async def test_open_on_loopback_until_there_is_a_token(
    dsn: str, client: Client, serve: Serve, clock: Clock
) -> None:
    """The first one closes it, and its revocation does not open it again."""
    access = Authenticator(client.tokens, AccessOptions())
    await access.begin("127.0.0.1")
    api = await serve(shop.make(), access=access)
    here = {"Host": "localhost:8080"}
    assert (await api.get(PROCESS, headers=here)).status_code == 404
    for name, value in _FROM_ELSEWHERE:
        assert (await api.get(PROCESS, headers={**here, name: value})).status_code == 403, name
    assert (await api.get(PROCESS, headers={**here, "Origin": "http://localhost"})).status_code == 404
    assert (await api.get(PROCESS, headers={**here, "Authorization": "Bearer x"})).status_code == 401
    token = await made(client, "all")
    clock.offset += AccessOptions().token_kept_for.total_seconds()
    assert (await api.get(PROCESS, headers=here)).status_code == 401
    await client.tokens.revoke(token.token.token_id)
    clock.offset += 60
    assert (await api.get(PROCESS, headers=here)).status_code == 401


async def test_everybody_is_let_in_if_that_was_said(client: Client, serve: Serve) -> None:
    """Whatever they show."""
    api = await everybodys(client, serve)
    assert (await api.get(PROCESS, headers={"Authorization": "Basic x"})).status_code == 404


async def everybodys(client: Client, serve: Serve) -> httpx.AsyncClient:
    """An API without any access control, which is called `api`."""
    hosts = AllowedHosts(frozenset({"api"}))
    access = Authenticator(client.tokens, AccessOptions(insecure_no_auth=True, allowed_hosts=hosts))
    await access.begin("0.0.0.0")
    return await serve(shop.make(), access=access)


_OF_ANOTHER_SITE = (
    {"Host": "evil.example:8080"},
    {"Host": "203.0.113.7"},
    {"Host": "api.evil.example"},
    {"Host": "["},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "https://www.evil.example"},
)


@pytest.mark.parametrize("said", _OF_ANOTHER_SITE, ids=str)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_page_of_another_site_is_refused_in_open_mode(
    client: Client, serve: Serve, method: str, said: dict[str, str]
) -> None:
    """By host, by origin, and by what its browser says of it, whatever it asks for."""
    api = await everybodys(client, serve)
    path = PROCESS + ("/timers/default" if method == "PATCH" else "")
    assert (await api.request(method, path, headers=said, json={"item": "tea"})).status_code == 403


@pytest.mark.parametrize(
    "said",
    [
        {"Host": "API:8080"},
        {"Host": "127.0.0.1:8080"},
        {"Host": "[::1]"},
        {"Origin": "http://api:3000"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://api"},
    ],
    ids=str,
)
async def test_whoever_asks_for_an_allowed_host_is_let_in(
    client: Client, serve: Serve, said: dict[str, str]
) -> None:
    """Under any of its names, on any port."""
    api = await everybodys(client, serve)
    assert (await api.post(PROCESS, headers=said, json={"item": "tea"})).status_code == 201


async def test_no_secret_is_logged(
    client: Client, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at the lowest level, of whatever library."""
    caplog.set_level(logging.DEBUG)
    app = make_app(client, access=Authenticator(client.tokens, AccessOptions()))
    api = await stack.enter_async_context(asking(app))
    token = await made(client, "processes:read")
    strange = Bearer.drawn()
    for text in (token.bearer.text, strange.text, token.bearer.text + "0"):
        await api.get(PROCESS, headers={"Authorization": f"Bearer {text}"})
        await api.post(PROCESS, headers={"Authorization": f"Bearer {text}"})
    said = [repr(vars(record)) for record in caplog.records]
    assert said
    for secret in (token.bearer.secret, strange.secret):
        assert not [text for text in said if secret in text]
