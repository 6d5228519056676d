"""Header fields of the API: their names, keys as they are written, media types."""

from __future__ import annotations

from urllib.parse import quote

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
METADATA = "Progressor-Metadata"
CONTEXT = "Progressor-Context"
# Of what is answered: the address of the task whose answer it is.
TASK = "Content-Location"

JSON, BYTES = "application/json", "application/octet-stream"


def shown_key(key: str) -> str:
    """A key as a header says it."""
    if key.isascii() and key.isprintable():
        return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'%"{quote(key, safe=" !#$&()*+,-./:;<=>?@[]^_`{|}~").lower()}"'


def media_type_of_text(text: str | None) -> str | None:
    """The media type that a Content-Type says, without parameters."""
    return None if text is None else text.partition(";")[0].strip().lower()


def is_json(media_type: str | None) -> bool:
    """Whether a media type says that the body is JSON."""
    return media_type == JSON or (
        media_type is not None and media_type.startswith("application/") and media_type.endswith("+json")
    )
