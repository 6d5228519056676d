"""The spans that are in use, and the trace context of a request.

Rule: nothing here imports OpenTelemetry. An app that has set up an SDK has imported it; where nobody has,
a request and a step cost one look-up each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Final

from progressor.model import TaskType
from progressor.trace_context import enter, leave, trace_around, trace_id_of, trace_of

if TYPE_CHECKING:
    from progressor.spans.otel import RequestSpan, Spans

AWAITED: Final = (TaskType.CALL, TaskType.REPAIR)
"""The types of requests whose callers may wait for their steps."""

_OTEL, _PROVIDER, _NOT_KNOWN = "opentelemetry.trace", "_TRACER_PROVIDER", object()
_MODULES = sys.modules
_spans: Spans | None = None


def spans() -> Spans | None:
    """Return the spans of OpenTelemetry; None if no SDK has been set up in this OS process."""
    global _spans  # noqa: PLW0603 - set once: an SDK is never taken back
    if _spans is None and (api := _MODULES.get(_OTEL)) is not None:
        # To ask for the provider costs some microseconds. A release that keeps it elsewhere is asked.
        if getattr(api, _PROVIDER, _NOT_KNOWN) is None:
            return None
        from progressor.spans.otel import Spans  # noqa: PLC0415 - where an app has imported it

        _spans = Spans.of_sdk()
    return _spans


def current_trace() -> str | None:
    """Return the trace context of a request that this code makes: of its span, or of what is around it."""
    used = spans()
    return (None if used is None else used.current()) or trace_around()


@contextmanager
def tracing(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Have the requests of this block carry a W3C trace context: to tasks, timers, messages and logs.

    None, or a malformed traceparent, leaves it as it is around the block; a malformed tracestate is left
    out. It holds for the code and the tasks of the block. Spans of OpenTelemetry that begin in it belong to
    it too.
    """
    trace = trace_of(traceparent, tracestate)
    if trace is None:
        yield
        return
    used, token = spans(), enter(trace)
    try:
        if used is None:
            yield
        else:
            with used.inside(trace):
                yield
    finally:
        leave(token)


def tracing_request(traceparent: str | None, tracestate: str | None) -> AbstractContextManager[str | None]:
    """Have what a block does for an HTTP request belong to the trace context of its headers.

    The block is given the id of the trace, None without one. If instrumentation of the server has begun a
    span in that trace, it belongs to that span.
    """
    trace, current = trace_of(traceparent, tracestate), current_trace()
    if trace is None or (current is not None and trace_id_of(current) == trace_id_of(trace)):
        return nullcontext(None if current is None else trace_id_of(current))
    return _tracing_as(traceparent, tracestate, trace_id_of(trace))


@contextmanager
def _tracing_as(traceparent: str | None, tracestate: str | None, trace_id: str) -> Iterator[str]:
    with tracing(traceparent, tracestate):
        yield trace_id


class AwaitedCall:
    """A call whose answer the code of a block waits for, up to so many seconds: submitted in that block.

    `span` is that of the call, once it is submitted and if it has one: it ends when the block does.
    """

    __slots__ = ("_token", "seconds", "span")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.span: RequestSpan | None = None

    def __enter__(self) -> None:
        self._token = _awaited.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _awaited.reset(self._token)
        if self.span is not None:
            self.span.end(error)


_awaited: ContextVar[AwaitedCall | None] = ContextVar("progressor_awaited_call", default=None)


def awaited_call() -> AwaitedCall | None:
    """Return the call whose answer the code around waits for; None if nobody has said so."""
    return _awaited.get()
