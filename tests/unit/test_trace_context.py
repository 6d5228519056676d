"""Trace contexts: the grammar of W3C, and what a task keeps of it."""

from __future__ import annotations

import pytest

from progressor.trace_context import (
    awaited,
    carried,
    seconds_awaited,
    trace_id_of,
    trace_of,
    traceparent_of,
    tracestate_of,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f" \t{PARENT} ", PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        # Flags that are not known are cleared, and what a later version adds is dropped.
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),
        (f"cc-{TRACE}-{SPAN}-01", PARENT),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", PARENT),
    ],
)
def test_what_is_well_formed_is_kept(given: str, kept: str) -> None:
    """As version 00."""
    assert trace_of(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "nonsense",
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"{PARENT}\n",
        f"{PARENT},{PARENT}",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
    ],
)
def test_what_is_malformed_counts_as_absent(given: str | None) -> None:
    """With its tracestate."""
    assert trace_of(given, "a=1") is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("congo=t61rcWkgMzE", "congo=t61rcWkgMzE"),
        (" a=1 ,\tb@v=2,, 0t@v=x", "a=1,b@v=2,0t@v=x"),
        ("a=x y:z+1", "a=x y:z+1"),
        (None, None),
        ("", None),
        ("A=1", None),
        ("a=1,a=2", None),
        ("a=", None),
        ("a=b=c", None),
        ("a=ä", None),
        (f"a={'x' * 257}", None),
        (",".join(f"k{n}=1" for n in range(33)), None),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
        # Of more than 512 characters the large members go first, then the last ones.
        (f"a=1,b={'x' * 200},c=2,d={'y' * 250},e={'z' * 100}", f"a=1,b={'x' * 200},c=2,e={'z' * 100}"),
        (",".join(f"{k}={'x' * 120}" for k in "abcdef"), ",".join(f"{k}={'x' * 120}" for k in "abcd")),
    ],
)
def test_a_tracestate_is_kept_if_it_is_well_formed(given: str | None, kept: str | None) -> None:
    """The traceparent is kept in any case."""
    trace = trace_of(PARENT, given)
    assert trace is not None
    assert (traceparent_of(trace), tracestate_of(trace)) == (PARENT, kept)
    assert trace_id_of(trace) == TRACE


@pytest.mark.parametrize("state", [None, "a=x+5 y"])
@pytest.mark.parametrize(
    ("seconds", "kept"), [(0.0, 0), (-1.0, 0), (0.2, 1), (7.0, 7), (30.5, 30), (1e9, 30)]
)
def test_a_task_knows_how_long_its_caller_waits(state: str | None, seconds: float, kept: int) -> None:
    """Up to thirty seconds; what the task leads to carries nothing of it."""
    trace = trace_of(PARENT, state)
    assert trace is not None
    waits = awaited(trace, seconds)
    assert seconds_awaited(waits) == kept
    assert (traceparent_of(waits), tracestate_of(waits), trace_id_of(waits)) == (PARENT, state, TRACE)
    assert carried(waits) == trace
