"""Values to bytes and back: JSON, strictly, and a codec over it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from progressor.codecs.codec import Owner, ValuePlace
from progressor.errors import InvalidRequest
from progressor.handlers.codec import JSON, RAW, Wire, decode, encode, json_object

INFINITY = float("inf")
NAN = float("nan")


class Price(BaseModel):
    amount: float | None = None
    parts: list[float] = []


@dataclass
class Line:
    price: float


class Reversed:
    """A codec whose work can be seen."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)


@given(value=json_values)
def test_json_values_survive(value: Any) -> None:
    """Every JSON value is read as it was written."""
    assert decode(encode(value)) == value


def test_none_is_nothing_and_bytes_are_encoded_already() -> None:
    """None stays None; bytes pass, for raw handlers."""
    assert encode(None) is None
    assert decode(None) is None
    assert encode(b"\xff") == b"\xff"


def test_models_and_common_types_have_json() -> None:
    """Models, dates, decimals and dataclasses are written as pydantic writes them."""
    assert encode(Price(amount=1)) == b'{"amount":1.0,"parts":[]}'
    value = {"at": datetime(2026, 1, 1, tzinfo=UTC), "sum": Decimal("1.10"), "line": Line(2.0)}
    assert encode(value) == b'{"at":"2026-01-01T00:00:00Z","sum":"1.10","line":{"price":2.0}}'


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (NAN, "args"),
        ({"a": [1, -INFINITY]}, "args.a.1"),
        (Price.model_construct(amount=NAN), "args.amount"),
        ({"p": Price(parts=[1, INFINITY])}, "args.p.parts.1"),
        ([Line(NAN)], "args.0.price"),
    ],
)
def test_nan_and_infinity_are_refused_by_name(value: Any, where: str) -> None:
    """JSON has no NaN, and pydantic would silently make it null: the field is named instead."""
    with pytest.raises(InvalidRequest, match=rf"^{where} must not be NaN or Infinity$") as caught:
        encode(value, field="args")
    assert caught.value.field == where


def test_texts_that_speak_of_nan_and_null_pass() -> None:
    """Only numbers are refused, not the words."""
    assert decode(encode({"NaN": "Infinity", "x": None})) == {"NaN": "Infinity", "x": None}


@pytest.mark.parametrize("value", [object(), b"\xff\xfe", "\ud800", lambda: None])
def test_values_without_json_are_refused_by_name(value: Any) -> None:
    """What has no JSON form is refused, and the error says where it is."""
    with pytest.raises(InvalidRequest, match=r"^args\.a\.0 has no JSON form") as caught:
        encode({"a": [value]}, field="args")
    assert caught.value.field == "args.a.0"


def test_a_circle_is_refused() -> None:
    """A value that holds itself is an error, not a hang."""
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(InvalidRequest, match="has no JSON form"):
        encode(circle)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"\xff"])
def test_bytes_that_are_not_json_are_refused(data: bytes) -> None:
    """Reading names the field that is not JSON."""
    with pytest.raises(InvalidRequest, match=r"^response is not JSON") as caught:
        decode(data, field="response")
    assert caught.value.field == "response"


def test_json_objects_hold_what_jsonb_can() -> None:
    """Metadata becomes plain JSON; NUL characters, which jsonb lacks, are refused by name."""
    assert json_object({"n": (1,), 2: "\\u0000"}, field="metadata") == {"n": [1], "2": "\\u0000"}
    with pytest.raises(InvalidRequest, match=r"^metadata\.a\.b must not contain NUL"):
        json_object({"a": {"b": "\x00"}}, field="metadata")
    with pytest.raises(InvalidRequest, match=r"^metadata must not contain NUL"):
        json_object({"\x00": 1}, field="metadata")
    with pytest.raises(InvalidRequest, match=r"^metadata must be a dict, not list"):
        json_object([], field="metadata")


OWNER = Owner("shop", "o1")


def test_a_codec_stands_between() -> None:
    """A codec gets the JSON on the way in and gives it back on the way out."""
    wire = Wire(Reversed())
    assert wire.encode(12, "args", OWNER) == b"21"
    assert wire.decode(wire.encode([1, 2], "args", OWNER), "args", OWNER) == [1, 2]
    assert wire.encode(None, "args", OWNER) is None
    assert wire.decode(None, "args", OWNER) is None


def test_a_codec_is_checked() -> None:
    """An object without encode and decode is no codec; one that returns text is found out."""
    with pytest.raises(InvalidRequest, match="codec must have encode and decode"):
        Wire(object())  # type: ignore[arg-type]

    class Texts(Reversed):
        def encode(self, data: bytes) -> bytes:
            return "text"  # type: ignore[return-value]

    with pytest.raises(TypeError, match=r"codec.encode must return bytes, not str"):
        Wire(Texts()).encode(1, "args", OWNER)


def test_a_codec_may_take_the_place_of_a_value() -> None:
    """One with seal and unseal is given namespace, process id and kind; it too returns bytes."""
    places: list[ValuePlace] = []

    class Placed:
        def seal(self, data: bytes, place: ValuePlace) -> bytes:
            places.append(place)
            return data

        def unseal(self, data: bytes, place: ValuePlace) -> Any:
            places.append(place)
            return data.decode() if place.kind == "state" else data

    wire = Wire(Placed())
    assert wire.decode(wire.encode([1], "event", OWNER), "event", OWNER) == [1]
    assert places == [ValuePlace("shop", "o1", "event")] * 2
    with pytest.raises(TypeError, match=r"codec.unseal must return bytes, not str"):
        wire.decode(b"1", "state", OWNER)


def test_a_client_reads_raw_bytes_where_there_is_no_json() -> None:
    """`decode_any` gives the value, or the bytes of a raw handler."""
    assert JSON.decode_any(b"[1]", "args", OWNER) == [1]
    assert JSON.decode_any(b"\xff", "args", OWNER) == b"\xff"
    assert JSON.decode_any(None, "args", OWNER) is None
    assert RAW.decode(b"[1]", "args", OWNER) == RAW.decode_any(b"[1]", "args", OWNER) == b"[1]"
