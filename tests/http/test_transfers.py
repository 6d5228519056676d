"""Export and import over HTTP: a page of lines, and lines in one transaction."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from progressor import Engine, InvalidRequest, Namespace, NamespaceNotFound, Process, ProcessNotFound
from progressor.archive.pages import ImportOutcome
from progressor.archive.records import write_line
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from tests.open_access import OpenAccess
from tests.support import NS, check_invariants
from tests.transfers import made, outline

DUE = datetime(2040, 1, 1, 12, tzinfo=UTC)


def shop() -> Namespace[dict[str, Any]]:
    namespace: Namespace[dict[str, Any]] = Namespace(NS, state=dict[str, Any])

    @namespace.init
    async def begin(process: Process[dict[str, Any]]) -> None:
        process.state = {"paid": 0}

    return namespace


@pytest.fixture
async def transport(dsn: str) -> AsyncIterator[httpx.ASGITransport]:
    """The API of a running engine."""
    async with Engine(dsn, [shop()]) as engine:
        yield httpx.ASGITransport(make_app(engine.client, access=OpenAccess()))
    check_invariants(dsn)


@pytest.fixture
async def client(transport: httpx.ASGITransport) -> AsyncIterator[HttpClient]:
    async with HttpClient("http://api", transport=transport) as client:
        yield client


async def test_there_and_back(client: HttpClient) -> None:
    """Page by page; what is there already is left alone."""
    processes = [made(f"p{n}", namespace=NS, due=DUE) for n in range(3)]
    assert await client.import_processes(processes[:2]) == [ImportOutcome.IMPORTED] * 2
    assert await client.import_processes(processes[1:]) == [ImportOutcome.TAKEN, ImportOutcome.IMPORTED]
    found, cursor = [], None
    while True:
        page = await client.export_processes(NS, limit=1, cursor=cursor)
        found += page.processes
        cursor = page.cursor
        if cursor is None:
            break
    assert [outline(each) for each in found] == [outline(each) for each in processes]
    (one,) = (await client.export_processes(NS, process_id="p1")).processes
    assert one.process.process_id == "p1"
    assert (await client.export_processes(NS, metadata={"a": "b"})).processes == []
    assert (await client.export_processes(NS, status="error")).processes == []
    assert (await client.get(NS, "p2")).state == {"item": "tea", "paid": 2}


async def test_what_cannot_be(client: HttpClient) -> None:
    """By the errors of Client."""
    with pytest.raises(ProcessNotFound):
        await client.export_processes(NS, process_id="nobody")
    with pytest.raises(NamespaceNotFound):
        await client.export_processes("nobody.serves")
    with pytest.raises(NamespaceNotFound):
        await client.import_processes([made("p1", namespace="nobody.serves", due=DUE)])
    twice = [made("p1", namespace=NS, due=DUE)] * 2
    with pytest.raises(InvalidRequest, match="once"):
        await client.import_processes(twice)
    with pytest.raises(InvalidRequest, match="one namespace"):
        await client.import_processes([*twice, made("p1", namespace="other", due=DUE)])
    with pytest.raises(InvalidRequest, match="limit"):
        await client.export_processes(NS, limit=1001)
    for more in ({"status": "error"}, {"metadata": {"a": "b"}}, {"cursor": "c"}):
        with pytest.raises(InvalidRequest, match="names one process"):
            await client.export_processes(NS, process_id="p1", **more)


async def test_lines_that_are_none(transport: httpx.ASGITransport) -> None:
    """Nothing of them is imported, and the problem names the line."""
    good = b"".join(map(write_line, made("p1", namespace=NS, due=DUE).records()))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as asking:
        url = f"/v1/namespaces/{NS}/import"
        lines = {"Content-Type": "application/x-ndjson"}
        bad = await asking.post(url, content=good + b"{}\n", headers=lines)
        assert (bad.status_code, "line 9" in bad.json()["detail"]) == (400, True)
        elsewhere = await asking.post("/v1/namespaces/other/import", content=good, headers=lines)
        assert "is imported at that one" in elsewhere.json()["detail"]
        assert (await asking.post(url, content=good)).status_code == 415
        exported = await asking.get(f"/v1/namespaces/{NS}/export")
        assert (exported.status_code, exported.content) == (200, b"")
        assert (await asking.post(url, content=good, headers=lines)).json() == {"outcomes": ["imported"]}
        exported = await asking.get(f"/v1/namespaces/{NS}/export")
        assert exported.headers["Content-Type"].startswith("application/x-ndjson")
        kinds = [json.loads(line)["kind"] for line in exported.content.splitlines()]
        assert kinds == ["process", "task", "task", "task", "event", "event", "event", "end"]
