"""Spans of OpenTelemetry: of a request, as long as its caller is busy with it, and of a run of a handler.

Rule: a span never lasts over a wait in a mailbox or for a time, and a step is a child of a request only
while its caller waits for it; any other begins a trace of its own, with a link to what led to it. No
payload and no text of an error is in a span. What an SDK raises is logged as an outage: it fails no request
and no step.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from datetime import timedelta
from typing import Any, Final, ParamSpec

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)

from progressor.errors import Rejected
from progressor.loggers import Logger
from progressor.model import Decision, Failure, Outcome, Rejection, Task, TaskType
from progressor.outages import Outage, OutageLines, cause_of
from progressor.spans.in_use import AWAITED
from progressor.trace_context import seconds_awaited, trace_around, trace_id_of, tracestate_of

P = ParamSpec("P")

_OUTAGE: Final = Outage(
    Logger("progressor.spans"),
    OutageLines("spans cannot be made, going on", "spans still cannot be made", "spans are made again"),
)


def _harmless(method: Callable[P, None]) -> Callable[P, None]:
    """Return the method without the errors of an SDK."""

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - of a sampler or a processor of the user, and logged
            _OUTAGE.failed(cause_of(error))

    return run


class Spans:
    """The spans of the SDK that the app has set up."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @classmethod
    def of_sdk(cls) -> Spans | None:
        """Return the spans of the SDK; None if the app has set up none so far."""
        provider = get_tracer_provider()
        if isinstance(provider, (ProxyTracerProvider, NoOpTracerProvider)):
            return None
        return cls(provider.get_tracer("progressor"))

    def current(self) -> str | None:
        """Return the trace context of the span around this code; None if there is none."""
        return _text_of(get_current_span())

    @contextmanager
    def inside(self, trace: str) -> Iterator[None]:
        """Have spans that begin in this block belong to a span of another OS process."""
        token = attach(_remote(trace))
        try:
            yield
        finally:
            detach(token)

    def request(
        self, task_type: TaskType, namespace: str, process_id: str, name: str | None, *, awaited: bool
    ) -> RequestSpan:
        """Begin the span of a request that a client sends; `awaited`: its caller waits for the answer."""
        is_call = awaited and task_type in AWAITED
        around, current = trace_around(), get_current_span()
        context = _remote(around) if around and not current.get_span_context().is_valid else None
        operation = "call" if is_call else "send"
        facts = _facts(task_type, namespace, process_id, name)
        span = self._begun(
            f"call {namespace}/{name or task_type.value}" if is_call else f"send {namespace}",
            context,
            SpanKind.CLIENT if is_call else SpanKind.PRODUCER,
            {**facts, "messaging.operation.name": operation, "messaging.operation.type": "send"},
        )
        return RequestSpan(span, lasts=is_call)

    def step(self, task: Task, name: str) -> StepSpan:
        """Begin the span of a run of a handler."""
        facts = _facts(task.task_type, task.namespace, task.process_id, task.name)
        parent = _remote(task.trace) if task.trace is not None else None
        is_child = parent is not None and _is_awaited(task)
        span = self._begun(
            f"process {task.namespace}/{name}",
            # Not the context around: the task of the loop may have been begun for another request.
            parent if is_child else Context(),
            SpanKind.CONSUMER,
            {
                **facts,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.message.id": str(task.task_id),
                "progressor.attempt": task.attempts_count + 1,
            },
            () if parent is None or is_child else (Link(get_current_span(parent).get_span_context()),),
        )
        return StepSpan(span)

    def _begun(self, *stated: Any) -> Span:
        try:
            span = self._tracer.start_span(*stated)
        except Exception as error:  # noqa: BLE001 - of a sampler or a processor of the user, and logged
            _OUTAGE.failed(cause_of(error))
            return INVALID_SPAN
        _OUTAGE.worked()
        return span


class RequestSpan:
    """The span of a request: of a call until it is answered, of any other until it is accepted."""

    def __init__(self, span: Span, *, lasts: bool) -> None:
        self._span = span
        self._lasts = lasts

    @property
    def trace(self) -> str | None:
        """The trace context that the request carries."""
        return _text_of(self._span)

    @_harmless
    def accepted(self, task_id: int) -> None:
        """Note the task that the request became; end the span of a request whose answer nobody awaits."""
        self._span.set_attribute("messaging.message.id", str(task_id))
        if not self._lasts:
            self._span.end()

    @_harmless
    def end(self, error: BaseException | None = None) -> None:
        """End the span of a request that is answered or has failed."""
        if self._span.is_recording():
            _end(self._span, error)


class StepSpan:
    """The span of a run of a handler."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context]

    @property
    def trace(self) -> str | None:
        """The trace context of what the handler does."""
        return _text_of(self._span)

    def enter(self) -> None:
        """Have spans that begin from here on be children of it."""
        self._token = attach(set_span_in_context(self._span, Context()))

    @_harmless
    def leave(self, error: BaseException | None) -> None:
        """Take back what `enter` did; end the span if the worker stops.

        Any other error means that the handler did not begin: then it has no span.
        """
        detach(self._token)
        if isinstance(error, CancelledError):
            _end(self._span, error)

    @_harmless
    def end(self, outcome: Outcome, decision: Decision) -> None:
        """End the span of a handler that was run."""
        span = self._span
        if span.is_recording():
            span.set_attribute("progressor.disposition", decision.disposition.value)
            match outcome:
                case Failure():
                    _failed(span, next(iter(outcome.error_types), "_OTHER"))
                    span.set_attribute("progressor.outcome", "failed")
                case Rejection():
                    span.set_attribute("progressor.outcome", "rejected")
                case _:
                    span.set_attribute("progressor.outcome", "succeeded")
        span.end()


def _facts(task_type: TaskType, namespace: str, process_id: str, name: str | None) -> dict[str, str | int]:
    """Return the attributes of a request and of its step: those of messaging systems, and our own."""
    facts: dict[str, str | int] = {
        "messaging.system": "progressor",
        "messaging.destination.name": namespace,
        "messaging.message.conversation_id": f"{namespace}/{process_id}",
        "progressor.process_id": process_id,
        "progressor.task_type": task_type.value,
    }
    return facts if name is None else {**facts, "progressor.call": name}


def _end(span: Span, error: BaseException | None) -> None:
    if isinstance(error, Rejected):
        span.set_attribute("progressor.outcome", "rejected")
    elif error is not None:
        _failed(span, type(error).__name__)
    span.end()


def _failed(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _is_awaited(task: Task) -> bool:
    """Return whether the caller of a task still waits for it, as far as its worker can know."""
    if task.task_type not in AWAITED or task.attempts_count or task.trace is None:
        return False
    if task.running_time is None or task.scheduled_time is None:
        return False
    return task.running_time - task.scheduled_time < timedelta(seconds=seconds_awaited(task.trace))


def _remote(trace: str) -> Context:
    """Return the context of a span of another OS process, or of an earlier step."""
    state = tracestate_of(trace)
    found = SpanContext(
        trace_id=int(trace_id_of(trace), 16),
        span_id=int(trace[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(trace[53:55], 16)),
        trace_state=None if state is None else TraceState.from_header([state]),
    )
    return set_span_in_context(NonRecordingSpan(found), Context())


def _text_of(span: Span) -> str | None:
    """Return the trace context of a span; None if it has none."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
    state = context.trace_state.to_header() if context.trace_state else ""
    return f"{parent} {state}" if state else parent
