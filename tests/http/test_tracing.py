"""A trace context over HTTP: from the headers of a request to the handler and the log."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from progressor import Namespace, Process, tracing
from progressor.http import HttpClient
from progressor.loggers import message_of
from tests.http.conftest import Serve
from tests.support import eventually

NS = "shop.traced"
PATH = f"/v1/namespaces/{NS}/processes/o1"
TRACE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
PARENT, STATE = f"00-{TRACE}-00f067aa0ba902b7-01", "congo=t61rcWkgMzE"


@pytest.fixture
async def api(serve: Serve) -> httpx.AsyncClient:
    """Who asks the API of a process whose answers are the trace contexts of its requests."""
    namespace: Namespace[Any] = Namespace(NS)

    @namespace.init
    async def begin(process: Process[Any]) -> list[str | None]:
        return [process.task.traceparent, process.task.tracestate]

    @namespace.call
    async def show(process: Process[Any]) -> list[str | None]:
        return [process.task.traceparent, process.task.tracestate]

    @namespace.repair
    async def mend(process: Process[Any]) -> None: ...

    return await serve(namespace)


async def test_the_headers_reach_the_handler(
    api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a start and a call; the trace and the line of the request show the trace id."""
    caplog.set_level(logging.INFO, "progressor.http")
    headers = {"Traceparent": PARENT, "tracestate": STATE}
    assert (await api.post(PATH, headers=headers)).json() == [PARENT, STATE]
    assert (await api.post(f"{PATH}/calls/show", headers=headers)).json() == [PARENT, STATE]
    assert (await api.post(f"{PATH}/calls/show")).json() == [None, None]
    tasks = (await api.get(f"{PATH}/trace")).json()["tasks"]
    assert [each["trace_id"] for each in tasks] == [TRACE, TRACE, None]

    def lines() -> list[dict[str, Any]]:
        return [vars(each) for each in caplog.records if message_of(each) == "request answered"]

    await eventually(lambda: len(lines()) == 4, "logged")
    assert [each.get("trace_id") for each in lines()] == [TRACE, TRACE, None, None]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ([("traceparent", "nonsense")], [None, None]),
        ([("traceparent", PARENT.upper()), ("tracestate", STATE)], [None, None]),
        ([("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01")], [None, None]),
        ([("traceparent", PARENT), ("traceparent", PARENT)], [None, None]),
        ([("tracestate", STATE)], [None, None]),
        ([("traceparent", PARENT), ("tracestate", "=")], [PARENT, None]),
        ([("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], [PARENT, "a=1,b=2"]),
        ([("traceparent", "ä".encode())], [None, None]),
    ],
)
async def test_what_is_malformed_is_ignored(
    api: httpx.AsyncClient, headers: list[tuple[str, Any]], seen: list[str | None]
) -> None:
    """The request is done as one without it."""
    answer = await api.post(PATH, headers=headers)
    assert (answer.status_code, answer.json()) == (201, seen)


async def test_http_client_sends_the_context_around_it(api: httpx.AsyncClient) -> None:
    """None outside of `tracing`."""
    async with HttpClient("http://api", transport=api._transport) as client:
        with tracing(PARENT, STATE):
            assert await client.start(NS, "o1") == [PARENT, STATE]
            assert await client.call(NS, "o1", "show") == [PARENT, STATE]
            await client.notify(NS, "o1", "show")
        assert await client.call(NS, "o1", "show") == [None, None]
        with tracing(f"00-{OTHER}-00f067aa0ba902b7-00"):
            done = (await client.trace(NS, "o1"))[1].task_id
            assert (await client.redo(NS, "o1", done))[0] == f"00-{OTHER}-00f067aa0ba902b7-00"
        assert [each.trace_id for each in await client.trace(NS, "o1")] == [*[TRACE] * 3, None, OTHER]
