"""Bulks: repairs of all broken processes that match, made, looked at and stopped.

Rule: a bulk belongs to one namespace. A caller without the scope there does not learn that the bulk exists.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from progressor.bulks import Bulk
from progressor.client.bulk_repairs import LEAST_RATE, MOST_RATE, check_bulk_args
from progressor.errors import BulkNotFound
from progressor.http.server import bodies, request_body, request_headers
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.auth.visible import bulk_for, preview_for
from progressor.http.server.openapi.operations import KEYED, takes
from progressor.http.server.operation import Routes
from progressor.http.wire.models import BulkBody, BulksBody, Bytes, PreviewBody, plain
from progressor.inputs import LAST_ID, LONGEST_PATTERN, MAX_ID_LENGTH, NAMESPACE_PATTERN
from progressor.model import TaskType
from progressor.rights import Scope

routes = Routes()

_BULK = "/v1/bulk/{bulk_id}"
_SHOWN = 100
BulkId = Annotated[int, Field(ge=1, le=LAST_ID, description="The bulk's number.")]


class NewBulkBody(BaseModel, extra="forbid"):
    """A bulk to make: repair all processes of a namespace that are broken now and match."""

    namespace: str = Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=NAMESPACE_PATTERN)
    detail_like: str | None = Field(default=None, min_length=1, max_length=LONGEST_PATTERN)
    handler: str | None = Field(default=None, min_length=1, max_length=MAX_ID_LENGTH)
    simple: bool = False
    redo: bool = False
    args: Any = None
    args_base64: Bytes
    rate: float = Field(default=50.0, ge=LEAST_RATE, le=MOST_RATE)
    dry_run: bool = False


@routes.add(
    "POST",
    "/v1/bulk",
    "Repair all broken processes that match",
    scope=Scope.BULK,
    takes={**takes(NewBulkBody), **KEYED},
    answers={
        202: ("It is stored, and carried out in the background. Location is its address.", BulkBody),
        200: ("What it would repair, of a dry run.", PreviewBody),
    },
    problems=(404,),
)
async def repair_all(request: ApiRequest) -> Response:
    """Make a bulk, which repairs in the background, `rate` processes a second.

    A key that was used before for the same bulk returns that bulk. With `dry_run`, return a preview.
    """
    server = request.server
    body = await request_body.read_body(request)
    given = request_body.model_in(request, body, NewBulkBody)
    require(request.caller, Scope.BULK, given.namespace)
    if given.detail_like is not None:
        # A pattern that matches reveals, letter by letter, the texts of failures.
        require(request.caller, Scope.ERRORS_READ, given.namespace)
    if given.redo:
        require(request.caller, Scope.PROCESSES_CALL, given.namespace)
    published = await server.publications.of(given.namespace)
    wanted = {"detail_like": given.detail_like, "handler": given.handler}
    args = bodies.given_value(given, "args", raw=published.is_raw, field="args.")
    check_bulk_args(args, simple=given.simple)
    if not given.simple:
        await server.publications.check(given.namespace, TaskType.REPAIR, None, args)
    if given.dry_run:
        found = await server.client.preview_repair_all(given.namespace, **wanted)
        return bodies.shown(plain(preview_for(request.caller, given.namespace, found)))
    made = await server.client.repair_all(
        given.namespace,
        args,
        **wanted,
        simple=given.simple,
        redo=given.redo,
        rate=given.rate,
        idempotency_key=request_headers.idempotency_key_of(request.headers),
    )
    request.answer_headers["Location"] = f"/v1/bulk/{made.bulk_id}"
    return bodies.shown(plain(bulk_for(request.caller, made)), 202)


@routes.add(
    "GET", "/v1/bulk", "The newest bulks", scope=Scope.BULK, answers={200: ("The bulks.", BulksBody)}
)
async def bulks(
    request: ApiRequest,
    limit: Annotated[int, Field(ge=1, le=1000, description="The most bulks of the answer.")] = _SHOWN,
) -> Response:
    """Return the newest bulks of the namespaces that the caller sees."""
    found = await request.server.client.bulks(limit=limit, namespaces=seen_by(request.caller))
    return bodies.shown({"bulks": [plain(bulk_for(request.caller, each)) for each in found]})


@routes.add(
    "GET",
    _BULK,
    "A bulk and its progress",
    scope=Scope.BULK,
    answers={200: ("The bulk, with what is left.", BulkBody)},
)
async def bulk(request: ApiRequest, bulk_id: BulkId) -> Response:
    """Return how many processes it has repaired, how many were refused or failed, and how many are left."""
    return bodies.shown(plain(bulk_for(request.caller, await seen_bulk(request, bulk_id))))


@routes.add(
    "POST",
    _BULK + "/stop",
    "Stop a bulk",
    scope=Scope.BULK,
    answers={200: ("It begins no more repairs.", BulkBody)},
)
async def stop_bulk(request: ApiRequest, bulk_id: BulkId) -> Response:
    """Begin no more repairs: those under way go on, and repaired processes stay so.

    A bulk that was stopped before stays stopped.
    """
    await seen_bulk(request, bulk_id)
    return bodies.shown(plain(bulk_for(request.caller, await request.server.client.stop_bulk(bulk_id))))


async def seen_bulk(request: ApiRequest, bulk_id: int) -> Bulk:
    """Return a bulk; raise BulkNotFound, too, if the caller may not see it."""
    found = await request.server.client.bulk(bulk_id)
    if not request.caller.may(Scope.BULK, found.namespace):
        raise BulkNotFound(bulk_id)
    return found
