"""Pages over HTTP: bounded in bytes, whatever one entry weighs, and continued where they end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from progressor import HistoryRange, Namespace, Process
from progressor.client import reader
from progressor.http import HttpClient
from progressor.http.server.options import HttpOptions
from progressor.storage.queries import reads as storage_reads
from tests.http.conftest import Serve

NS = "large"
URL = f"/v1/namespaces/{NS}/processes"
# Of one value; two have no room on a page.
SIZE = 60_000
OPTIONS = HttpOptions(max_page_bytes=2 * SIZE - 10_000)


def large() -> Namespace:
    """Processes whose calls make events and answers of the size that is asked for."""
    namespace = Namespace(NS, state=dict)

    @namespace.init
    async def begin(process: Process[dict[str, Any]], args: dict[str, Any]) -> None:
        process.state = args

    @namespace.call
    async def fill(process: Process[dict[str, Any]], args: dict[str, Any]) -> str:
        for _ in range(args["events"]):
            process.emit("filled", text="x" * args["size"])
        answer: str = "y" * args["size"]
        return answer

    return namespace


@pytest.fixture
async def filled(serve: Serve) -> httpx.AsyncClient:
    """A process of three calls, each with two events, all of them large."""
    api = await serve(large(), options=OPTIONS)
    assert (await api.post(f"{URL}/p", json={"text": "z" * SIZE})).status_code == 201
    for _ in range(3):
        args = {"events": 2, "size": SIZE}
        assert (await api.post(f"{URL}/p/calls/fill", json=args)).status_code == 200
    return api


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_events_come_as_far_as_they_have_room(filled: httpx.AsyncClient, direction: str) -> None:
    """And `after` goes on behind the last one that came."""
    after, pages = 0, []
    while after is not None:
        params = {"after": after, "direction": direction, "limit": 1000}
        page = (await filled.get(f"{URL}/p/events", params=params)).json()
        pages.append([each["event_id"] for each in page["events"]])
        after = page["after"]
    ids = [1, 2, 3, 4, 5, 6] if direction == "forward" else [6, 5, 4, 3, 2, 1]
    assert [each for page in pages for each in page] == ids
    assert max(map(len, pages)) == 2


async def test_a_trace_comes_as_far_as_it_has_room(filled: httpx.AsyncClient) -> None:
    """A task with all its events, or not at all; `after` and `before` go on."""
    whole = await traced(filled, "after", limit=1000)
    assert [len(page) for page in whole] == [1, 1, 1, 1]
    tasks = [task for page in whole for task in page]
    assert [len(task["events"]) for task in tasks] == [0, 2, 2, 2]
    assert all(len(event["payload"]["text"]) == SIZE for task in tasks for event in task["events"])
    backward = await traced(filled, "before", last=3)
    assert [task for page in reversed(backward) for task in page] == tasks[1:]
    assert len(backward) == 3


async def traced(api: httpx.AsyncClient, following: str, **params: int) -> list[list[dict[str, Any]]]:
    """All pages of a trace."""
    pages: list[list[dict[str, Any]]] = []
    while True:
        page = (await api.get(f"{URL}/p/trace", params=params)).json()
        pages.append(page["tasks"])
        if page[following] is None:
            return pages
        params[following] = page[following]
        if "last" in params:
            params["last"] -= len(page["tasks"])


async def test_a_history_is_shown_as_far_as_it_has_room(filled: httpx.AsyncClient) -> None:
    """The first or the last ones of those that were asked for."""
    for asked, ids in (("first:5", [1, 2]), ("last:5", [6, 5])):
        shown = (await filled.get(f"{URL}/p", params={"history": asked})).json()
        assert [each["event_id"] for each in shown["history"]] == ids


async def test_a_search_without_states_has_room_for_all(filled: httpx.AsyncClient) -> None:
    """States that nobody asked for are not read."""
    for name in ("q", "r"):
        await filled.post(f"{URL}/{name}", json={"text": "z" * SIZE})
    without = (await filled.get("/v1/processes")).json()
    assert [len(without["processes"]), without["cursor"]] == [3, None]
    first = (await filled.get("/v1/processes", params={"state": True})).json()
    assert [len(first["processes"]), first["cursor"] is None] == [2, False]


async def test_clients_hand_out_the_whole(
    filled: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page, over HTTP as in Python, in order and up to what was asked for."""
    monkeypatch.setattr(storage_reads, "ROOM", 2 * SIZE - 10_000)
    monkeypatch.setattr(reader, "ROOM", SIZE - 10_000)
    app = filled._transport.app  # type: ignore[attr-defined]
    async with HttpClient("http://api", transport=httpx.ASGITransport(app)) as http:
        for one in (app.state.server.client, http):
            trace = await one.trace(NS, "p")
            assert [len(task.events) for task in trace] == [0, 2, 2, 2]
            assert [task.task_id for task in await one.trace(NS, "p", last=3)] == [
                task.task_id for task in trace[1:]
            ]
            assert len(await one.trace(NS, "p", limit=3)) == 3
            process = await one.get(NS, "p")
            assert [event.event_id for event in process.history] == [1, 2, 3, 4, 5, 6]
            backward = await one.get(NS, "p", range=HistoryRange(5, 3, "backward"))
            assert [event.event_id for event in backward.history] == [4, 3, 2]
