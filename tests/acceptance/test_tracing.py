"""A W3C trace context travels with what is asked in it, without OpenTelemetry."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from progressor import (
    Client,
    Cron,
    HandlerFailed,
    Namespace,
    Process,
    RetryPolicy,
    SyncClient,
    TaskType,
    TraceEntry,
    log_fields,
    tracing,
)
from progressor.testing.world import World
from tests.acceptance.conftest import MakeClient, Options, of_a_client
from tests.acceptance.support import until

NS, OTHER = "traced.order", "traced.ledger"
IDS = [f"{number:032x}" for number in range(1, 60)]
MOMENT = timedelta(milliseconds=1)


def parent(trace_id: str) -> str:
    return f"00-{trace_id}-00f067aa0ba902b7-01"


class Traced:
    """A namespace whose handlers note the traceparents that they find, and pass work on."""

    def __init__(self, **options: Any) -> None:
        self.seen: list[tuple[str, str | None]] = []
        self.is_mended = True
        self.namespace: Namespace[Any] = Namespace(
            NS, retry_policy=RetryPolicy(initial_interval=MOMENT), **options
        )
        self.other: Namespace[Any] = Namespace(OTHER)
        self._decorate_calls()
        self._decorate_the_rest()

    def note(self, what: str, process: Process[Any]) -> None:
        assert process.task.traceparent == (None if not (fields := log_fields()) else self._of(fields))
        self.seen.append((what, process.task.traceparent))

    def _of(self, fields: dict[str, object]) -> str | None:
        return parent(str(fields["trace_id"])) if "trace_id" in fields else None

    def _decorate_calls(self) -> None:
        @self.namespace.call
        async def arm(process: Process[Any], timers: list[str]) -> str | None:
            self.note("arm", process)
            for name in timers:
                process.set_timer(name, after=MOMENT)
            return process.task.tracestate

        @self.namespace.call
        async def tick(process: Process[Any]) -> None:
            process.set_timer("tick", every=timedelta(milliseconds=10))

        @self.namespace.call
        async def tell(process: Process[Any]) -> None:
            process.send_start(OTHER, "other")
            process.send(OTHER, "other", "told")

        @self.namespace.call
        async def fail(process: Process[Any]) -> None:
            self.note("fail", process)
            if not self.is_mended:
                raise ValueError("a bug")

    def _decorate_the_rest(self) -> None:
        @self.namespace.init
        async def begin(process: Process[Any]) -> None:
            self.note("init", process)

        @self.namespace.timeout
        async def fire(process: Process[Any]) -> None:
            self.note("timeout", process)
            if not self.is_mended:
                self.is_mended = True
                raise ValueError("once")

        @self.namespace.repair
        async def mend(process: Process[Any]) -> None:
            self.note("repair", process)

        @self.other.init
        async def begin_other(process: Process[Any]) -> None:
            self.note("other", process)

        @self.other.call
        async def told(process: Process[Any]) -> None:
            self.note("told", process)

    def of(self, what: str) -> list[str | None]:
        return [found for name, found in self.seen if name == what]


async def entries(client: Client, namespace: str = NS) -> list[tuple[TaskType, str | None]]:
    return [(each.task_type, each.trace_id) for each in await client.trace(namespace, "p")]


async def ended(client: Client, count: int, process_id: str = "p", *, namespace: str = NS) -> None:
    """Wait until so many tasks of a process have ended."""

    def have(trace: list[TraceEntry]) -> bool:
        return sum(each.status.is_final for each in trace) >= count

    await until(lambda: client.trace(namespace, process_id), have)


async def test_a_request_carries_the_context_of_its_block(serve: MakeClient) -> None:
    """To the handler and to the trace; a request outside of any block carries none."""
    traced = Traced()
    client = await serve(traced.namespace)
    with tracing(parent(IDS[0])):
        await client.start(NS, "p")
    with tracing(parent(IDS[1]), "a=1, b@v=2"):
        assert await client.call(NS, "p", "arm", []) == "a=1,b@v=2"
        with tracing(parent(IDS[2])):
            await client.notify(NS, "p", "arm", [])
    assert await client.call(NS, "p", "arm", []) is None
    assert traced.of("init") == [parent(IDS[0])]
    assert traced.of("arm") == [parent(IDS[1]), parent(IDS[2]), None]
    assert [each for _, each in await entries(client)] == [IDS[0], IDS[1], IDS[2], None]


async def test_what_is_malformed_changes_nothing(serve: MakeClient) -> None:
    """The context around stays; a bad tracestate is left out."""
    traced = Traced()
    client = await serve(traced.namespace)
    with tracing("nonsense"), tracing(None):
        await client.start(NS, "p")
    with tracing(parent(IDS[0]), "no"), tracing("00-no"), tracing(None, "a=1"):
        assert await client.call(NS, "p", "arm", []) is None
    assert [each for _, each in await entries(client)] == [None, IDS[0]]


@pytest.mark.parametrize("timers", [[""], ["a", "b"]], ids=["one", "two"])
async def test_a_timer_carries_the_context_of_the_step_that_set_it(
    serve: MakeClient, timers: list[str]
) -> None:
    """Also over a retry, and beside a timer that was set in no context."""
    traced = Traced()
    client = await serve(traced.namespace)
    await client.start(NS, "p")
    traced.is_mended = False
    with tracing(parent(IDS[0])):
        await client.call(NS, "p", "arm", timers)
    await ended(client, 2 + len(timers))
    assert traced.of("timeout") == [parent(IDS[0])] * (len(timers) + 1)
    await client.call(NS, "p", "arm", timers[:1])
    await ended(client, 4 + len(timers))
    assert traced.of("timeout")[-1] is None
    of_timers = [each for kind, each in await entries(client) if kind is TaskType.TIMEOUT]
    assert of_timers == [IDS[0]] * len(timers) + [None]


async def test_a_recurring_timer_keeps_carrying_it(serve: MakeClient) -> None:
    """Each time is set by the step of the time before."""
    traced = Traced()
    client = await serve(traced.namespace)
    await client.start(NS, "p")
    with tracing(parent(IDS[0])):
        await client.call(NS, "p", "tick")
    await until(lambda: asyncio.sleep(0, len(traced.of("timeout"))), lambda count: count >= 3)
    assert set(traced.of("timeout")) == {parent(IDS[0])}


async def test_a_timer_that_is_set_from_outside_carries_the_callers(serve: MakeClient) -> None:
    """It is set by a step of the process."""
    traced = Traced()
    client = await serve(traced.namespace)
    await client.start(NS, "p")
    with tracing(parent(IDS[0])):
        await client.set_timer(NS, "p", "mine", after=MOMENT)
    await ended(client, 3)
    assert traced.of("timeout") == [parent(IDS[0])]


async def test_messages_carry_the_context_of_their_step(serve: MakeClient) -> None:
    """Over the outbox to their targets."""
    traced = Traced()
    client = await serve(traced.namespace, traced.other)
    await client.start(NS, "p")
    with tracing(parent(IDS[0]), "a=1"):
        await client.call(NS, "p", "tell")
    await until(lambda: asyncio.sleep(0, len(traced.of("told"))), bool)
    assert traced.of("other") == traced.of("told") == [parent(IDS[0])]


async def test_a_redo_has_the_context_of_who_asks_for_it_or_that_of_the_request(serve: MakeClient) -> None:
    """So it is with repairs."""
    traced = Traced()
    client = await serve(traced.namespace)
    await client.start(NS, "p")
    traced.is_mended = False
    with tracing(parent(IDS[0])), pytest.raises(HandlerFailed):
        await client.call(NS, "p", "fail")
    traced.is_mended = True
    with tracing(parent(IDS[1])):
        await client.repair(NS, "p")
    failed = (await client.trace(NS, "p"))[1].task_id
    await client.redo(NS, "p", failed)
    with tracing(parent(IDS[2])):
        await client.call(NS, "p", "fail")
    last = (await client.trace(NS, "p"))[-1].task_id
    with tracing(parent(IDS[3])):
        await client.redo(NS, "p", last)
    assert traced.of("repair") == [parent(IDS[1])]
    assert traced.of("fail") == [parent(IDS[at]) for at in (0, 0, 2, 3)]
    assert [each for _, each in await entries(client)] == [None, *(IDS[at] for at in (0, 1, 0, 2, 3))]


async def test_a_timer_that_broke_its_process_keeps_it(serve: MakeClient) -> None:
    """A simple repair, which is asked in another context, runs it again."""
    traced = Traced()
    namespace: Namespace[Any] = Namespace("traced.breaks", retry_policy=RetryPolicy(max_attempts=1))

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.set_timer(after=MOMENT)

    @namespace.timeout
    async def fire(process: Process[Any]) -> None:
        traced.seen.append(("timeout", process.task.traceparent))
        if len(traced.seen) == 1:
            raise ValueError("once")

    client = await serve(namespace)
    with tracing(parent(IDS[0])):
        await client.start("traced.breaks", "p")
    await until(lambda: client.get("traced.breaks", "p"), lambda process: process.status == "error")
    with tracing(parent(IDS[1])):
        await client.simple_repair("traced.breaks", "p")
    await ended(client, 4, namespace="traced.breaks")
    assert traced.of("timeout") == [parent(IDS[0])] * 2
    kinds = dict(await entries(client, "traced.breaks"))
    assert kinds[TaskType.REPAIR] == IDS[1]


async def test_what_a_handler_asks_carries_the_context_of_its_step(serve: MakeClient, dsn: str) -> None:
    """Not that of whoever's request began the task of the loop in which it runs; async and in threads."""
    seen: list[tuple[str, str | None]] = []
    namespace: Namespace[Any] = Namespace("traced.asking")

    @namespace.call
    async def ask(process: Process[Any], other: str) -> None:
        await client.call("traced.asking", other, "note", "ask")

    @namespace.call
    def block(process: Process[Any], other: str) -> None:
        with SyncClient(dsn) as blocking:
            blocking.call("traced.asking", other, "note", "block")

    @namespace.call
    async def note(process: Process[Any], label: str) -> None:
        seen.append((label, process.task.traceparent))

    @namespace.init
    async def begin(process: Process[Any]) -> None: ...

    client = await serve(namespace)
    for each in ("p", "q"):
        await client.start("traced.asking", each)
    for trace_id in (IDS[0], None, IDS[1]):
        with tracing(None if trace_id is None else parent(trace_id)):
            await client.call("traced.asking", "p", "ask", "q")
            await client.call("traced.asking", "p", "block", "q")
    found = [None if trace_id is None else parent(trace_id) for trace_id in (IDS[0], None, IDS[1])]
    assert seen == [(label, each) for each in found for label in ("ask", "block")]


