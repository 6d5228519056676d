"""The API as OpenAPI documents: of all processes, and of one namespace with the types that it publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from progressor.http.server import bodies
from progressor.http.server.auth.scopes import Caller, public, require_scope
from progressor.http.server.bodies import ProblemBody
from progressor.http.server.openapi.namespace import document_of
from progressor.http.server.openapi.operations import (
    ANY_TIME,
    OBJECT,
    OF_TAGGED,
    TAGGED,
    answers,
    components,
)
from progressor.http.server.preconditions import tagged
from progressor.http.server.routing import NamespaceName, TheServer, router
from progressor.http.wire import headers

routes = router()


@routes.get("/openapi.json", include_in_schema=False, dependencies=[public])
async def openapi(request: Request) -> Response:
    """Return the document of this API."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        app.openapi_schema = document(app)
    return tagged(request, bodies.shown(app.openapi_schema))


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application."""
    described = get_openapi(
        title=app.title,
        version=app.version,
        routes=app.routes,
        description="Processes: started, called, repaired, read and removed.",
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        # Relative to the address that the document comes from.
        servers=[{"url": "/"}],
    )
    described["components"] |= components()
    schemas = described["components"]["schemas"]
    schemas[ProblemBody.__name__] = problem_schema()
    _drop_null(described["paths"])
    # FastAPI documents its own answers to wrong parameters: here those are problems.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in described["paths"].values():
        for operation in path.values():
            unmade = operation["responses"].get("422", {}).get("content", {}).get(headers.JSON, {})
            if "HTTPValidationError" in str(unmade):
                del operation["responses"]["422"]
    return described


def _drop_null(paths: Mapping[str, Any]) -> None:
    """Drop null from parameters, which are optional by being left out."""
    for operation in (each for path in paths.values() for each in path.values()):
        for parameter in operation.get("parameters", ()):
            schema = parameter["schema"]
            kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
            if len(kinds) == 1:
                del schema["anyOf"]
                schema |= kinds[0]


def problem_schema() -> dict[str, Any]:
    """Return the schema of a problem document, in one piece."""
    schema = ProblemBody.model_json_schema()
    error = schema.pop("$defs")["ErrorBody"]
    schema["properties"]["errors"]["items"] = error
    return schema


@routes.get(
    "/v1/namespaces/{namespace}/openapi.json",
    operation_id="namespace_openapi",
    summary="This namespace's processes as an API of their own",
    response_model=None,
    openapi_extra=TAGGED,
    responses=answers(
        {200: ("An OpenAPI 3.1 document.", OBJECT), 304: ("It is as If-None-Match says.", None)},
        (*ANY_TIME, 404),
        said=OF_TAGGED,
    ),
)
async def openapi_of_namespace(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    caller: Annotated[Caller, require_scope("processes:read")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Return a document typed by what its handlers take and return, for generators of clients."""
    bodies.require_acceptable(request, headers.JSON)
    published = await server.client.published(namespace)
    app: FastAPI = request.app
    whole = app.openapi_schema or document(app)
    return tagged(request, bodies.shown(document_of(published, whole)))
