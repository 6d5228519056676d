"""Array parameters in PostgreSQL's binary format, in which a batch travels.

Rule: a column of a batch always travels as the same type, whatever its values are. (A driver that picks
a list's type by its content makes another prepared statement and another plan of every mix.) Each is named
by a cast where it stands in a statement, as all parameters are. None stands for NULL. A column of nothing
but NULLs travels as NULL, which costs next to nothing: `unnest` of it, beside others, and its elements are
NULLs again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

_NULL = b"\xff\xff\xff\xff"
_HEADER = struct.Struct(">iiIii").pack
_LENGTH = struct.Struct(">i").pack
_NUMBER = struct.Struct(">iq").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(interval: timedelta) -> int:
    """Return a duration in whole microseconds, exactly."""
    return interval // _MICROSECOND


def timestamp(moment: datetime) -> int:
    """Return a moment as PostgreSQL counts it: microseconds since 2000."""
    return (moment - _EPOCH) // _MICROSECOND


class _Kind:
    """A type of elements; `of(value)` returns an element: its length and its bytes."""

    __slots__ = ("of", "oid", "one")

    def __init__(self, oid: int, of: Callable[[Any], bytes]) -> None:
        self.oid = oid
        self.of = of
        # The bytes before the element of an array of one.
        self.one = _HEADER(1, 1, oid, 1, 1)


def _column(kind: _Kind, values: Sequence[Any]) -> bytes | None:
    count = len(values)
    if not count:
        return _HEADER(0, 0, kind.oid, 0, 0)[:12]
    first, of = values[0], kind.of
    if count == 1:
        # A lone request has some thirty of these.
        return None if first is None else kind.one + of(first)
    # Most columns of a batch have one value in all rows.
    if values.count(first) == count:
        return None if first is None else _HEADER(1, 1, kind.oid, count, 1) + of(first) * count
    return _HEADER(1, 1, kind.oid, count, 1) + b"".join(
        [_NULL if value is None else of(value) for value in values]
    )


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def _json(value: str) -> bytes:
    # PostgreSQL's jsonb begins with the number of its format.
    encoded = value.encode()
    return _LENGTH(len(encoded) + 1) + b"\1" + encoded


_TEXT = _Kind(25, _text)
_JSON = _Kind(3802, _json)
_BYTES = _Kind(17, lambda value: _LENGTH(len(value)) + value)
_BIGINT = _Kind(20, partial(_NUMBER, 8))
_BOOLEAN = _Kind(16, lambda value: b"\0\0\0\1\1" if value else b"\0\0\0\1\0")
_TIMESTAMP = _Kind(1184, lambda value: _NUMBER(8, timestamp(value)))


def columns_of(
    column: Callable[[Sequence[Any]], bytes | None], items: Sequence[object], *names: str, prefix: str = ""
) -> dict[str, bytes | None]:
    """Return the fields of these names as columns of one type, in the same names behind a prefix."""
    return {f"{prefix}{name}": column([getattr(each, name) for each in items]) for name in names}


def texts(values: Sequence[str | None]) -> bytes | None:
    """Return a column of text[]."""
    return _column(_TEXT, values)


def jsons(values: Sequence[str | None]) -> bytes | None:
    """Return a column of jsonb[], from JSON texts."""
    return _column(_JSON, values)


def blobs(values: Sequence[bytes | None]) -> bytes | None:
    """Return a column of bytea[]."""
    return _column(_BYTES, values)


def bigints(values: Sequence[int | None]) -> bytes | None:
    """Return a column of bigint[]."""
    return _column(_BIGINT, values)


def booleans(values: Sequence[bool | None]) -> bytes | None:
    """Return a column of boolean[]."""
    return _column(_BOOLEAN, values)


def timestamps(values: Sequence[datetime | None]) -> bytes | None:
    """Return a column of timestamptz[]."""
    return _column(_TIMESTAMP, values)
