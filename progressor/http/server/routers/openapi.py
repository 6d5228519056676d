"""The API as OpenAPI documents: of all processes, and of one namespace with the types that it publishes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.openapi.document import document
from progressor.http.server.openapi.namespace import document_of
from progressor.http.server.openapi.operations import OBJECT, TAGGED, UNCHANGED
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName
from progressor.http.server.preconditions import tagged
from progressor.http.wire import headers
from progressor.rights import Scope

routes = Routes()


@routes.add("GET", "/openapi.json", "", scope=None)
async def openapi(request: ApiRequest) -> Response:
    """Return the document of this API."""
    return tagged(request, bodies.shown(_whole(request)))


def _whole(request: ApiRequest) -> dict[str, Any]:
    """Return the document of this API, made once."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = document(request.app.routes)
    whole: dict[str, Any] = state.document
    return whole


@routes.add(
    "GET",
    "/v1/namespaces/{namespace}/openapi.json",
    "This namespace's processes as an API of their own",
    scope=Scope.PROCESSES_READ,
    takes=TAGGED,
    answers={200: ("An OpenAPI 3.1 document.", OBJECT), **UNCHANGED},
)
async def namespace_openapi(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Return a document typed by what its handlers take and return, for generators of clients."""
    request.require_acceptable(headers.JSON)
    published = await request.server.client.published(namespace)
    return tagged(request, bodies.shown(document_of(published, _whole(request))))
