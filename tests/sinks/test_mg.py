"""Bytes of the original's wire form: as written by hand from the protocol, and as thriftpy2 has them.

The hand-written ones follow the binary protocol of Thrift: a field is its type (1 byte), its number (2) and
its value; a struct ends with 00; lengths and numbers are big-endian.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import thriftpy2
from hypothesis import given, strategies as st
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from progressor import FeedKind
from progressor.errors import NonRetryable
from progressor.sinks.mg import lifecycle_event, sink_event, value_of
from tests.sinks.entries import event, told

_IDL = thriftpy2.load(str(Path(__file__).with_name("mg.thrift")), module_name="mg_thrift")
_SPACE = "62696c6c696e672e737562736372697074696f6e"  # billing.subscription
_TIME = "323032362d30332d32325430363a31323a32375a"  # 2026-03-22T06:12:27Z

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=12,
)


def read(kind: Any, data: bytes) -> Any:
    """What thriftpy2 reads; nothing may be left."""
    buffer = TMemoryBuffer(data)
    found = kind()
    TBinaryProtocol(buffer).read_struct(found)
    assert buffer.read(1) == b""
    return found


def written(value: Any) -> bytes:
    """What thriftpy2 writes."""
    buffer = TMemoryBuffer()
    TBinaryProtocol(buffer).write_struct(value)
    data: bytes = buffer.getvalue()
    return data


def plain(value: Any) -> Any:
    """A `Value` as the value of Python that it stands for."""
    ((name, held),) = [(name, held) for name, held in vars(value).items() if held is not None]
    match name:
        case "nl":
            return None
        case "obj":
            return {plain(key): plain(each) for key, each in held.items()}
        case "arr":
            return [plain(each) for each in held]
        case _:
            return held


@pytest.mark.parametrize(
    ("value", "golden"),
    [
        (None, "0c0001 00 00"),
        (True, "020002 01 00"),
        (False, "020002 00 00"),
        (0, "0a0003 0000000000000000 00"),
        (-2, "0a0003 fffffffffffffffe 00"),
        (2**63 - 1, "0a0003 7fffffffffffffff 00"),
        (-(2**63), "0a0003 8000000000000000 00"),
        (1.5, "040004 3ff8000000000000 00"),
        (-0.0, "040004 8000000000000000 00"),
        ("", "0b0005 00000000 00"),
        ("дa", "0b0005 00000003 d0b461 00"),
        (b"\x00\xff", "0b0006 00000002 00ff 00"),
        ({}, "0d0007 0c0c 00000000 00"),
        ({"a": None}, "0d0007 0c0c 00000001 0b0005 00000001 61 00 0c0001 00 00 00"),
        ([], "0f0008 0c 00000000 00"),
        ([1, "b"], "0f0008 0c 00000002 0a0003 0000000000000001 00 0b0005 00000001 62 00 00"),
        (Decimal("10.50"), "0b0005 00000005 31302e3530 00"),
        (date(2026, 3, 2), "0b0005 0000000a 323032362d30332d3032 00"),
        (UUID(int=10), "0b0005 00000024 " + "30" * 8 + "2d" + "303030302d" * 3 + "30" * 11 + "61 00"),
    ],
)
def test_a_value_has_the_bytes_of_the_protocol(value: Any, golden: str) -> None:
    """Byte for byte, as written by hand."""
    assert value_of(value).hex() == golden.replace(" ", "")


@given(_VALUES)
def test_thriftpy2_reads_the_value_and_writes_the_same_bytes(value: Any) -> None:
    """For values of any shape."""
    data = value_of(value)
    found = read(_IDL.Value, data)
    assert plain(found) == value
    assert written(found) == data


def test_the_keys_of_a_map_are_in_the_order_of_their_bytes() -> None:
    """Two payloads that are equal have equal bytes, whatever the order of their keys."""
    one, other = value_of({"b": 1, "aa": 2, "a": 3}), value_of({"a": 3, "b": 1, "aa": 2})
    assert one == other
    assert list(plain(read(_IDL.Value, one))) == ["a", "aa", "b"]


def test_an_event_has_the_bytes_of_the_interface() -> None:
    """Without a version, as written by hand."""
    golden = (
        f"0c0001 0b0001 00000014 {_SPACE} 0b0002 00000001 61 0a0003 0000000000000007"
        f" 0b0004 00000014 {_TIME} 0c0006 0a0003 0000000000000005 00 00 00"
    )
    assert sink_event(event("a", 7, 5)).hex() == golden.replace(" ", "")


@pytest.mark.parametrize(
    ("version", "there"),
    [(3, 3), (0, 0), (None, None), ("3", None), (True, None), (2**31, None), (-1, None)],
)
def test_the_version_is_that_of_the_metadata(version: object, there: int | None) -> None:
    """An i32, left out if the metadata has none."""
    found = read(_IDL.SinkEvent, sink_event(event("a", metadata={"format_version": version}))).event
    assert found.format_version == there


def test_thriftpy2_reads_an_event() -> None:
    """With all its fields; the time is in UTC and in whole seconds."""
    east = datetime(2026, 3, 22, 9, 12, 27, 999999, tzinfo=timezone(timedelta(hours=3)))
    entry = event("субъект", 9, {"a": [1, {"b": b"x"}]}, timestamp=east, metadata={"format_version": 2})
    data = sink_event(entry)
    found = read(_IDL.SinkEvent, data)
    assert written(found) == data
    told_of = found.event
    assert (told_of.source_ns, told_of.source_id, told_of.event_id) == (entry.namespace, "субъект", 9)
    assert told_of.created_at == "2026-03-22T06:12:27Z"
    assert plain(told_of.data) == entry.payload


def test_a_year_before_1000_has_four_digits() -> None:
    """As RFC 3339 demands."""
    early = event("a", timestamp=datetime(33, 4, 5, tzinfo=UTC))
    assert read(_IDL.SinkEvent, sink_event(early)).event.created_at == "0033-04-05T00:00:00Z"


def test_a_deleted_event_keeps_its_number() -> None:
    """Its data is `nl`."""
    deleted = event("a", 4, name=None, is_deleted=True)._replace(payload=None)
    found = read(_IDL.SinkEvent, sink_event(deleted)).event
    assert (found.event_id, plain(found.data)) == (4, None)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("created", "0c0001 00"),
        ("broken", "0c0002 0c0001 0c0002 00 00 00"),
        ("repaired", "0c0002 0c0001 0c0001 00 00 00"),
        ("removed", "0c0003 00"),
    ],
)
def test_what_happens_to_a_process_has_the_bytes_of_the_interface(kind: FeedKind, change: str) -> None:
    """As written by hand, and read by thriftpy2."""
    golden = (
        f"0b0001 00000014 {_SPACE} 0b0002 00000001 61 0b0003 00000014 {_TIME}"
        f" 0c0004 0c0001 {change} 00 00 00"
    )
    data = lifecycle_event(told("a", kind))
    assert data is not None
    assert data.hex() == golden.replace(" ", "")
    found = read(_IDL.LifecycleEvent, data)
    assert written(found) == data
    assert (found.machine_id, found.created_at) == ("a", "2026-03-22T06:12:27Z")


def test_a_step_has_no_form() -> None:
    """The original tells nothing of it."""
    assert lifecycle_event(told("a", "step")) is None


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (2**63, "an integer does not fit into 64 bits"),
        ([{"a": -(2**63) - 1}], "an integer does not fit into 64 bits"),
        (float("nan"), "a float is not finite"),
        ({"x": float("-inf")}, "a float is not finite"),
        ("secret\ud800", "not valid Unicode"),
        ({1, 2}, "there is no form for set"),
        (_nested(100_000), "nested too deeply"),
    ],
)
def test_a_payload_without_a_form_is_refused(payload: Any, why: str) -> None:
    """NonRetryable names the event and the rule, and shows nothing of the payload."""
    with pytest.raises(NonRetryable, match=f"^event 7 of billing.subscription a has no form in mg: {why}$"):
        sink_event(event("a", 7, payload))
