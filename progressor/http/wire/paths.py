"""Namespaces, ids and names of calls as segments of a path.

Rule: a segment is percent-encoded UTF-8, read before anything decodes it, so a slash may stand in it as
%2F. Proxies decode and normalise some of that. `~` and base64url pass through all of them: our clients
write them for any text that is not plain.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from progressor.errors import InvalidRequest

PROCESS = "/v1/namespaces/{namespace}/processes/{process_id}"
"""The path of a process, from the root of the API."""
FEED = "/v1/feed"
"""The path of the feed."""

_MARK = "~"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def segment_of(text: str) -> str:
    """Return a text as a segment that every proxy leaves as it is."""
    if _PLAIN.fullmatch(text):
        return text
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def process_url(namespace: str, process_id: str) -> str:
    """Return the path of this process, from the root of the API."""
    return PROCESS.format(namespace=namespace, process_id=segment_of(process_id))


def text_of(segment: str, field: str) -> str:
    """Return the text that a raw segment stands for; raise InvalidRequest if it stands for none."""
    if _PLAIN.fullmatch(segment):
        return segment
    data = unquote_to_bytes(segment)
    if data.startswith(_MARK.encode()):
        data = _decoded(data[len(_MARK) :], field)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{field} in the path must be UTF-8", field=field) from None


def _decoded(data: bytes, field: str) -> bytes:
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise InvalidRequest(
            f"{field} in the path begins with ~, which base64url must follow; an id that begins with ~ is "
            "written as base64url itself",
            field=field,
        ) from None
