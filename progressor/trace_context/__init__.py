"""Trace contexts of W3C: as headers write them, as tasks carry them, and around code."""

from progressor.trace_context.around import enter as enter, leave as leave, trace_around as trace_around
from progressor.trace_context.w3c import (
    awaited as awaited,
    carried as carried,
    seconds_awaited as seconds_awaited,
    trace_id_of as trace_id_of,
    trace_of as trace_of,
    traceparent_of as traceparent_of,
    tracestate_of as tracestate_of,
)
