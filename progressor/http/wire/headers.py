"""Headers of the API: their names, idempotency keys as they are written, media types."""

from __future__ import annotations

from urllib.parse import quote

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
METADATA = "Progressor-Metadata"
CONTEXT = "Progressor-Context"
# Percent-encoded UTF-8.
REASON = "Progressor-Reason"
# Those of W3C.
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
# Of a stream: the last position that its reader has.
LAST_EVENT_ID = "Last-Event-ID"
# Names the address of the task whose answer this is.
TASK = "Content-Location"

JSON, BYTES, LINES = "application/json", "application/octet-stream", "application/x-ndjson"
STREAM = "text/event-stream"


def shown_key(key: str) -> str:
    """Return an idempotency key as it is written in a header."""
    if key.isascii() and key.isprintable():
        return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'%"{quote(key, safe=" !#$&()*+,-./:;<=>?@[]^_`{|}~").lower()}"'


def shown_reason(reason: str) -> str:
    """Return a reason as it is written in a header."""
    return quote(reason, safe=" !#$&()*+,-./:;<=>?@[]^_`{|}~'")


def media_type_of_text(text: str | None) -> str | None:
    """Return the media type of a Content-Type, without parameters."""
    return None if text is None else text.partition(";")[0].strip().lower()


def is_json(media_type: str | None) -> bool:
    """Return whether a media type is one of JSON."""
    return media_type == JSON or (
        media_type is not None and media_type.startswith("application/") and media_type.endswith("+json")
    )
