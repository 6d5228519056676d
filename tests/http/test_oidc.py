"""Tokens of an identity provider: what holds, what does not, and what cannot be told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from progressor import Client
from progressor.errors import InvalidRequest
from progressor.http.server.app import make_app
from progressor.http.server.auth import jwks
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.auth.oidc import Provider as Trusted
from progressor.rights import Scope
from tests.http import provider as providers, shop
from tests.http.conftest import asking
from tests.http.provider import AUDIENCE, Provider

PROCESS = f"/v1/namespaces/{shop.NS}/processes/a"
KIM = {"scope": "processes:read state:read"}
# A process that is not there, in a namespace that is not known: whoever gets so far was let in.
LET_IN = 404


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
    monkeypatch.setattr(jwks, "time", clock)
    return clock


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providers.served(Provider()) as served:
        yield served


class Door:
    """Who asks with these tokens; what the server trusts can be changed before the first."""

    def __init__(self, dsn: str, provider: Provider) -> None:
        self._client = Client(dsn)
        self.trusted = {"issuer": provider.issuer, "audience": AUDIENCE}
        self._api: httpx.AsyncClient | None = None
        self._guard: Authenticator | None = None

    async def ask(self, token: str, path: str = PROCESS) -> httpx.Response:
        if self._api is None:
            options = AccessOptions(provider=Trusted(**self.trusted))  # type: ignore[arg-type]
            self._guard = Authenticator(self._client.tokens, options)
            self._api = asking(make_app(self._client, access=self._guard))
        return await self._api.get(path, headers={"Authorization": f"Bearer {token}"})

    async def close(self) -> None:
        if self._api is not None:
            await self._api.aclose()
        if self._guard is not None:
            await self._guard.close()
        await self._client.close()


@pytest.fixture
async def door(dsn: str, provider: Provider) -> AsyncIterator[Door]:
    door = Door(dsn, provider)
    yield door
    await door.close()


@pytest.mark.parametrize(("key", "algorithm"), [("one", "RS256"), ("curve", "ES256")])
async def test_a_token_that_holds(door: Door, provider: Provider, key: str, algorithm: str) -> None:
    """Its scopes and its namespaces are those of its claims."""
    token = provider.token(key, algorithm)
    assert (await door.ask(token)).status_code == LET_IN
    elsewhere = await door.ask(token, "/v1/namespaces/billing/processes/a")
    assert (elsewhere.status_code, elsewhere.json()["namespace"]) == (403, "billing")


def unsigned(provider: Provider) -> str:
    return jwt.encode(provider.claims(), None, algorithm="none", headers={"kid": "one"})


def signed_with_the_public_key(provider: Provider) -> str:
    """As if the public key were a shared secret; by hand, for the library refuses to."""

    def part(value: object) -> str:
        text = json.dumps(value, default=lambda moment: int(moment.timestamp())).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    signed = part({"alg": "HS256", "typ": "JWT", "kid": "one"}) + "." + part(provider.claims())
    digest = hmac.new(provider.public_pem(), signed.encode(), hashlib.sha256).digest()
    return signed + "." + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def of_another_key(provider: Provider) -> str:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(provider.claims(), other, algorithm="RS256", headers={"kid": "one"})


def changed(provider: Provider) -> str:
    head, _, signature = provider.token().split(".")
    claims = json.dumps({**provider.claims(), "exp": 2**33, "iat": 1, "sub": "root"}).encode()
    return ".".join((head, base64.urlsafe_b64encode(claims).rstrip(b"=").decode(), signature))


def shared_secret_of_the_set(provider: Provider) -> str:
    """Keys that are not public are none of ours, even if they are published."""
    return jwt.encode(provider.claims(), b"secret" * 8, algorithm="HS256", headers={"kid": "shared"})


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (unsigned, "algorithm"),
        (signed_with_the_public_key, "algorithm"),
        (shared_secret_of_the_set, "algorithm"),
        (lambda p: p.token(algorithm="RS512"), "algorithm"),
        (of_another_key, "does not hold"),
        (changed, "does not hold"),
        (lambda p: p.token(kid="curve"), "a key that its issuer does not publish"),
        (lambda p: p.token(kid="nobody"), "a key that its issuer does not publish"),
        (lambda p: p.token(exp=now() - timedelta(minutes=2)), "has ended"),
        (lambda p: p.token(nbf=now() + timedelta(minutes=2)), "not hold yet"),
        (lambda p: p.token(iat=now() + timedelta(minutes=2)), "not hold yet"),
        (lambda p: p.token(aud="somebody"), "another audience"),
        (lambda p: p.token(aud=[]), "does not hold"),
        (lambda p: p.token(iss="https://other.example"), "another issuer"),
        (lambda p: p.token(exp=None), "does not hold"),
        (lambda p: p.token(aud=None), "does not hold"),
        (lambda p: p.token(iss=None), "does not hold"),
        (lambda p: p.token(sub=None), "does not hold"),
        (lambda _: "garbage", "no token"),
        (lambda _: "a.b.c", "no token"),
        (lambda _: "e30.e30.", "algorithm"),
        (lambda _: "x" * 20_000, "no token"),
        (lambda p: p.token() + "x", "no token"),
    ],
)
async def test_a_token_that_does_not_hold(door: Door, provider: Provider, make, says: str) -> None:
    """401 with a challenge, and the reason without the token."""
    token = make(provider)
    answer = await door.ask(token)
    assert answer.status_code == 401, answer.text
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert says in answer.json()["detail"]
    assert token not in answer.text


async def test_a_clock_may_be_a_little_wrong(door: Door, provider: Provider) -> None:
    """Some seconds of difference between provider and server refuse nobody."""
    assert (await door.ask(provider.token(exp=now() - timedelta(seconds=5)))).status_code == LET_IN
    assert (await door.ask(provider.token(nbf=now() + timedelta(seconds=5)))).status_code == LET_IN


async def test_scopes_and_namespaces_by_settings(door: Door, provider: Provider) -> None:
    """Roles stand for scopes, by a path of claims; without a claim the setting names the namespaces."""
    door.trusted |= {
        "scope_claims": ("realm_access.roles",),
        "scopes": {"clerk": frozenset({Scope.PROCESSES_READ, Scope.STATE_READ})},
        "namespaces_claim": "https://acme.example/namespaces",
        "namespaces": ("shop.*",),
    }
    clerk = {"realm_access": {"roles": ["clerk", "other", 7]}}
    assert (await door.ask(provider.token(**clerk))).status_code == LET_IN
    assert (await door.ask(provider.token())).json()["scope"] == "processes:read"
    odd = {"https://acme.example/namespaces": "billing.* b/a/d"}
    assert (await door.ask(provider.token(**clerk, **odd))).json()["namespace"] == shop.NS
    for roles in ("clerk", ["clerk"]):
        assert (await door.ask(provider.token(realm_access={"roles": roles}))).status_code == LET_IN
    for wrong in (None, 7, {"roles": 7}, {"roles": {"clerk": True}}, ["clerk"]):
        assert (await door.ask(provider.token(realm_access=wrong))).status_code == 403


async def test_without_namespaces_one_sees_none(door: Door, provider: Provider) -> None:
    """Neither a missing claim nor an empty one means all."""
    for claim in (None, [], "", 7, {"*": True}):
        assert (await door.ask(provider.token(progressor_namespaces=claim))).status_code == 403


async def test_the_keys_are_asked_for_once(door: Door, provider: Provider) -> None:
    """However many tokens come, with keys that are known or not."""
    for _ in range(3):
        await door.ask(provider.token())
        await door.ask(provider.token(kid="nobody"))
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_a_new_key_is_found(door: Door, provider: Provider, clock: Clock) -> None:
    """An unknown key makes the server ask again, if it did not just now; a key that is gone is gone."""
    assert (await door.ask(provider.token())).status_code == LET_IN
    provider.keys["two"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    provider.published = ["two"]
    assert (await door.ask(provider.token("two"))).status_code == 401
    assert (await door.ask(provider.token())).status_code == LET_IN
    clock.offset += jwks.ASK_AGAIN_SECONDS
    assert (await door.ask(provider.token("two"))).status_code == LET_IN
    assert (await door.ask(provider.token("one"))).status_code == 401


async def test_keys_out_of_reach(door: Door, provider: Provider, clock: Clock) -> None:
    """503 for what cannot be told; known keys go on for an hour, and no longer."""
    provider.status = 500
    first = await door.ask(provider.token())
    assert (first.status_code, first.headers["Retry-After"]) == (503, "1")
    assert first.json()["type"].endswith(":unverified")
    provider.status = 200
    clock.offset += jwks.ASK_AGAIN_SECONDS
    assert (await door.ask(provider.token())).status_code == LET_IN
    provider.status = 500
    clock.offset += jwks.FRESH_SECONDS + 1
    assert (await door.ask(provider.token())).status_code == LET_IN
    assert (await door.ask(provider.token(kid="nobody"))).status_code == 503
    assert (await door.ask(provider.token(exp=now() - timedelta(hours=1)))).status_code == 401
    clock.offset += jwks.STALE_SECONDS
    assert (await door.ask(provider.token())).status_code == 503


async def test_static_tokens_hold_beside(door: Door, provider: Provider, dsn: str) -> None:
    """What begins as one of ours is one of ours."""
    async with Client(dsn) as client:
        _, bearer = await client.tokens.create("x", scopes=["all"], namespaces=["*"], lifetime=None)
    assert (await door.ask(bearer.text)).status_code == LET_IN
    assert (await door.ask(bearer.text[:-1])).status_code == 401
    assert provider.asked == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"algorithms": ("HS256",)}, "http_oidc_algorithms"),
        ({"algorithms": ("none",)}, "http_oidc_algorithms"),
        ({"issuer": "http://idp.example"}, "http_oidc_issuer"),
        ({"issuer": "idp"}, "http_oidc_issuer"),
        ({"jwks_url": "http://idp.example/keys"}, "http_oidc_jwks_url"),
        ({"jwks_url": "file:///etc/passwd"}, "http_oidc_jwks_url"),
    ],
)
def test_a_provider_that_cannot_be_trusted_is_refused(wrong: dict[str, object], field: str) -> None:
    """Signatures that whoever checks can make, and keys that anybody on the way can change."""
    with pytest.raises(InvalidRequest) as caught:
        Trusted(**{"issuer": "https://idp.example", "audience": "me", **wrong})  # type: ignore[arg-type]
    assert caught.value.field == field
