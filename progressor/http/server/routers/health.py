"""The routes of health and metrics.

Rule: only a caller with the scope admin gets the health of the database and the metrics. Probes, which show
no token, never query the database.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.responses import Response

from progressor import metrics as registry
from progressor.client.results import Health
from progressor.client.system import health_within
from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest, RouteContext
from progressor.http.server.openapi.operations import OBJECT, TEXT
from progressor.http.server.operation import Routes
from progressor.rights import Scope

routes = Routes()

# Seconds that the database may take to answer.
_SECONDS = 2.0


@routes.add("GET", "/health/live", "", scope=None)
async def live(request: ApiRequest) -> Response:  # noqa: ARG001 - as every endpoint has it
    """Answer while the event loop runs: a restart could mend nothing else."""
    return bodies.shown({"ok": True})


@routes.add("GET", "/health/ready", "", scope=None)
async def ready(request: ApiRequest) -> Response:
    """Answer 503 while the server stops. Without the database it is ready: requests wait for that."""
    ok = not request.server.waits.is_draining
    return bodies.shown({"ok": ok}, 200 if ok else 503)


@routes.add(
    "GET",
    "/health",
    "The health of the API and of its database",
    scope=Scope.ADMIN,
    answers={200: ("It can work.", OBJECT), 503: ("It cannot.", OBJECT)},
    never=(406,),
)
async def health(request: ApiRequest) -> Response:
    """Return whether the database answers, with the right schema, and who serves what."""
    found = await health_of(request.server)
    seen = {
        field: [each for each in getattr(found, field) if request.caller.may(Scope.ADMIN, each)]
        for field in ("namespaces", "paused")
    }
    return bodies.shown({**asdict(found), **seen}, 200 if found.ok else 503)


async def health_of(server: RouteContext) -> Health:
    """Return the health of the API and its database at this moment; raise no error."""
    if server.waits.is_draining:
        return Health(False, "stopping", 0, ())
    return await health_within(server.client.health, _SECONDS)


@routes.add(
    "GET",
    "/metrics",
    "Metrics of this OS process, for Prometheus",
    scope=Scope.ADMIN,
    answers={200: ("As text.", TEXT)},
)
async def metrics(request: ApiRequest) -> Response:
    """Return metrics in the format that the Accept header names, of the namespaces that the caller sees."""
    shown = registry.families_of(lambda namespace: request.caller.may(Scope.ADMIN, namespace))
    text, content_type = registry.exposition(request.headers.get("Accept", ""), shown)
    return Response(text, media_type=content_type)
