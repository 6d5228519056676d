"""Envelopes are CloudEvents 1.0: another implementation reads what was told, and ids are for good."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given, settings, strategies as st

from progressor import Client, Engine, FeedEvent, FeedKind, Namespace, NonRetryable, Process
from progressor.inputs import NAMESPACE_PATTERN
from progressor.sinks.cloudevents import attributes, data, envelope, structured
from tests.feed.starts import FIRST
from tests.sinks.made import made, of_kind

till = Namespace("shop.till", state=int, feed=True)
KINDS: tuple[FeedKind, ...] = ("event", "created", "step", "broken", "repaired", "removed")


@till.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@till.call
async def add(process: Process[int]) -> None:
    """Tell of it twice."""
    process.emit("added")
    process.emit("counted")


@till.call
async def leave(process: Process[int]) -> None:
    """Go, with a last event."""
    process.emit("left")
    process.remove()


_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_moments = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))
_offsets = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))


@st.composite
def _events(draw: st.DrawFn) -> FeedEvent:
    kind: FeedKind = draw(st.sampled_from(KINDS))
    fields: dict[str, Any] = {
        "namespace": draw(st.from_regex(NAMESPACE_PATTERN, fullmatch=True)),
        "process_id": draw(_texts),
        "timestamp": draw(_moments).replace(tzinfo=draw(_offsets)),
    }
    if kind != "event":
        return of_kind(kind, **fields)
    fields["event_id"] = draw(st.integers(1, 2**63 - 1))
    if draw(st.booleans()):
        return made(**fields, is_deleted=True, name=None, payload=None, metadata={})
    return made(**fields, name=draw(st.none() | _texts), payload=draw(_json | st.binary(max_size=20)))


def _in_binary(event: FeedEvent) -> BaseCloudEvent:
    """An event as the other implementation reads it from Kafka."""
    headers = {
        "content-type" if name == "datacontenttype" else f"ce_{name}": value.encode()
        for name, value in attributes(event).items()
    }
    return from_binary(KafkaMessage(headers=headers, key=None, value=data(event)), JSONFormat())


@settings(deadline=None)
@given(_events())
def test_another_implementation_reads_what_was_told(event: FeedEvent) -> None:
    """In structured form: its attributes, time, process and payload, and what is no event of a process."""
    read = JSONFormat().read(None, structured(event))
    kind = f"progressor.{event.kind}" if event.name is None else event.name
    assert (read.get_specversion(), read.get_id()) == ("1.0", event.id)
    assert read.get_source() == f"/progressor/{event.namespace}"
    assert read.get_type() == f"{event.namespace}.{kind}"
    assert (read.get_subject(), read.get_time()) == (event.process_id, event.timestamp)
    assert read.get_data() == event.payload
    sequence = read.get_extension("sequence")
    assert (None if sequence is None else int(sequence)) == event.event_id
    assert read.get_extension("deleted") is (True if event.is_deleted else None)
    assert read.get_extension("partitionkey") == f"{event.namespace} {event.process_id}"
    assert read.get_extension("position") == event.position
    assert b"\n" not in structured(event)


@settings(deadline=None)
@given(_events())
def test_both_forms_say_the_same(event: FeedEvent) -> None:
    """The other implementation reads the same attributes from the binary form, and the same payload."""
    whole, parts = JSONFormat().read(None, structured(event)), _in_binary(event)
    of_parts = dict(parts.get_attributes())
    if "deleted" in of_parts:
        # Texts are all that headers have.
        of_parts["deleted"] = json.loads(of_parts["deleted"])
    assert of_parts == whole.get_attributes()
    payload = parts.get_data()
    if isinstance(event.payload, bytes) and isinstance(payload, str):
        # It reads bytes as text if they can be.
        payload = payload.encode()
    assert (payload or None) == (whole.get_data() or None)


@settings(deadline=None)
@given(_events())
def test_names_and_values_keep_to_the_specification(event: FeedEvent) -> None:
    """Names are of lower-case letters and digits; no value is empty; time is of RFC 3339, in UTC."""
    found = attributes(event)
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in found)
    assert all(found.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", found["time"])
    assert "." not in found["id"]


def test_an_event() -> None:
    """All that stands in an envelope, as a receiver sees it."""
    event = made(position="1f-8-1-3-77", event_id=3, id="1f-2a-3-63f0")
    assert envelope(event) == {
        "specversion": "1.0",
        "id": "1f-2a-3-63f0",
        "source": "/progressor/billing.subscription",
        "type": "billing.subscription.paid",
        "subject": "acme",
        "time": "2026-03-01T12:30:00.000250Z",
        "partitionkey": "billing.subscription acme",
        "position": "1f-8-1-3-77",
        "sequence": "0000000000000000003",
        "datacontenttype": "application/json",
        "data": {"amount": 5},
    }
    assert structured(event).startswith(b'{"specversion":"1.0",')


@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_happens_to_a_process_has_no_payload(kind: FeedKind) -> None:
    """It has neither data nor a type of them, and no number."""
    event = of_kind(kind)
    found = envelope(event)
    assert found["type"] == f"billing.subscription.progressor.{kind}"
    assert {"data", "data_base64", "datacontenttype", "sequence"} & {*found} == set()
    assert data(event) == b""


@pytest.mark.parametrize("earlier", [0, 9, 99, 2**63 - 2])
def test_sequences_have_the_order_of_numbers(earlier: int) -> None:
    """As texts, by which CloudEvents compare them."""
    assert (
        attributes(made(event_id=earlier))["sequence"] < attributes(made(event_id=earlier + 1))["sequence"]
    )


def test_a_payload_of_null_is_told() -> None:
    """It is not the same as none."""
    assert envelope(made(payload=None))["data"] is None
    assert data(made(payload=None)) == b"null"


def test_values_that_json_does_not_know_are_written_as_states_are() -> None:
    """The JSON is that of all values that Progressor stores."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    payload = {"price": Decimal("1.50"), "at": moment, "id": UUID(int=1), "raw": b"abc", "tags": {"a"}}
    expected = {
        "price": "1.50",
        "at": "2026-01-01T00:00:00Z",
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "abc",
        "tags": ["a"],
    }
    event = made(payload=payload)
    assert envelope(event)["data"] == expected
    assert json.loads(structured(event))["data"] == json.loads(data(event)) == expected


