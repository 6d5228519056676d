"""Array parameters in PostgreSQL's binary format: how a batch travels.

Rule: a column of a batch always travels as the same type, whatever its values are. (A driver that picks
a list's type by its content makes another prepared statement and another plan of every mix.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

_NULL = b"\xff\xff\xff\xff"
_HEADER = struct.Struct(">iiIii").pack
_LENGTH = struct.Struct(">i").pack
_BIGINT = struct.Struct(">iq").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(interval: timedelta) -> int:
    """A duration in whole microseconds, exactly."""
    return interval // _MICROSECOND


def timestamp(moment: datetime) -> int:
    """A moment as PostgreSQL counts them: microseconds since 2000."""
    return (moment - _EPOCH) // _MICROSECOND


class Array:
    """One column of a batch; None stands for NULL."""

    __slots__ = ("values",)
    element_oid: int
    array_oid: int

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        """Each of these as its length and its bytes."""
        raise NotImplementedError

    def dump(self) -> bytes:
        values = self.values
        count = len(values)
        if not count:
            return _HEADER(0, 0, self.element_oid, 0, 0)[:12]
        header = _HEADER(1, 1, self.element_oid, count, 1)
        # Most columns of a batch have one value in all rows.
        if values.count(values[0]) == count:
            return header + b"".join(self.elements(values[:1])) * count
        return header + b"".join(self.elements(values))


class TextArray(Array):
    __slots__ = ()
    element_oid, array_oid = 25, 1009

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        parts = []
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                encoded = value.encode()
                parts += (_LENGTH(len(encoded)), encoded)
        return parts


class BytesArray(Array):
    __slots__ = ()
    element_oid, array_oid = 17, 1001

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        parts = []
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                parts += (_LENGTH(len(value)), value)
        return parts


class BigintArray(Array):
    __slots__ = ()
    element_oid, array_oid = 20, 1016

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        return [_NULL if value is None else _BIGINT(8, value) for value in values]


class BooleanArray(Array):
    __slots__ = ()
    element_oid, array_oid = 16, 1000

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        return [b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values]


class TimestampArray(Array):
    __slots__ = ()
    element_oid, array_oid = 1184, 1185

    def elements(self, values: Sequence[Any]) -> list[bytes]:
        return [_NULL if value is None else _BIGINT(8, timestamp(value)) for value in values]
