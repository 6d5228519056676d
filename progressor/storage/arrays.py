"""Array parameters in PostgreSQL's binary format: how a batch travels.

Rule: a column of a batch always travels as the same type, whatever its values are. (A driver that picks
a list's type by its content makes another prepared statement and another plan of every mix.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
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
    # What stands before the elements of an array of one, and such an array of NULL.
    _of_one: bytes
    _of_null: bytes

    def __init_subclass__(cls) -> None:
        cls._of_one = _HEADER(1, 1, cls.element_oid, 1, 1)
        cls._of_null = cls._of_one + _NULL

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    @staticmethod
    def element(value: Any) -> bytes:
        """A value as its length and its bytes."""
        raise NotImplementedError

    def dump(self) -> bytes:
        values = self.values
        count = len(values)
        if count == 1:
            # A lone request has some thirty of these.
            value = values[0]
            return self._of_null if value is None else self._of_one + self.element(value)
        if not count:
            return _HEADER(0, 0, self.element_oid, 0, 0)[:12]
        header = _HEADER(1, 1, self.element_oid, count, 1)
        first, element = values[0], self.element
        # Most columns of a batch have one value in all rows.
        if values.count(first) == count:
            return header + (_NULL if first is None else element(first)) * count
        return header + b"".join([_NULL if value is None else element(value) for value in values])


class TextArray(Array):
    __slots__ = ()
    element_oid, array_oid = 25, 1009

    @staticmethod
    def element(value: str) -> bytes:
        encoded = value.encode()
        return _LENGTH(len(encoded)) + encoded


class BytesArray(Array):
    __slots__ = ()
    element_oid, array_oid = 17, 1001

    @staticmethod
    def element(value: bytes) -> bytes:
        return _LENGTH(len(value)) + value


class BigintArray(Array):
    __slots__ = ()
    element_oid, array_oid = 20, 1016
    element = staticmethod(partial(_BIGINT, 8))


class BooleanArray(Array):
    __slots__ = ()
    element_oid, array_oid = 16, 1000

    @staticmethod
    def element(value: bool) -> bytes:
        return b"\0\0\0\1\1" if value else b"\0\0\0\1\0"


class TimestampArray(Array):
    __slots__ = ()
    element_oid, array_oid = 1184, 1185

    @staticmethod
    def element(value: datetime) -> bytes:
        return _BIGINT(8, timestamp(value))
