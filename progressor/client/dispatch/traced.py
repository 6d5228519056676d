"""A request with the trace context that it carries, and its span where an app has OpenTelemetry."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from progressor.spans.in_use import AWAITED, AwaitedCall, awaited_call, spans
from progressor.storage import Request, TaskRef
from progressor.trace_context import awaited, trace_around

if TYPE_CHECKING:
    from progressor.spans.otel import RequestSpan


class TracedRequest:
    """A request on its way; `call` is that of code which waits for its answer, and ends its span."""

    __slots__ = ("_call", "_span", "request")

    def __init__(self, request: Request, span: RequestSpan | None, call: AwaitedCall | None) -> None:
        self.request = request
        """The request, with its trace context."""
        self._span = span
        self._call = call

    def __enter__(self) -> Self:
        return self

    def accepted(self, task: TaskRef) -> None:
        """Note the task that the request became."""
        if self._span is not None:
            self._span.accepted(task.task_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        if self._call is not None:
            self._call.span = self._span
        else:
            self._span.end(error)


def traced(request: Request, seconds: float) -> TracedRequest | None:
    """Return a request whose caller waits for its answer for so long; None where nobody traces."""
    return _traced(request, seconds, None)


def traced_until_accepted(request: Request) -> TracedRequest | None:
    """Return a request for whose answer nobody waits, unless its caller has said so; None as above."""
    call = awaited_call()
    return _traced(request, 0.0 if call is None else call.seconds, call)


def _traced(request: Request, seconds: float, call: AwaitedCall | None) -> TracedRequest | None:
    used, span = spans(), None
    if used is None:
        trace = trace_around()
        if trace is None:
            return None
    else:
        span = used.request(
            request.task_type, request.namespace, request.process_id, request.name, awaited=seconds > 0
        )
        trace = span.trace or trace_around()
    if trace is not None:
        if request.task_type in AWAITED:
            trace = awaited(trace, seconds)
        request = request._replace(trace=trace)
    return TracedRequest(request, span, call)
