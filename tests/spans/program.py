"""An app with an SDK of OpenTelemetry, in an OS process of its own. It prints each span that has ended.

`python -m tests.spans.program worker DSN` serves until its standard input ends, `api DSN` too. `ask DSN
TEXT` and `http URL TEXT` make requests, each `METHOD NAME`, in a span of their own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

from progressor import Client, Cron, Engine, Namespace, Process, Reject
from progressor.errors import ProgressorError
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.http.server.serve import ApiServer
from tests.open_access import OpenAccess

NS, OTHER = "spanned.order", "spanned.ledger"
SECRET = "hunter2"
MOMENT = timedelta(milliseconds=1)
QUICK: dict[str, Any] = {
    "lease_age": 1500 * MOMENT,
    "heartbeat_interval": 100 * MOMENT,
    "zombie_interval": 100 * MOMENT,
}


def say(text: str) -> None:
    print(text, flush=True)


def place_of(context: SpanContext | None) -> str | None:
    return None if context is None else f"{context.trace_id:032x}-{context.span_id:016x}"


class Printing(SpanExporter):
    """Prints spans as JSON, a line each."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            shown = {
                "name": span.name,
                "kind": span.kind.name,
                "place": place_of(span.context),
                "parent": place_of(span.parent),
                "links": [place_of(link.context) for link in span.links],
                "attributes": dict(span.attributes or {}),
                "status": span.status.status_code.name,
                "description": span.status.description,
                "events": len(span.events),
            }
            say(f"span {json.dumps(shown)}")
        return SpanExportResult.SUCCESS


class Broken(SpanProcessor):
    """Raises whenever it can."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name.startswith("send"):
            raise OSError("the disk is full")

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("the disk is full")


def set_up() -> trace.Tracer:
    provider = TracerProvider()
    if "BROKEN_SPANS" in os.environ:
        provider.add_span_processor(Broken())
    provider.add_span_processor(SimpleSpanProcessor(Printing()))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("app")


def orders(tracer: trace.Tracer, *, holds: bool = False) -> Namespace[Any]:
    """Handlers that do what a name says."""
    namespace: Namespace[Any] = Namespace(NS, on_zombie="retry")

    @namespace.init
    async def begin(process: Process[Any]) -> None: ...

    @namespace.call
    async def pay(process: Process[Any], secret: str) -> str | None:
        with tracer.start_as_current_span("charge"):
            await asyncio.sleep(0)
        return process.task.traceparent

    @namespace.call
    def block(process: Process[Any]) -> None:
        with tracer.start_as_current_span("in a thread"):
            pass

    @namespace.call
    async def arm(process: Process[Any]) -> None:
        process.set_timer(after=MOMENT)

    @namespace.timeout
    async def fire(process: Process[Any]) -> None:
        process.send_start(OTHER, "other")
        process.send(OTHER, "other", "told")

    @namespace.call
    async def refuse(process: Process[Any]) -> None:
        raise Reject("no")

    @namespace.call
    async def hold(process: Process[Any]) -> str | None:
        say("begun")
        if holds:
            await asyncio.Event().wait()
        return process.task.traceparent

    @namespace.call
    async def fail(process: Process[Any], secret: str) -> None:
        raise ValueError(f"a bug with {secret}")

    return namespace


def ledger() -> Namespace[Any]:
    namespace: Namespace[Any] = Namespace(OTHER)

    @namespace.init
    async def begin(process: Process[Any]) -> None: ...

    @namespace.call
    async def told(process: Process[Any]) -> None: ...

    namespace.schedule("yearly", Cron("0 0 1 1 *"), start="of-the-schedule")
    return namespace


async def until_eof() -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.read)


async def worker(dsn: str) -> None:
    async with Engine(dsn, [orders(set_up()), ledger()]):
        await until_eof()


async def victim(dsn: str) -> None:
    """A worker whose handler holds until it is killed."""
    async with Engine(dsn, [orders(set_up(), holds=True)], **QUICK):
        await until_eof()


async def heir(dsn: str) -> None:
    """A worker that takes what the victim leaves."""
    async with Engine(dsn, [orders(set_up())], **QUICK):
        await until_eof()


async def api(dsn: str) -> None:
    set_up()
    async with Client(dsn) as client:
        app = make_app(client, access=OpenAccess())
        async with ApiServer(client, app, host="127.0.0.1", port=0) as serving:
            say(f"url {serving.url}")
            await until_eof()


async def requests(client: Any, text: str) -> None:
    """Make requests, in one span each: what it does, and how it ended."""
    tracer = set_up()
    for each in text.split(", "):
        method, _, name = each.partition(" ")
        args = [SECRET] if name in ("pay", "fail") else []
        with nullcontext() if "BROKEN_SPANS" in os.environ else tracer.start_as_current_span("checkout"):
            try:
                answer = await getattr(client, method)(NS, "p", *([name, *args] if name else args))
                say(f"answer {json.dumps(answer)}")
            except ProgressorError as error:
                say(f"answer {json.dumps(type(error).__name__)}")


async def ask(dsn: str, text: str) -> None:
    async with Client(dsn) as client:
        await requests(client, text)


async def http(url: str, text: str) -> None:
    async with HttpClient(url) as client:
        await requests(client, text)


ROLES = {"worker": worker, "victim": victim, "heir": heir, "api": api, "ask": ask, "http": http}

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))
