"""The OpenAPI document of the API, made of its table of operations.

Rule: a status that is not documented is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import models_json_schema

from progressor.http.server.openapi.operations import (
    ANY_TIME,
    BEARER,
    HEADERS,
    OF_ALL,
    OF_REQUEST,
    OF_STATUS,
    PROBLEM,
    REASONED,
    WITH_BODY,
)
from progressor.http.server.operation import Operation
from progressor.http.wire import headers
from progressor.http.wire.models import ProblemBody
from progressor.release import VERSION

_REFERENCE = "#/components/schemas/{model}"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of these operations; public ones are left out."""
    shown = [each for each in operations if each.scope is not None]
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {ProblemBody.__name__: problem_schema()}
    for each in shown:
        for method in each.methods or ():
            paths.setdefault(each.path, {})[method.lower()] = _described(each, schemas)
    models = {body: None for each in shown for _, body in each.answers.values() if isinstance(body, type)}
    _, found = models_json_schema([(model, "serialization") for model in models], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Progressor",
            "description": "Processes: started, called, repaired, read and removed.",
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
            "version": VERSION,
        },
        # Relative to the address that the document comes from.
        "servers": [{"url": "/"}],
        "paths": _without_null(paths),
        "components": {
            "schemas": _without_null(dict(sorted((schemas | found["$defs"]).items()))),
            **components(),
        },
    }


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return an operation of the document; schemas to which its parameters refer are added."""
    stated = {name: each for name, each in operation.takes.items() if name != "answer_headers"}
    parameters = [*_parameters(operation, schemas), *stated.pop("parameters", ())]
    parameters += [] if operation.is_read else [REASONED]
    return {
        "summary": operation.summary,
        "description": operation.description,
        "operationId": operation.endpoint.__name__,
        **({"parameters": parameters} if parameters else {}),
        **stated,
        "responses": {str(status): answer for status, answer in _answers(operation).items()},
        "security": [{BEARER: [operation.scope]}],
    }


def _parameters(operation: Operation, schemas: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the segments and the query; a query is optional by being left out, and is never null."""
    model = operation.parameters.model.model_json_schema(ref_template=_REFERENCE)
    schemas |= model.get("$defs", {})
    for name, schema in model.get("properties", {}).items():
        kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            schema.update(kinds[0])
            del schema["anyOf"]
        is_segment = name in operation.parameters.segments
        parameter = {"name": name, "in": "path" if is_segment else "query", "required": is_segment}
        described = {"description": schema["description"]} if "description" in schema else {}
        yield {**parameter, "schema": schema, **described}


def _answers(operation: Operation) -> dict[int, dict[str, Any]]:
    documented: dict[int, dict[str, Any]] = {}
    for status, (text, body) in operation.answers.items():
        documented[status] = {"description": text}
        if isinstance(body, type):
            schema = {"$ref": _REFERENCE.format(model=body.__name__)}
            documented[status]["content"] = {headers.JSON: {"schema": schema}}
        elif body is not None:
            documented[status]["content"] = dict(body)
    problems = {*ANY_TIME, *operation.problems} - {*operation.never}
    problems |= {HTTPStatus.NOT_FOUND} if operation.parameters.segments else set()
    problems |= {*WITH_BODY} if "requestBody" in operation.takes else set()
    for status in sorted(problems):
        # A status of a good answer is no problem, such as 503 of GET /health.
        documented.setdefault(status, {"description": HTTPStatus(status).phrase, "content": PROBLEM})
    of_request = [
        name for each in operation.takes.get("parameters", ()) for name in OF_REQUEST.get(each["name"], ())
    ]
    of_request += operation.takes.get("answer_headers", ())
    if HTTPStatus.NOT_MODIFIED in documented:
        of_request.append("ETag")
    for status, answer in documented.items():
        names = (*OF_ALL, *OF_STATUS.get(status, ()), *of_request)
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return documented


def _without_null(schema: Any) -> Any:
    """Return a schema without defaults that are null: what is left out has none."""
    match schema:
        case dict():
            return {
                key: _without_null(part)
                for key, part in schema.items()
                if key != "default" or part is not None
            }
        case list():
            return [_without_null(part) for part in schema]
        case _:
            return schema


def problem_schema() -> dict[str, Any]:
    """Return the schema of a problem document, in one piece."""
    schema = ProblemBody.model_json_schema()
    error = schema.pop("$defs")["ErrorBody"]
    schema["properties"]["errors"]["items"] = error
    return schema


def components() -> dict[str, Any]:
    """Return the parts of the document to which operations refer."""
    return {
        "headers": {
            name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()
        },
        "securitySchemes": {
            BEARER: {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `progressor token create`, or of the identity provider. Each "
                "operation names the scope that the token must have, in a namespace that it sees.",
            }
        },
    }
