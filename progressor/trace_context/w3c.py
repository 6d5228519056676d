"""Trace contexts of W3C: read from headers, named around code, and carried by tasks.

A trace context is kept as one text: a traceparent, `+` and seconds if a caller waits for so long, and
behind a space its tracestate if it has one. Rule: what is malformed counts as absent, as W3C says: a bad
header of a stranger fails no request.
"""

from __future__ import annotations

import re
from math import ceil

_PARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
# Of the flags W3C defines two: sampled, and that the trace id is random.
_FLAGS = 0b11
_PARENT_LENGTH = len(f"00-{32 * '0'}-{16 * '0'}-00")
_KEY = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_MEMBER = re.compile(
    rf"(?P<key>{_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
# Members of a tracestate; characters of all of them, and of one that is dropped first if there are more.
_MOST_MEMBERS, _MOST_STATE, _LARGE_MEMBER = 32, 512, 128
# Seconds; who waits for longer is not shown as waiting any more.
_LONGEST_WAIT = 30


def trace_of(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """Return the trace context of these headers; None if the traceparent is absent or malformed."""
    found = None if traceparent is None else _PARENT.fullmatch(traceparent.strip(" \t"))
    if found is None or (found["version"] == "00" and found["more"] is not None):
        return None
    # What later versions append is not known here: W3C has it passed on as version 00.
    parent = f"00-{found['trace']}-{found['span']}-{int(found['flags'], 16) & _FLAGS:02x}"
    state = None if tracestate is None else _state_of(tracestate)
    return f"{parent} {state}" if state else parent


def _state_of(text: str) -> str | None:
    """Return a tracestate that is well formed and not too long; None if it is malformed."""
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    keys = [found["key"] for member in members if (found := _MEMBER.fullmatch(member))]
    if len(members) > _MOST_MEMBERS or len(keys) < len(members) or len(set(keys)) < len(keys):
        return None
    # The last ones are the oldest.
    for large in (_LARGE_MEMBER, 0):
        for member in reversed(members.copy()):
            if len(",".join(members)) > _MOST_STATE and len(member) > large:
                members.remove(member)
    return ",".join(members)


def traceparent_of(trace: str) -> str:
    """Return the traceparent of a trace context."""
    return trace[:_PARENT_LENGTH]


def tracestate_of(trace: str) -> str | None:
    """Return the tracestate of a trace context; None if it has none."""
    return trace.partition(" ")[2] or None


def trace_id_of(trace: str) -> str:
    """Return the trace id of a trace context, 32 hexadecimal digits."""
    return trace[3:35]


def awaited(trace: str, seconds: float) -> str:
    """Return the trace context of a request whose caller waits for so long, up to 30 seconds."""
    whole = ceil(min(max(seconds, 0), _LONGEST_WAIT))
    return f"{trace[:_PARENT_LENGTH]}+{whole}{trace[_PARENT_LENGTH:]}" if whole else trace


def carried(trace: str) -> str:
    """Return the trace context for what a request leads to: nobody waits for that."""
    state = trace.partition(" ")[2]
    return f"{trace[:_PARENT_LENGTH]} {state}" if state else trace[:_PARENT_LENGTH]


def seconds_awaited(trace: str) -> int:
    """Return for how many seconds the caller of a request waits; 0 if nobody does."""
    return int(trace[_PARENT_LENGTH:].partition(" ")[0] or "0")
