"""CloudEvents 1.0: the form in which events of the feed leave the database. Pure.

Rule: the id is that of the FeedEvent, which names it for good, and nothing else: a process that is started
anew counts its events from 1 again. It has no dot in it and nothing that a user chose, which Standard
Webhooks ask of an id that is signed. The rest stands in attributes of its own.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC
from typing import Any, Final
from urllib.parse import quote

from pydantic_core import from_json, to_json

from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest, NonRetryable
from progressor.handlers.codec import encode_json

MEDIA_TYPE: Final = "application/cloudevents+json"
"""The media type of an envelope; its JSON is always in UTF-8."""

_JSON, _BYTES = "application/json", "application/octet-stream"
# Digits of the largest event id: CloudEvents compare sequences as texts.
_SEQUENCE_DIGITS = 19


def envelope(event: FeedEvent) -> dict[str, Any]:
    """Return an event in structured form, of plain JSON values.

    A payload is `data`; that of a raw handler, if it is no JSON, is `data_base64`. What has no payload has
    neither. Raise NonRetryable for a payload that has no JSON form.
    """
    found: dict[str, Any] = dict(attributes(event))
    if event.is_deleted:
        found["deleted"] = True
    if _has_data(event):
        if isinstance(event.payload, bytes):
            found["data_base64"] = b64encode(event.payload).decode()
        else:
            found["data"] = from_json(data(event))
    return found


def structured(event: FeedEvent) -> bytes:
    """Return the JSON of an envelope, which has no line break in it; NonRetryable as `envelope`."""
    return to_json(envelope(event))


def attributes(event: FeedEvent) -> dict[str, str]:
    """Return the attributes of an event as texts, for a binary form: `data` beside them is the payload.

    `partitionkey` is the same for all events of a process. `sequence` is the number of an event in its
    process, in as many digits each. What is no event of a process has none.
    """
    is_event = event.kind == "event" and event.name is not None
    found = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"/progressor/{quote(event.namespace, safe='')}",
        "type": f"{event.namespace}.{event.name if is_event else f'progressor.{event.kind}'}",
        "subject": event.process_id,
        "time": event.timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "partitionkey": f"{event.namespace} {event.process_id}",
        "position": event.position,
    }
    if event.event_id is not None:
        found["sequence"] = f"{event.event_id:0{_SEQUENCE_DIGITS}d}"
    if event.is_deleted:
        found["deleted"] = "true"
    if _has_data(event):
        found["datacontenttype"] = _BYTES if isinstance(event.payload, bytes) else _JSON
    return found


def shown(event: FeedEvent) -> str:
    """Return what names an event in errors, without its payload."""
    what = event.kind if event.event_id is None else f"event {event.event_id}"
    return f"{what} of {event.namespace} {event.process_id}"


def data(event: FeedEvent) -> bytes:
    """Return the payload in binary form: JSON, or the bytes of a raw handler as they are; empty for none.

    Raise NonRetryable for a payload that has no JSON form.
    """
    if not _has_data(event):
        return b""
    if isinstance(event.payload, bytes):
        return event.payload
    try:
        return encode_json(event.payload, field="payload")
    except InvalidRequest as error:
        raise NonRetryable(f"the event at position {event.position} cannot be sent: {error}") from None


def _has_data(event: FeedEvent) -> bool:
    return event.kind == "event" and not event.is_deleted
