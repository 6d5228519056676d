"""What routes say of themselves in the OpenAPI document: bodies, headers, and every status.

Rule: a status that is not documented is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from progressor.http import headers
from progressor.http.bodies import ProblemBody
from progressor.http.preconditions import IF_NONE_MATCH
from progressor.http.problems import MEDIA_TYPE

# What may happen to every request, and to one with a body.
ANY_TIME = (400, 401, 403, 406, 412, 429, 500, 503)
WITH_BODY = (408, 413, 415, 422)

ANSWER = {headers.JSON: {"schema": {}}, headers.BYTES: {"schema": {"type": "string", "format": "binary"}}}
OBJECT = {headers.JSON: {"schema": {"type": "object"}}}
PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}}


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


_KEY = _header(
    headers.IDEMPOTENCY_KEY, 'A name for this request, under which it is made once: "payment-17".'
)
_PREFER = _header("Prefer", "`wait=N`: wait so many seconds for the answer; `respond-async`: not at all.")
_PREFER_INIT = _header(
    "Prefer", "`wait=N`: wait so many seconds, one at least, for an init that runs or is paused."
)
_CONTEXT = _header(headers.CONTEXT, "JSON that the handler finds in process.context.")
_METADATA = _header(headers.METADATA, "A JSON object by which the process is found.")

_IF_ABSENT = _header(IF_NONE_MATCH, "`*`: only if there is no such process; else 412, in place of 409.")
_IF_CHANGED = _header(IF_NONE_MATCH, "The ETag of an answer: 304 while it would be the same.")

_BODY = {"description": "The arguments themselves; none for none.", "required": False, "content": ANSWER}
TAKES_ARGS = {"requestBody": _BODY, "parameters": [_KEY, _PREFER, _CONTEXT]}
STARTS = {"requestBody": _BODY, "parameters": [_KEY, _PREFER, _CONTEXT, _METADATA, _IF_ABSENT]}
ASKS = {"parameters": [_KEY, _PREFER, _CONTEXT]}
KEYED = {"parameters": [_KEY]}
WAITS = {"parameters": [_PREFER]}
CREATES = {"parameters": [_IF_ABSENT]}
TAGGED = {"parameters": [_IF_CHANGED]}
TAGGED_AFTER_INIT = {"parameters": [_PREFER_INIT, _IF_CHANGED]}
WAITS_FOR_INIT = {"parameters": [_PREFER_INIT]}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """A body of this model, which is read by hand."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {headers.JSON: {"schema": _inlined(schema, definitions)}},
        }
    }


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without references to its own definitions, which stand in another place of the document."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(part, definitions) for name, part in schema.items()}
    return [_inlined(part, definitions) for part in schema] if isinstance(schema, list) else schema


def answers(
    good: Mapping[int, tuple[str, type[BaseModel] | Mapping[str, Any] | None]], problems: Iterable[int]
) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: good ones with their models or contents, and problems by their statuses."""
    documented: dict[int | str, dict[str, Any]] = {}
    for status, (text, body) in good.items():
        documented[status] = {"description": text}
        if isinstance(body, type):
            documented[status]["model"] = body
        elif body is not None:
            documented[status]["content"] = dict(body)
    for status in sorted({*problems}):
        documented[status] = {"description": HTTPStatus(status).phrase, "content": PROBLEM}
    return documented
