"""A keyring behind the API: it seals and reads for its callers, and says which key it lacks."""

from __future__ import annotations

from contextlib import AsyncExitStack

import httpx
import psycopg
import pytest

from progressor import Client, Engine, HandlerFailed, KeyMissing, Namespace, Process, Undecryptable
from progressor.codecs import Keyring
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from tests.http.conftest import asking
from tests.open_access import OpenAccess

K1, K2 = bytes(range(32)), bytes(range(32, 64))
ONE, TWO = Keyring("k1", {"k1": K1}), Keyring("k2", {"k2": K2})
NS = "vault"
URL = f"/v1/namespaces/{NS}/processes/p"


def vault(codec: Keyring) -> Namespace:
    namespace = Namespace(NS, codec=codec)

    @namespace.init
    async def begin(process: Process, words: list[str]) -> int:
        process.state = words
        process.emit("begun", words=words)
        return len(words)

    @namespace.call
    async def add(process: Process, word: str) -> list[str]:
        process.state.append(word)
        return process.state

    return namespace


async def api_of(stack: AsyncExitStack, dsn: str, codec: Keyring) -> httpx.AsyncClient:
    """Who asks an API with an APP of this keyring, as `progressor api APP` serves it."""
    client = await stack.enter_async_context(Client(dsn, [vault(codec)]))
    return await stack.enter_async_context(asking(make_app(client, access=OpenAccess())))


async def test_callers_over_http_need_no_key(dsn: str, stack: AsyncExitStack) -> None:
    """The API seals what they send and decrypts what they read; in the tables it is encrypted."""
    await stack.enter_async_context(Engine(dsn, [vault(ONE)]))
    api = await api_of(stack, dsn, ONE)
    async with HttpClient("http://api", transport=api._transport) as client:
        assert await client.start(NS, "p", ["sesame"], context="who") == 1
        assert await client.call(NS, "p", "add", "open") == ["sesame", "open"]
        found = await client.get(NS, "p")
        assert (found.state, found.history[0].payload) == (["sesame", "open"], {"words": ["sesame"]})
        assert [each.args for each in await client.trace(NS, "p")] == [["sesame"], "open"]
    with psycopg.connect(dsn) as connection:
        ((state,),) = connection.execute("SELECT aux_state FROM progressor.processes").fetchall()
    assert state.startswith(ONE.active_prefix)


async def test_a_missing_key_is_a_problem_of_its_own(dsn: str, stack: AsyncExitStack) -> None:
    """Of the process, its events, its trace and an answer; HttpClient raises it as Client does."""
    engine = await stack.enter_async_context(Engine(dsn, [vault(ONE)]))
    receipt = await engine.client.submit_start(NS, "p", ["sesame"])
    await engine.client.answer(receipt)
    api = await api_of(stack, dsn, TWO)
    for path in (
        URL,
        f"{URL}/events",
        f"{URL}/trace",
        f"{URL}/tasks/{receipt.task_id}",
        "/v1/processes?state=true",
    ):
        answer = await api.get(path)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (500, "urn:progressor:problem:key-missing"), path
        assert (problem["kid"], problem["process_id"]) == ("k1", "p")
        assert "sesame" not in answer.text
    async with HttpClient("http://api", transport=api._transport) as client:
        with pytest.raises(KeyMissing) as raised:
            await client.trace(NS, "p")
        assert (raised.value.kid, raised.value.namespace) == ("k1", NS)
        # The worker lacks the key of the request: the process breaks, and the caller is told so.
        with pytest.raises(HandlerFailed, match=r"KeyMissing.*'k2'"):
            await client.call(NS, "p", "add", "open")


async def test_a_damaged_value_is_a_problem_of_its_own(dsn: str, stack: AsyncExitStack) -> None:
    """Another one, as no key would help."""
    engine = await stack.enter_async_context(Engine(dsn, [vault(ONE)]))
    await engine.client.start(NS, "p", ["sesame"])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE progressor.events SET payload = payload || '\\x00'::bytea")
    api = await api_of(stack, dsn, ONE)
    answer = await api.get(f"{URL}/events")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:progressor:problem:undecryptable")
    assert answer.json()["kind"] == "event"
    async with HttpClient("http://api", transport=api._transport) as client:
        with pytest.raises(Undecryptable, match="event: it was changed"):
            await client.get(NS, "p")
