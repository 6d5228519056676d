"""Inputs of every kind: texts with everything in them, values that are JSON or nearly so, wrong types."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st

_NASTY = ("", "\x00", "a\x00b", "\ud800", "x\udfff", "x" * 257, "ж" * 256, "\u202e", "'; --", "%s", "{}")
texts = st.text(max_size=20) | st.sampled_from(_NASTY) | st.text(st.characters(), max_size=300)
ids = texts | st.sampled_from(_NASTY)


def nested(depth: int, *, inner: Any = 1) -> Any:
    """A list in a list in a list."""
    for _ in range(depth):
        inner = [inner]
    return inner


class NoJson:
    """What JSON has no word for."""

    def __repr__(self) -> str:
        return "<no JSON>"


wrong_types = st.sampled_from(
    [None, 7, True, 1.5, b"bytes", ["list"], {"a": 1}, ("t",), NoJson(), object, timedelta(1), math.nan]
)
# What comes back as it was sent.
exact = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), inner, max_size=5)
    ),
    max_leaves=20,
)
_odd = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, NoJson(), 10**4299, 10**4300, -(10**5000), "\ud800"]),
    st.sampled_from([{"k": math.nan}, ["\udc00"], {"\ud800": 1}, {"a": b"\xff"}, {1: {2: 3}}]),
    st.integers(190, 300).map(nested),
    st.integers(190, 300).map(lambda depth: nested(depth, inner={"deep": "text"})),
    st.sampled_from([nested(5000), "\x00", {"\x00": "\x00"}, b"\xff\xfe", b"[", b"[[", b"{}", b""]),
    st.binary(max_size=40),
    st.sampled_from([{1, 2}, (1, 2), datetime(2030, 1, 1, tzinfo=UTC), timedelta(days=-1), 1 + 2j]),
)
values = exact | _odd | st.lists(exact | _odd, max_size=3)
metadata = (
    st.none()
    | st.dictionaries(texts, exact | _odd, max_size=4)
    | wrong_types
    | st.sampled_from([{"big": "x" * 65_536}, {str(n): n for n in range(9000)}, {"deep": nested(199)}])
)
timeouts = st.sampled_from(
    [
        None,
        20,
        20.5,
        timedelta(seconds=20),
        0,
        -1,
        math.nan,
        math.inf,
        "1",
        True,
        10**400,
        timedelta.max,
        1e308,
    ]
)
keys = st.none() | ids | wrong_types
counts = st.none() | st.integers(-(10**30), 10**30) | wrong_types
moments = st.none() | wrong_types | st.datetimes() | st.datetimes(timezones=st.just(UTC))


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


CURSORS = [
    _cursor(text)
    for text in (
        '["a", "2030-01-01T00:00:00+00:00", "p"]',
        '["a", "2030-01-01T00:00:00", "p"]',
        '["a\\u0000", "2030-01-01T00:00:00+00:00", "p"]',
        '["a", "2030-01-01T00:00:00+00:00", "\\ud800"]',
        '["a", "0001-01-01T00:00:00+14:00", "p"]',
        '["a", 7, null]',
        "[]",
        "7",
        "[" * 5000,
        '{"a": 1, "b": 2, "c": 3}',
    )
]