async def test_requests_of_one_moment_keep_their_own(serve: MakeClient) -> None:
    """Fifty at once, some of them in no context, travel in few transactions."""
    seen: dict[str, str | None] = {}
    namespace: Namespace[Any] = Namespace("traced.many")

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        await asyncio.sleep(0)
        seen[process.process_id] = process.task.traceparent
        process.set_timer(after=MOMENT)

    @namespace.timeout
    async def fire(process: Process[Any]) -> None:
        seen[f"timer {process.process_id}"] = process.task.traceparent

    client = await serve(namespace)

    async def one(number: int) -> None:
        with tracing(parent(IDS[number]) if number % 3 else None):
            await client.start("traced.many", str(number))

    await asyncio.gather(*map(one, range(50)))
    await until(lambda: asyncio.sleep(0, len(seen)), lambda count: count == 100)
    expected = {str(number): parent(IDS[number]) if number % 3 else None for number in range(50)}
    assert seen == expected | {f"timer {name}": each for name, each in expected.items()}


async def test_nothing_is_stored_where_nobody_traces(serve: MakeClient, dsn: str) -> None:
    """The columns are NULL."""
    traced = Traced()
    client = await serve(traced.namespace, traced.other)
    await client.start(NS, "p")
    await client.call(NS, "p", "arm", ["a"])
    await client.call(NS, "p", "tell")
    await until(lambda: asyncio.sleep(0, len(traced.of("told"))), bool)
    with psycopg.connect(dsn) as connection:
        (kept,) = connection.execute("SELECT count(trace) FROM progressor.tasks").fetchone() or ()
    assert kept == 0


async def test_a_schedule_carries_none_of_its_worker(progressor_world: Any) -> None:
    """Whatever is around the code that starts the worker which declares it."""
    traced = Traced()
    traced.namespace.schedule("hourly", Cron("0 * * * *"), start=lambda at: "p")
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    world: World
    async with progressor_world([traced.namespace], now=begin) as world:
        await world.advance(timedelta(hours=1))
        assert traced.of("init") == [None]


async def test_a_client_alone_sends_it(dsn: str, mode: Options, engine: Any) -> None:
    """A client that shares nothing with the engine, in a thread of its own."""
    traced = Traced()
    await engine(traced.namespace)

    def start() -> None:
        with SyncClient(dsn, **of_a_client(mode)) as client, tracing(parent(IDS[7])):
            client.start(NS, "p")

    await asyncio.to_thread(start)
    assert traced.of("init") == [parent(IDS[7])]
