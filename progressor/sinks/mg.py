"""The wire form of the original: `SinkEvent` and `LifecycleEvent` of its Thrift interface, in binary.

Consumers of the original read it unchanged. Rule: the numbers of fields and types below are that interface;
they never change. The encoder is here because a library would need the interface's file, which is not ours
to ship, and objects of its own for each value, for what is one `match`; tests hold it to thriftpy2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from progressor.client.results import FeedEvent
from progressor.errors import NonRetryable
from progressor.sinks.cloudevents import shown

CONTENT_TYPE: Final = "application/vnd.apache.thrift.binary"

# Types of fields, as the binary protocol of Thrift writes them.
_BOOL, _DOUBLE, _I32, _I64, _STRING, _STRUCT, _MAP, _LIST = 2, 4, 8, 10, 11, 12, 13, 15
_STOP = b"\x00"
_EMPTY = _STOP
"""A struct without fields."""


def _head(kind: int, number: int) -> bytes:
    return bytes((kind, 0, number))


# The fields of `msgpack.Value`; of maps and lists with the types of what is in them.
_NL, _B, _I, _FLT = _head(_STRUCT, 1), _head(_BOOL, 2), _head(_I64, 3), _head(_DOUBLE, 4)
_STR, _BIN = _head(_STRING, 5), _head(_STRING, 6)
_OBJ, _ARR = _head(_MAP, 7) + bytes((_STRUCT, _STRUCT)), _head(_LIST, 8) + bytes((_STRUCT,))
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LARGEST_VERSION = 2**31 - 1


def sink_event(event: FeedEvent) -> bytes:
    """Return an event as a `SinkEvent`; NonRetryable if the form cannot hold its payload.

    An event that was deleted before it was read has `nl` as its data: its number is told, without a gap.
    """
    version = event.metadata.get("format_version")
    fields = [
        *_begun(event),
        _field(_I64, 3, _long(event.event_id or 0)),
        _field(_STRING, 4, _text(_created_at(event))),
    ]
    if type(version) is int and 0 <= version <= _LARGEST_VERSION:
        fields.append(_field(_I32, 5, struct.pack(">i", version)))
    fields.append(_field(_STRUCT, 6, _payload(event)))
    return _struct(_field(_STRUCT, 1, _struct(*fields)))


def lifecycle_event(event: FeedEvent) -> bytes | None:
    """Return what happened to a process as a `LifecycleEvent`; None of a step, which has no such form."""
    match event.kind:
        case "created":
            change = _field(_STRUCT, 1, _EMPTY)
        case "broken":
            change = _status_changed(2)
        case "repaired":
            change = _status_changed(1)
        case "removed":
            change = _field(_STRUCT, 3, _EMPTY)
        case _:
            return None
    machine = _struct(_field(_STRUCT, 1, _struct(change)))
    created_at = _field(_STRING, 3, _text(_created_at(event)))
    return _struct(*_begun(event), created_at, _field(_STRUCT, 4, machine))


def _status_changed(status: int) -> bytes:
    """Return the change to a status: 1 is working, 2 is failed, whose reason is optional."""
    return _field(_STRUCT, 2, _struct(_field(_STRUCT, 1, _struct(_field(_STRUCT, status, _EMPTY)))))


def _begun(event: FeedEvent) -> list[bytes]:
    return [_field(_STRING, 1, _text(event.namespace)), _field(_STRING, 2, _text(event.process_id))]


def _created_at(event: FeedEvent) -> str:
    """Return the time in whole seconds, as the interface demands: 2016-03-22T06:12:27Z."""
    return event.timestamp.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _payload(event: FeedEvent) -> bytes:
    try:
        return value_of(event.payload)
    except (ValueError, TypeError, RecursionError) as error:
        # The text of a UnicodeError has a piece of the payload.
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        why = "not valid Unicode" if isinstance(error, UnicodeError) else why
        raise NonRetryable(f"{shown(event)} has no form in mg: {why}") from None


def value_of(value: Any) -> bytes:
    """Return a value as `msgpack.Value`; ValueError or TypeError if that has no form for it.

    Numbers that are no float, dates and UUIDs are the texts that they are in JSON.
    """
    match value:
        case str():
            return _STR + _text(value) + _STOP
        case None:
            return _NL + _EMPTY + _STOP
        case bool():
            return _B + (b"\x01" if value else b"\x00") + _STOP
        case int():
            if not _SMALLEST <= value <= _LARGEST:
                raise ValueError("an integer does not fit into 64 bits")
            return _I + _long(value) + _STOP
        case float():
            if not math.isfinite(value):
                raise ValueError("a float is not finite")
            return _FLT + struct.pack(">d", value) + _STOP
        case dict():
            items = [(value_of(key), value_of(each)) for key, each in value.items()]
            # As maps of the original are written, up to 32 keys: in the order of their bytes.
            body = b"".join(key + each for key, each in sorted(items, key=_content))
            return _OBJ + len(items).to_bytes(4, "big") + body + _STOP
        case list() | tuple():
            return _ARR + len(value).to_bytes(4, "big") + b"".join(map(value_of, value)) + _STOP
        case _:
            return _rarer(value)


def _rarer(value: Any) -> bytes:
    match value:
        case bytes() | bytearray() | memoryview():
            return _BIN + _bytes(bytes(value)) + _STOP
        case Mapping():
            return value_of(dict(value))
        case datetime() | date() | time():
            return value_of(value.isoformat())
        case Decimal() | UUID():
            return value_of(str(value))
        case _:
            raise TypeError(f"there is no form for {type(value).__name__}")


def _content(item: tuple[bytes, bytes]) -> bytes:
    """Return a key behind its type, number and length: 1, 2 and 4 bytes."""
    return item[0][7:]


def _struct(*fields: bytes) -> bytes:
    return b"".join(fields) + _STOP


def _field(kind: int, number: int, value: bytes) -> bytes:
    return _head(kind, number) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)
