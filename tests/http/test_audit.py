"""The audit over HTTP: the caller, its address and its reason; and what each caller sees of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from progressor import Client, acting
from progressor.client.tokens import NewToken
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from tests.http.conftest import asking, opened

NS = "shop.a"


async def made(client: Client, *scopes: str, namespaces: tuple[str, ...] = ("*",)) -> NewToken:
    return await client.tokens.create("web", scopes=scopes, namespaces=namespaces, lifetime=None)


async def entries(api: httpx.AsyncClient, token: NewToken, query: str = "") -> Any:
    answer = await api.get(f"/v1/audit{query}", headers={"Authorization": f"Bearer {token.bearer.text}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("shown", ["10.0.0.7", "::ffff:10.0.0.7"])
async def test_the_caller_is_noted(dsn: str, shown: str) -> None:
    """By its token's id, with the address of its connection and the reason of its header.

    A socket of both kinds shows an IPv4 address as one of IPv6.
    """
    await opened(dsn, NS)
    async with Client(dsn, actor="root") as client:
        app = make_app(client, access=Authenticator(client.tokens, AccessOptions()))
        token = await made(client, "admin", "audit:read")
        async with asking(app, host=shown) as api:
            said = {"Authorization": f"Bearer {token.bearer.text}"}
            said["Progressor-Reason"] = "ticket%204711%20%E2%98%8E"
            assert (await api.post(f"/v1/namespaces/{NS}/pause", headers=said)).status_code == 204
            page = await entries(api, token, f"?namespace={NS}")
    (entry,) = page["entries"]
    assert (entry["actor"], entry["way"]) == (f"token {token.token.token_id}", "http")
    assert (entry["verb"], entry["reason"], entry["origin"]) == ("pause", "ticket 4711 ☎", "10.0.0.7")
    assert token.bearer.secret not in str(page)


@pytest.mark.parametrize("reason", ["two%0Alines", "%FF", "100%", "50%&more", "x" * 257, ""])
async def test_a_bad_reason_is_refused(dsn: str, api: httpx.AsyncClient, reason: str) -> None:
    """Before anything is done."""
    refused = await api.post("/v1/namespaces/shop.order/pause", headers={"Progressor-Reason": reason})
    assert (refused.status_code, refused.json()["field"]) == (400, "reason")
    assert (await api.get("/v1/audit")).json() == {"entries": [], "cursor": None}


async def test_callers_see_their_namespaces(dsn: str) -> None:
    """What concerns none is for those who see all."""
    await opened(dsn, NS)
    await opened(dsn, "billing")
    async with Client(dsn) as client:
        app = make_app(client, access=Authenticator(client.tokens, AccessOptions()))
        all_of_it = await made(client, "audit:read")
        of_shops = await made(client, "audit:read", namespaces=("shop.*",))
        await client.pause(NS)
        await client.pause("billing")
        async with asking(app) as api:
            found = [entry["verb"] for entry in (await entries(api, all_of_it))["entries"]]
            assert found == ["pause", "pause", "create_token", "create_token"]
            (entry,) = (await entries(api, of_shops))["entries"]
            assert entry["namespace"] == NS
            bearer = {"Authorization": f"Bearer {of_shops.bearer.text}"}
            refused = await api.get("/v1/audit?namespace=billing", headers=bearer)
            assert refused.status_code == 403


async def test_pages(dsn: str) -> None:
    """Each entry once, newest first, up to the page without a cursor."""
    await opened(dsn, NS)
    async with Client(dsn) as client:
        for limit in range(5):
            await client.set_group_limit(NS, "acme", limit)
        app = make_app(client, access=Authenticator(client.tokens, AccessOptions()))
        token = await made(client, "audit:read")
        async with asking(app) as api:
            found, cursor = [], None
            while True:
                more = "" if cursor is None else f"&cursor={cursor}"
                page = await entries(api, token, f"?limit=2&verb=set_group_limit&since=PT1H{more}")
                found += [entry["detail"] for entry in page["entries"]]
                cursor = page["cursor"]
                if cursor is None:
                    break
            assert found == [f"limit {limit}" for limit in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?verb=rename", "verb"),
        ("?cursor=x", "cursor"),
        ("?since=yesterday", "since"),
        ("?limit=1001", "limit"),
    ],
)
async def test_bad_input(api: httpx.AsyncClient, query: str, field: str) -> None:
    """It is refused by its name."""
    refused = await api.get(f"/v1/audit{query}")
    assert (refused.status_code, refused.json()["field"]) == (400, field)


async def test_http_client(api: httpx.AsyncClient) -> None:
    """The reason of a block goes with its requests; the API knows who asks."""
    async with HttpClient("http://api", transport=api._transport) as client:
        with acting("eve", reason="the provider is ☎"):
            await client.pause("shop.order")
            await client.resume("shop.order")
        await client.put("shop.order", "p1", state={"item": "tea"})
        page = await client.audit("shop.order", limit=2)
        assert [entry.verb for entry in page.entries] == ["put", "resume"]
        assert [entry.reason for entry in page.entries] == [None, "the provider is ☎"]
        assert {entry.actor for entry in page.entries} == {"anybody"}
        rest = await client.audit("shop.order", cursor=page.cursor)
        assert [entry.verb for entry in rest.entries] == ["pause"]
        assert rest.cursor is None
