"""The documentation of routes in the OpenAPI document: bodies, headers, and every status.

Rule: a status that is not documented is a defect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from progressor.http.server.api_request import REQUEST_ID
from progressor.http.server.preconditions import IF_NONE_MATCH
from progressor.http.wire import headers
from progressor.http.wire.models import ProblemBody
from progressor.http.wire.problems import MEDIA_TYPE

# Statuses of problems that any request may get, and one with a body.
ANY_TIME = (400, 401, 403, 406, 412, 429, 500, 503)
WITH_BODY = (408, 413, 415, 422)

ANSWER = {headers.JSON: {"schema": {}}, headers.BYTES: {"schema": {"type": "string", "format": "binary"}}}
NOTHING: dict[str, Any] = {headers.JSON: {"schema": {}}}
OBJECT = {headers.JSON: {"schema": {"type": "object"}}}
TEXT = {"text/plain": {"schema": {"type": "string"}}}
_JSON_TEXT = {"type": "string", "contentMediaType": headers.JSON}
# Before OpenAPI 3.2 the schema of a stream describes each of its events.
STREAM = {
    headers.STREAM: {
        "schema": {
            "type": "object",
            "properties": {"data": _JSON_TEXT, "id": {"type": "string"}, "event": {"type": "string"}},
            "required": ["data"],
        }
    }
}
UNCHANGED: Mapping[int, Any] = {304: ("It is as If-None-Match says.", None)}
PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}}


def _header(name: str, text: str, **schema: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string", **schema}}


# Without the form %"…": no pattern can tell whether its text is UTF-8.
_KEY_PATTERN = r'^("[\x20\x21\x23-\x5b\x5d-\x7e]{1,256}"|[!#$&-~][\x20-\x7e]{0,255})$'


# The headers of all answers, and their descriptions.
HEADERS = {
    "RateLimit": "How many requests the caller may make now, and in how many seconds it may make all.",
    "RateLimit-Policy": "How many requests the caller may make in how many seconds.",
    "WWW-Authenticate": "What is missing: a token, or a scope.",
    "Retry-After": "After how many seconds to ask again.",
    "Accept-Post": "The media type that is read here.",
    "Accept-Encoding": "The encodings of bodies that are read here.",
    "ETag": "The tag of this answer, for `If-None-Match`. It is weak.",
    "Location": "The address of what was made, or of the task that has no answer yet.",
    "Preference-Applied": "The preference that was followed.",
    headers.IDEMPOTENCY_KEY: "The key of the request: the one that it had, or the one that it got.",
    headers.REPLAYED: "`true`: the key was used before, for the same request.",
    headers.TASK: "The address of the task whose answer this is.",
    REQUEST_ID: "The id by which logs name the request: the one that it had, or one that was made.",
}
BEARER = "bearer"
OF_ALL = ("RateLimit", "RateLimit-Policy", REQUEST_ID)
OF_STATUS = {
    201: ("Location",),
    202: ("Location", "Retry-After"),
    304: ("ETag",),
    401: ("WWW-Authenticate",),
    403: ("WWW-Authenticate",),
    415: ("Accept-Post", "Accept-Encoding"),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
# Headers of all answers, problems too, of an operation that reads such a header.
OF_REQUEST = {
    headers.CONTEXT: (headers.IDEMPOTENCY_KEY, headers.REPLAYED, headers.TASK),
    "Prefer": ("Preference-Applied",),
}

_KEY = _header(
    headers.IDEMPOTENCY_KEY,
    'A name for this request, under which it is made once: "payment-17".',
    pattern=_KEY_PATTERN,
)
_PREFER = _header("Prefer", "`wait=N`: wait so many seconds for the answer; `respond-async`: not at all.")
_PREFER_INIT = _header(
    "Prefer", "`wait=N`: wait so many seconds, one at least, for an init that runs or is paused."
)
_CONTEXT = _header(
    headers.CONTEXT, "JSON that the handler finds in process.context.", contentMediaType=headers.JSON
)
_METADATA = _header(
    headers.METADATA, "A JSON object by which the process is found.", contentMediaType=headers.JSON
)

# No pattern can tell whether the escapes stand for UTF-8, and for how many characters.
_REASON_PATTERN = r"^([!-$&-~]|%[0-9A-Fa-f]{2})( *([!-$&-~]|%[0-9A-Fa-f]{2}))*$"
REASONED = _header(
    headers.REASON,
    "The reason, if this is noted in the audit: a line of up to 256 characters, percent-encoded UTF-8.",
    pattern=_REASON_PATTERN,
)

_IF_ABSENT = _header(IF_NONE_MATCH, "`*`: only if there is no such process; else 412, in place of 409.")
_IF_CHANGED = _header(IF_NONE_MATCH, "The ETag of an answer: 304 while it would be the same.")

_BODY = {"description": "The arguments themselves; none for none.", "required": False, "content": ANSWER}
TAKES_ARGS = {"requestBody": _BODY, "parameters": [_KEY, _PREFER, _CONTEXT]}
STARTS = {"requestBody": _BODY, "parameters": [_KEY, _PREFER, _CONTEXT, _METADATA, _IF_ABSENT]}
ASKS = {"parameters": [_KEY, _PREFER, _CONTEXT]}
# The answers of a redo have the headers of the request that it makes.
REDOES = {"parameters": [_PREFER], "answer_headers": OF_REQUEST[headers.CONTEXT]}
KEYED = {"parameters": [_KEY]}
WAITS = {"parameters": [_PREFER]}
CREATES = {"parameters": [_IF_ABSENT]}
TAGGED = {"parameters": [_IF_CHANGED]}
TAGGED_AFTER_INIT = {"parameters": [_PREFER_INIT, _IF_CHANGED]}
WATCHES = {
    "parameters": [_header(headers.LAST_EVENT_ID, "The position of the last change that the caller has.")]
}
WAITS_FOR_INIT = {"parameters": [_PREFER_INIT]}
FOLLOWS = {
    "parameters": [
        _header("Prefer", "`wait=N`: wait so many seconds for something to come, if there is nothing."),
        _header(
            headers.LAST_EVENT_ID, "The position of the last event that the caller has; before `after`."
        ),
    ]
}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """Return the documentation of a body of this model, which the route reads itself."""
    return {"requestBody": {"required": True, "content": content_of(model, "validation")}}


def content_of(model: type[BaseModel], mode: JsonSchemaMode = "serialization") -> dict[str, Any]:
    """Return the content of an answer that has this model, or another one of another media type."""
    schema = model.model_json_schema(mode=mode)
    definitions = schema.pop("$defs", {})
    return {headers.JSON: {"schema": _inlined(schema, definitions)}}


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with its definitions in place of its references to them."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(part, definitions) for name, part in schema.items()}
    return [_inlined(part, definitions) for part in schema] if isinstance(schema, list) else schema
