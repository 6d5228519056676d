"""A value that goes through the API comes back as it is: JSON as JSON, bytes as bytes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from progressor import Client, Engine, Event, Intent, Namespace, Process, Task
from progressor.client.results import TraceEntry
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from tests.bad_input.draws import exact
from tests.http.conftest import asking
from tests.open_access import OpenAccess

JSON, RAW = "values.json", "values.raw"

_numbers = itertools.count(1)
# Shaped as a tag for bytes could be.
tagged = st.fixed_dictionaries({"base64": st.sampled_from(["AP8=", "", "no base64!"]) | exact})
values = exact | tagged | st.lists(tagged, max_size=3) | st.dictionaries(st.just("payload_base64"), exact)
datas = st.binary(min_size=1, max_size=30) | st.sampled_from([b"1", b"null", b'{"base64":"AP8="}', b"\xff"])


class _Keeping:
    """Answers with its arguments, and keeps them as state and as an event."""

    async def process(self, task: Task, process: Process[Any]) -> Intent:
        data = task.args or b""
        return Intent(response=data, aux_state=data, events=(Event(data, {"name": "kept"}),))


def _keeping() -> Namespace:
    namespace = Namespace(JSON)

    @namespace.init
    async def begin(process: Process[Any], args: Any = None) -> Any:
        process.state = args
        process.emit("kept", value=args)
        return [args, process.context]

    @namespace.repair
    async def mend(process: Process[Any], args: Any = None) -> Any:
        return args

    return namespace


class _Stack:
    """An engine, and an API's client on a loop that lives across the examples of a test."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self.run = runner.run
        self.direct = Client(dsn)
        self._engine = Engine(dsn, [_keeping(), Namespace(RAW, handler=_Keeping())])
        self._stack = AsyncExitStack()

    async def begin(self) -> None:
        enter = self._stack.enter_async_context
        await enter(self._engine)
        await enter(self.direct)
        api = await enter(asking(make_app(self.direct, access=OpenAccess())))
        self.client = await enter(HttpClient("http://api", transport=api._transport))

    async def end(self) -> None:
        await self._stack.aclose()


@pytest.fixture
def stack(dsn: str) -> Iterator[_Stack]:
    with asyncio.Runner() as runner:
        stack = _Stack(dsn, runner)
        runner.run(stack.begin())
        yield stack
        runner.run(stack.end())


def _same(found: Any, wanted: Any) -> None:
    """Of one type, too: Python takes 1, 1.0 and True for the same."""
    assert repr(found) == repr(wanted)


def _values(entry: TraceEntry) -> list[Any]:
    return [entry.args, entry.response, entry.context, *(each.payload for each in entry.events)]


several = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@several
@given(value=values)
@example(value={"base64": "AP8="})
@example(value={"base64": "no base64!"})
@example(value={"base64": 7})
def test_json_comes_back_as_it_is(stack: _Stack, value: Any) -> None:
    """As arguments, context, answer, state, event and in the trace, whatever it is shaped like."""

    async def ask() -> None:
        process = f"j{next(_numbers)}"
        _same(await stack.client.start(JSON, process, value, context=value), [value, value])
        seen = await stack.client.get(JSON, process)
        _same(seen.state, value)
        _same([each.payload for each in seen.history], [{"value": value}])
        (entry,) = await stack.client.trace(JSON, process)
        (wanted,) = await stack.direct.trace(JSON, process)
        _same(_values(entry), _values(wanted))
        assert entry == wanted
        page = await stack.client.search(namespace=JSON, limit=1000)
        (found,) = [each for each in page.items if each.process_id == process]
        _same(found.state, value)
        await stack.client.remove(JSON, process)

    stack.run(ask())


@several
@given(value=values)
@example(value={"base64": "AP8="})
@example(value={"payload": 1, "payload_base64": "AP8="})
def test_json_is_imported_as_it_is(stack: _Stack, value: Any) -> None:
    """State and payloads."""

    async def ask() -> None:
        process = f"p{next(_numbers)}"
        events = [Event(value, {"name": "kept"}), {"name": "again", "payload": value}]
        await stack.client.put(JSON, process, state=value, events=events, status="error")
        seen = await stack.client.get(JSON, process)
        _same(seen.state, value)
        _same([each.payload for each in seen.history], [value, value])
        await stack.client.remove(JSON, process)

    stack.run(ask())


@several
@given(data=datas)
def test_bytes_come_back_as_they_are(stack: _Stack, data: bytes) -> None:
    """Those of a raw namespace, be they JSON as well: started, shown, traced, imported, removed."""

    async def ask() -> None:
        process, put = f"r{next(_numbers)}", f"r{next(_numbers)}"
        _same(await stack.client.start(RAW, process, data), data)
        seen = await stack.client.get(RAW, process)
        _same((seen.state, seen.aux_state), (data, data))
        _same([each.payload for each in seen.history], [data])
        (entry,) = await stack.client.trace(RAW, process)
        (wanted,) = await stack.direct.trace(RAW, process)
        _same(_values(entry), _values(wanted))
        assert entry == wanted
        await stack.client.put(RAW, put, state=data, events=[{"name": "kept", "payload": data}])
        again = await stack.client.get(RAW, put)
        _same((again.state, [each.payload for each in again.history]), (data, [data]))
        await stack.client.put(RAW, f"{put}x", events=[{"name": "kept", "payload": data}])
        (event,) = (await stack.client.get(RAW, f"{put}x")).history
        _same(event.payload, data)
        for each in (process, put, f"{put}x"):
            await stack.client.remove(RAW, each)

    stack.run(ask())
