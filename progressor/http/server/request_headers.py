"""Headers of a request: its key, preferences, metadata and media types, read and checked.

Rule: a header that cannot be understood is refused by name, except preferences, which may be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.types import Scope

from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.http.wire.headers import (
    CONTEXT,
    IDEMPOTENCY_KEY,
    METADATA,
    REASON,
    TRACEPARENT,
    TRACESTATE,
    media_type_of_text,
)

# Headers that a request has at most once, and the fields by which errors name them.
_SINGLE = {
    "authorization": "authorization",
    "content-type": "content_type",
    IDEMPOTENCY_KEY.lower(): "idempotency_key",
    METADATA.lower(): "metadata",
    CONTEXT.lower(): "context",
    REASON.lower(): "reason",
}

_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED = re.compile(r"\\(.)")
# RFC 9651: what is not ASCII stands percent-encoded between %" and ".
_DISPLAYED = re.compile(r'%"([\x20-\x21\x23-\x7e]*)"')
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_BARE = re.compile(r"[\x21\x23-\x7e][\x20-\x7e]*")
_NUMBER = re.compile(r"[0-9]{1,9}")


class RequestHeaders(Headers):
    """The headers of a request, decoded once, and found by name without a search through all of them."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self._texts: dict[str, list[str]] = {}
        for name, text in self.raw:
            self._texts.setdefault(name.decode("latin-1"), []).append(text.decode("latin-1"))

    @property
    def names(self) -> Set[str]:
        """The names of the headers, in lower case, each once."""
        return self._texts.keys()

    def getlist(self, key: str) -> list[str]:
        return self._texts.get(key.lower(), [])

    def get(self, key: str, default: Any = None) -> Any:
        texts = self._texts.get(key.lower())
        return default if texts is None else texts[0]

    def __getitem__(self, key: str) -> str:
        return self._texts[key.lower()][0]

    def __contains__(self, key: Any) -> bool:
        return key.lower() in self._texts


def require_single(headers: RequestHeaders) -> None:
    """Raise InvalidRequest if a header of which only one can count stands twice."""
    if len(headers.names) == len(headers.raw):
        return
    for name, field in _SINGLE.items():
        count = len(headers.getlist(name))
        if count > 1:
            raise InvalidRequest(f"the header {name} stands {count} times", field=field)


def refuse_key(headers: Headers) -> None:
    """Raise InvalidRequest if a request has a key that its route would ignore."""
    if IDEMPOTENCY_KEY in headers:
        raise InvalidRequest(
            f"the header {IDEMPOTENCY_KEY} is not supported here, so nothing was done: ask without it",
            field="idempotency_key",
        )


def idempotency_key_of(headers: Headers) -> str | None:
    """Return the idempotency key, a string of structured fields or bare; None without the header.

    Raise InvalidRequest if it is neither.
    """
    text = headers.get(IDEMPOTENCY_KEY)
    if text is None:
        return None
    text = text.strip()
    if found := _QUOTED.fullmatch(text):
        return _ESCAPED.sub(r"\1", found[1])
    try:
        if found := _DISPLAYED.fullmatch(text):
            return unquote_to_bytes(found[1]).decode()
    except UnicodeDecodeError:
        pass
    else:
        if _BARE.fullmatch(text):
            return text
    raise InvalidRequest(
        f'the header {IDEMPOTENCY_KEY} must be a text in double quotes, as in "payment-17", or printable '
        "ASCII without them",
        field="idempotency_key",
    )


def reason_of(headers: Headers) -> str | None:
    """Return the reason of a request, None without one; raise InvalidRequest if it cannot be read."""
    text = headers.get(REASON)
    if text is None:
        return None
    text = text.strip()
    try:
        if not _STRAY_PERCENT.search(text):
            return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        pass
    raise InvalidRequest(
        f"the header {REASON} must be percent-encoded UTF-8, in which a percent sign is %25", field="reason"
    )


def trace_headers(headers: Headers) -> tuple[str | None, str | None]:
    """Return the traceparent and the tracestate of a request; two of the former count as none."""
    parents = headers.getlist(TRACEPARENT)
    if len(parents) != 1:
        return None, None
    return parents[0], ",".join(headers.getlist(TRACESTATE)) or None


class Preferences(NamedTuple):
    """The preferences of a request: seconds to wait for its answer, or `respond_async` not to wait."""

    wait: int | None = None
    respond_async: bool = False

    def applied(self, longest: float) -> str | None:
        """Return the value of Preference-Applied; None if the request has no preference."""
        if self.respond_async:
            return "respond-async"
        return None if self.wait is None else f"wait={min(self.wait, int(longest))}"


def preferences_of(headers: Headers) -> Preferences:
    """Return the preferences of a request; the first of a name counts, unknown ones are ignored."""
    listed = headers.getlist("Prefer")
    if not listed:
        return Preferences()
    asked: dict[str, str] = {}
    for preference in ",".join(listed).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        asked.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = asked.get("wait", "")
    return Preferences(int(wait) if _NUMBER.fullmatch(wait) else None, "respond-async" in asked)


def json_of(headers: Headers, name: str, field: str) -> Any:
    """Return the JSON value of a header, None without it; raise InvalidRequest if it is not JSON."""
    text = headers.get(name)
    if text is None:
        return None
    return decode(text.encode("latin-1"), field=field)


def media_type_of(headers: Headers) -> str | None:
    """Return the media type of the body, without parameters."""
    return media_type_of_text(headers.get("Content-Type"))


def accepts(headers: Headers, media_type: str) -> bool:
    """Return whether the caller accepts an answer of this type."""
    if not any(text.strip() for text in headers.getlist("Accept")):
        return True
    main = media_type.partition("/")[0]
    best: tuple[int, bool] = (-1, False)
    for span, is_taken in _spans_of(headers):
        rank = {media_type: 2, f"{main}/*": 1, "*/*": 0}.get(span, -1)
        if rank > best[0]:
            best = (rank, is_taken)
    return best[1]


def asks_for(headers: Headers, media_type: str) -> bool:
    """Return whether the caller names this type among those that it accepts."""
    return (media_type, True) in _spans_of(headers)


def _spans_of(headers: Headers) -> list[tuple[str, bool]]:
    """Return the media types that the header Accept lists, and of each whether it is accepted."""
    spans = []
    for each in ",".join(headers.getlist("Accept")).split(","):
        span, *parameters = (part.strip().lower() for part in each.split(";"))
        spans.append((span, not any(re.fullmatch(r"q=0(\.0*)?", each) for each in parameters)))
    return spans
