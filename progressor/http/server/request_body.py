"""Bodies of requests: read up to their bounds, and checked to be what they state.

Rule: a body is refused by its stated length, or as soon as it passes its bound. JSON is passed on as it was
written, but for white space: a number keeps all its digits.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from progressor.errors import InvalidRequest
from progressor.errors.wordings import fault_text
from progressor.handlers.codec import decode, first_fault
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.memory import BODY_WEIGHT, IMPORTED_VALUE_BYTES, VALUE_BYTES
from progressor.http.server.problems import Refusal
from progressor.http.server.request_headers import media_type_of
from progressor.http.wire import problems
from progressor.http.wire.headers import BYTES, JSON, is_json

_SPACE = b" \t\r\n"
# Bytes that are searched in one piece, so that its parts do not fill the memory.
_PIECE = 1 << 16
# The most faults of a body that a problem shows.
_MOST_FAULTS = 20
# Seconds to wait for the next piece of a body.
_PATIENCE_SECONDS = 30.0

# Bytes; a smaller body is covered by the memory that is counted for each request.
_SMALL = 64 << 10


class Bound(NamedTuple):
    """The option that bounds a body, and the bytes that each value in it takes while it is checked."""

    option: Literal["max_value_bytes", "max_import_bytes"]
    value_bytes: int


VALUE = Bound("max_value_bytes", VALUE_BYTES)
IMPORT = Bound("max_import_bytes", IMPORTED_VALUE_BYTES)


async def read_body(request: ApiRequest, bound: Bound = VALUE) -> bytes:
    """Return the body of a request, with memory taken for it.

    Raise Refusal if it is larger than its option allows, does not come in time, or has too many values.
    """
    _refuse_coding(request)
    most: int = getattr(request.server.options, bound.option)
    stated = request.headers.get("Content-Length", "")
    if stated.isdecimal():
        if int(stated) > most:
            raise _too_large(most, bound)
        if int(stated) > _SMALL:
            await request.place.reserve(BODY_WEIGHT * int(stated))
    body = await _joined(request, most, bound, is_stated=stated.isdecimal())
    if len(body) > _SMALL:
        request.place.keep(BODY_WEIGHT * len(body))
        values = sum(map(body.count, (b",", b"{", b"[")))
        await request.place.reserve(values * bound.value_bytes)
    return body


async def refuse_body(request: ApiRequest) -> None:
    """Raise InvalidRequest if a request has a body: what stands in it would be overlooked."""
    has_length = request.headers.get("Content-Length", "0") != "0"
    if (has_length or "Transfer-Encoding" in request.headers) and (await read_body(request)).strip():
        raise InvalidRequest("there must be no body: what is wanted stands in the query", field="body")


def _refuse_coding(request: ApiRequest) -> None:
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise Refusal(
            problems.WRONG_MEDIA_TYPE,
            f"a body is read as it is, and not with the Content-Encoding {coding[:80]!r}",
            headers={"Accept-Encoding": "identity"},
        )


async def _joined(request: ApiRequest, most: int, bound: Bound, *, is_stated: bool) -> bytes:
    parts, size, is_whole = [], 0, False
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS) as scope:
            while not is_whole:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, is_whole = message.get("body", b""), not message.get("more_body", False)
                if not is_whole:
                    scope.reschedule(clock() + _PATIENCE_SECONDS)
                if not is_stated and size <= _SMALL < size + len(part):
                    # Its length is not stated: take memory for the largest.
                    await request.place.reserve(BODY_WEIGHT * most)
                size += len(part)
                if size > most:
                    raise _too_large(most, bound)
                parts.append(part)
    except TimeoutError:
        detail = f"nothing more of the body has come for {_PATIENCE_SECONDS:g} s"
        # Without this header the connection would go on to wait for the rest.
        raise Refusal(problems.TOO_SLOW, detail, headers={"Connection": "close"}) from None
    return b"".join(parts)


def _too_large(most: int, bound: Bound) -> Refusal:
    return Refusal(problems.TOO_LARGE, f"a body may have {most:,} bytes at most ({bound.option})")


class Args(NamedTuple):
    """Arguments as they are passed on, and their value if they are JSON; None and None without any."""

    data: bytes | None = None
    value: Any = None


def args_of(request: ApiRequest, body: bytes, *, raw: bool) -> Args:
    """Return the arguments in a body; raise Refusal or InvalidRequest if they are not what it states."""
    media_type = media_type_of(request.headers)
    if raw:
        if body and media_type != BYTES:
            raise wrong_type(media_type, BYTES, "the namespace has a raw handler, which takes bytes")
        return Args(body or None)
    if not body:
        return Args()
    if not is_json(media_type):
        raise wrong_type(media_type, JSON, "arguments are JSON")
    value = decode(body, field="args")
    return Args() if value is None else Args(without_space(body), value)


def without_space(text: bytes) -> bytes:
    """Return JSON without the white space between its tokens; other text may be changed in any way."""
    if len(text.translate(None, _SPACE)) == len(text):
        return text
    # JSON has no control characters: two of them replace escapes that look like the end of a string.
    hidden = text.replace(b"\\\\", b"\0").replace(rb"\"", b"\1")
    kept, inside = [], 0
    for begin in range(0, len(hidden), _PIECE):
        # The parts are in turn outside and inside of strings.
        parts = hidden[begin : begin + _PIECE].split(b'"')
        if outside := parts[inside::2]:
            parts[inside::2] = b'"'.join(outside).translate(None, _SPACE).split(b'"')
        inside ^= (len(parts) - 1) % 2
        kept.append(b'"'.join(parts))
    return b"".join(kept).replace(b"\1", rb"\"").replace(b"\0", b"\\\\")


def wrong_type(media_type: str | None, wanted: str, why: str) -> Refusal:
    """Return the refusal of a body of another media type than is read here."""
    said = f"not {media_type}" if media_type else "and the body has no Content-Type"
    return Refusal(
        problems.WRONG_MEDIA_TYPE, f"{why}: send it as {wanted}, {said}", headers={"Accept-Post": wanted}
    )


M = TypeVar("M", bound=BaseModel)


def model_in(request: ApiRequest, body: bytes, model: type[M]) -> M:
    """Return the model that a body states; raise Refusal, which names what is wrong."""
    media_type = media_type_of(request.headers)
    if not is_json(media_type):
        raise wrong_type(media_type, JSON, "the body is JSON")
    value = decode(body, field="args")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        faults = [
            {"pointer": "".join(f"/{part}" for part in each["loc"]), "rule": fault_text(each)}
            for each in found[:_MOST_FAULTS]
        ]
        raise Refusal(
            problems.INVALID_ARGS,
            f"{first_fault(error, 'args')}: {faults[0]['rule']}",
            members={"field": first_fault(error, "args"), "errors": faults, "error_count": len(found)},
        ) from None
