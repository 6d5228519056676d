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

    def elements(self) -> list[bytes]:
        """Each element as its length and its bytes."""
        raise NotImplementedError

    def dump(self) -> bytes:
        count = len(self.values)
        if not count:
            return _HEADER(0, 0, self.element_oid, 0, 0)[:12]
        return _HEADER(1, 1, self.element_oid, count, 1) + b"".join(self.elements())


class TextArray(Array):
    __slots__ = ()
    element_oid, array_oid = 25, 1009

    def elements(self) -> list[bytes]:
        parts = []
        for value in self.values:
            if value is None:
                parts.append(_NULL)
            else:
                encoded = value.encode()
                parts += (_LENGTH(len(encoded)), encoded)
        return parts


class BytesArray(Array):
    __slots__ = ()
    element_oid, array_oid = 17, 1001

    def elements(self) -> list[bytes]:
        parts = []
        for value in self.values:
            if value is None:
                parts.append(_NULL)
            else:
                parts += (_LENGTH(len(value)), value)
        return parts


class BigintArray(Array):
    __slots__ = ()
    element_oid, array_oid = 20, 1016

    def elements(self) -> list[bytes]:
        return [_NULL if value is None else _BIGINT(8, value) for value in self.values]


class BooleanArray(Array):
    __slots__ = ()
    element_oid, array_oid = 16, 1000

    def elements(self) -> list[bytes]:
        return [b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in self.values]


class TimestampArray(Array):
    __slots__ = ()
    element_oid, array_oid = 1184, 1185

    def elements(self) -> list[bytes]:
        return [_NULL if value is None else _BIGINT(8, timestamp(value)) for value in self.values]
