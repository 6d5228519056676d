"""The trace context around code: that which `tracing` names, or that of the step whose code it is."""

from __future__ import annotations

from contextvars import ContextVar, Token

_around: ContextVar[str | None] = ContextVar("progressor_trace", default=None)


def trace_around() -> str | None:
    """Return the trace context that is named around this code; in a step that of the step."""
    return _around.get()


def enter(trace: str | None) -> Token[str | None]:
    """Have code from here on belong to this trace context; None: to none."""
    return _around.set(trace)


def leave(token: Token[str | None]) -> None:
    """Take back what `enter` did."""
    _around.reset(token)
