"""Processes removed by a filter, a page at a time, from a Client and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

import httpx
import pytest

from progressor import (
    Client,
    Engine,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    Process,
    StorageUnavailable,
)
from progressor.client.results import Removal
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from tests.open_access import OpenAccess
from tests.support import NS, Tables, check_invariants

MINE = {"customer": 17}
Remover = Client | HttpClient


def shop() -> Namespace[dict[str, Any]]:
    """Processes with an event each."""
    namespace: Namespace[dict[str, Any]] = Namespace(NS, state=dict[str, Any])

    @namespace.init
    async def begin(process: Process[dict[str, Any]]) -> None:
        process.state = {}
        process.emit("begun")

    return namespace


@pytest.fixture
async def engine(dsn: str) -> AsyncIterator[Engine]:
    """A running engine with three processes of one customer, and one of another."""
    async with Engine(dsn, [shop()]) as engine:
        for n in range(3):
            await engine.client.start(NS, f"p{n}", metadata=MINE)
        await engine.client.start(NS, "other", metadata={"customer": 18})
        yield engine
    check_invariants(dsn)


@pytest.fixture(params=["client", "http"])
async def client(request: pytest.FixtureRequest, engine: Engine) -> AsyncIterator[Remover]:
    """The engine's client, or one over HTTP."""
    if request.param == "client":
        yield engine.client
        return
    transport = httpx.ASGITransport(make_app(engine.client, access=OpenAccess()))
    async with HttpClient("http://api", transport=transport) as client:
        yield client


async def left(client: Remover) -> list[str]:
    """The ids of all processes."""
    return [each.process_id for each in (await client.search(namespace=NS)).items]


async def test_those_that_match_are_removed_page_by_page(client: Remover) -> None:
    """With a receipt of each, and an entry in the audit; a dry run removes none, a repetition neither."""
    look = await client.remove_processes(NS, metadata=MINE, dry_run=True)
    assert [(each.process_id, each.events, each.removed_at) for each in look.removals] == [
        ("p0", 1, None),
        ("p1", 1, None),
        ("p2", 1, None),
    ]
    assert await left(client) == ["p0", "p1", "p2", "other"]
    removed, cursor = list[Removal](), None
    while True:
        page = await client.remove_processes(NS, metadata=MINE, limit=2, cursor=cursor)
        removed += page.removals
        if (cursor := page.cursor) is None:
            break
    assert [each._replace(removed_at=None) for each in removed] == look.removals
    assert all(each.removed_at is not None for each in removed)
    assert await left(client) == ["other"]
    assert (await client.remove_processes(NS, metadata=MINE)).removals == []
    noted = (await client.audit(NS, verb="remove")).entries
    assert {each.process_id for each in noted} == {"p0", "p1", "p2"}


async def test_a_filter_is_needed(client: Remover) -> None:
    """An empty one, a wrong one, and a namespace that nobody knows remove nothing."""
    empty = {"metadata": {}, "status": "running"}
    for wrong in ({}, {"metadata": {}}, empty, {"status": "asleep"}, {"status": "error", "cursor": "x"}):
        with pytest.raises(InvalidRequest):
            await client.remove_processes(NS, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        await client.remove_processes(NS, metadata=MINE, limit=1001)
    with pytest.raises(NamespaceNotFound):
        await client.remove_processes("nobody.serves", status="error")
    assert (await client.remove_processes(NS, status="error")).removals == []
    assert len(await left(client)) == 4


async def test_what_postgresql_refuses_stays(client: Remover, tables: Tables) -> None:
    """A row of the user's points to one: its receipt says why it is there still; the others are gone."""
    tables.execute("CREATE TABLE notes (process_no bigint REFERENCES processes)")
    tables.execute("INSERT INTO notes SELECT process_no FROM processes WHERE process_id = 'p1'")
    page = await client.remove_processes(NS, metadata=MINE)
    assert [each.error is None for each in page.removals] == [True, False, True]
    refused = page.removals[1]
    assert (refused.process_id, refused.removed_at) == ("p1", None)
    assert "notes_process_no_fkey" in str(refused.error)
    assert await left(client) == ["p1", "other"]
    tables.execute("DROP TABLE notes")


async def test_over_http_nothing_is_overlooked(engine: Engine) -> None:
    """A filter that is null, and a body, which may say more than the query, remove nothing."""
    transport = httpx.ASGITransport(make_app(engine.client, access=OpenAccess()))
    async with httpx.AsyncClient(base_url="http://api", transport=transport) as http:
        url = f"/v1/namespaces/{NS}/processes?status=running"
        null = await http.delete(f"{url}&metadata=null")
        assert (null.status_code, null.json()["field"]) == (400, "metadata")
        body = await http.request("DELETE", url, json={"dry_run": True})
        assert (body.status_code, body.json()["field"]) == (400, "body")
    assert len(await left(engine.client)) == 4


def failing(client: Client, monkeypatch: pytest.MonkeyPatch, names: Collection[str]) -> list[str]:
    """Have PostgreSQL not do the removals of these processes in time; return all that are tried."""
    storage, tried = client._node.storage, list[str]()
    remove = storage.remove

    async def removed(namespace: str, process_id: str, *args: Any, **how: Any) -> Any:
        tried.append(process_id)
        if process_id in names:
            raise StorageUnavailable("not now")
        return await remove(namespace, process_id, *args, **how)

    monkeypatch.setattr(storage, "remove", removed)
    return tried


async def test_one_that_is_locked_takes_no_receipts(
    client: Remover, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are removed, and have their receipts; its own says why it is there still."""
    failing(engine.client, monkeypatch, {"p1"})
    page = await client.remove_processes(NS, metadata=MINE)
    assert [each.error for each in page.removals] == [None, "not now", None]
    assert await left(client) == ["p1", "other"]
    with pytest.raises(StorageUnavailable):
        await engine.client.remove_processes(NS, metadata=MINE)


async def test_an_outage_takes_no_receipts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was removed before has its receipts, and what comes later on the page is not tried."""
    client, names = engine.client, [f"n{n:02}" for n in range(40)]
    for name in names:
        await client.start(NS, name, metadata={"customer": 19})
    tried = failing(client, monkeypatch, names[16:])
    page = await client.remove_processes(NS, metadata={"customer": 19})
    assert [each.process_id for each in page.removals] == names
    assert [each.removed_at is not None for each in page.removals] == [True] * 16 + [False] * 24
    assert {each.error for each in page.removals[16:]} == {"not now"}
    assert sorted(tried) == names[:32]
    with pytest.raises(StorageUnavailable):
        await client.remove_processes(NS, metadata={"customer": 19})


async def test_what_is_started_meanwhile_stays(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the search and the removal a process goes, and another one of its name comes."""
    client = engine.client
    search = client.reader.search

    async def searched(**wanted: Any) -> Any:
        found = await search(**wanted)
        await client.remove(NS, "p1")
        await client.start(NS, "p1", metadata=MINE)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(client.reader, "search", searched)
        page = await client.remove_processes(NS, metadata=MINE)
    assert [each.process_id for each in page.removals] == ["p0", "p2"]
    assert await left(client) == ["other", "p1"]