@pytest.mark.parametrize(
    "payload", [object(), {"x": float("nan")}, [float("inf")]], ids=["object", "nan", "inf"]
)
def test_a_payload_without_json_is_never_sent(payload: Any) -> None:
    """No other try would succeed; the error names the event and the part, not the value."""
    event = made(payload=payload)
    for form in (envelope, structured, data):
        with pytest.raises(NonRetryable, match=rf"position {event.position} cannot be sent: payload"):
            form(event)


async def test_an_id_is_for_good(dsn: str) -> None:
    """Two lives of a process repeat event ids; no id comes twice, and another reader gets the same ones."""
    async with Engine(dsn, [till]) as engine:
        for _ in range(2):
            await engine.client.start("shop.till", "t-1")
            await engine.client.call("shop.till", "t-1", "add")
            await engine.client.call("shop.till", "t-1", "leave")
        first = await _read_all(engine.client)
    async with Client(dsn) as other:
        again = await _read_all(other)
    ids = [envelope(event)["id"] for event in first]
    assert ids == [envelope(event)["id"] for event in again]
    assert len({*ids}) == len(ids) == 12
    assert [event.event_id for event in first if event.kind == "event"] == [1, 2, 3, 1, 2, 3]


async def _read_all(client: Client) -> list[FeedEvent]:
    """Both lives."""
    found, removals = [], 0
    async for event in client.subscribe(kinds=KINDS, after=FIRST):
        found.append(event)
        removals += event.kind == "removed"
        if removals == 2:
            break
    return found
