"""Bulks: repairs of all broken processes that match, made, looked at and stopped.

Rule: a bulk belongs to one namespace. A caller without the scope there does not learn that the bulk exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from progressor.bulks import Bulk, BulkPreview, BulkStatus
from progressor.client.bulk_repairs import LEAST_RATE, LONGEST_PATTERN, MOST_RATE
from progressor.errors import BulkNotFound
from progressor.http.server import bodies, request_body, request_headers
from progressor.http.server.auth.scopes import Caller, require, require_scope, seen_by
from progressor.http.server.openapi.operations import ANY_TIME, KEYED, WITH_BODY, answers, takes
from progressor.http.server.routing import TheServer, router
from progressor.http.wire import headers
from progressor.inputs import NAMESPACE_PATTERN
from progressor.model import LAST_ID, MAX_ID_LENGTH, TaskType

routes = router()

_BULK = "/v1/bulk/{bulk_id}"
_SHOWN = 100
BulkId = Annotated[int, Path(ge=1, le=LAST_ID, description="The bulk's number.")]


class NewBulkBody(BaseModel, extra="forbid"):
    """A bulk to make: repair all processes of a namespace that are broken now and match."""

    namespace: str = Field(min_length=1, max_length=MAX_ID_LENGTH, pattern=NAMESPACE_PATTERN)
    detail_like: str | None = Field(default=None, min_length=1, max_length=LONGEST_PATTERN)
    handler: str | None = Field(default=None, min_length=1, max_length=MAX_ID_LENGTH)
    simple: bool = False
    args: Any = None
    args_base64: bodies.Bytes
    rate: float = Field(default=50.0, ge=LEAST_RATE, le=MOST_RATE)
    dry_run: bool = False


class BulkBody(BaseModel):
    """A bulk: how many processes it looked at, the repairs that it began, and how these ended."""

    bulk_id: int
    namespace: str
    status: BulkStatus
    created_at: AwareDatetime
    ended_at: AwareDatetime | None
    rate: float
    simple: bool
    detail_like: str | None
    handler: str | None
    looked_at: int
    passed_by: int
    begun: int
    under_way: int
    repaired: int
    refused: int
    failed: int
    removed: int
    last_error: str | None
    left: int | None
    has_more: bool


class BulksBody(BaseModel):
    """The newest bulks, without what is left of them."""

    bulks: list[BulkBody]


class GroupBody(BaseModel):
    """Broken processes of one handler and one message.

    Without `errors:read` they are those of one handler, with an empty message; without `processes:read`
    there are no examples.
    """

    handler: str | None
    detail: str
    processes: int
    first_broken: AwareDatetime
    last_broken: AwareDatetime
    examples: list[str]


class PreviewBody(BaseModel):
    """A preview of a bulk: it would repair `processes`, out of `looked_at`; more if `has_more`."""

    processes: int
    looked_at: int
    has_more: bool
    groups: list[GroupBody]


@routes.post(
    "/v1/bulk",
    operation_id="repair_all",
    summary="Repair all broken processes that match",
    status_code=202,
    response_model=None,
    openapi_extra={**takes(NewBulkBody), **KEYED},
    responses=answers(
        {
            202: ("It is stored, and carried out in the background. Location is its address.", BulkBody),
            200: ("What it would repair, of a dry run.", PreviewBody),
        },
        (*ANY_TIME, *WITH_BODY, 404),
    ),
)
async def repair_all(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("bulk")],
) -> Response:
    """Make a bulk, which repairs in the background, `rate` processes a second.

    A key that was used before for the same bulk returns that bulk. With `dry_run`, return a preview.
    """
    bodies.require_acceptable(request, headers.JSON)
    body = await request_body.read_body(request, server.options)
    given = request_body.model_in(request, body, NewBulkBody)
    require(caller, "bulk", given.namespace)
    if given.detail_like is not None:
        # A pattern that matches reveals, letter by letter, the texts of failures.
        require(caller, "errors:read", given.namespace)
    published = await server.publications.of(given.namespace)
    wanted = {"detail_like": given.detail_like, "handler": given.handler}
    if given.dry_run:
        found = await server.client.preview_repair_all(given.namespace, **wanted)
        return bodies.shown(_preview(caller, given.namespace, found).model_dump(mode="json"))
    args = bodies.given_value(given, "args", raw=published.is_raw, field="args.")
    if not given.simple:
        await server.publications.check(given.namespace, TaskType.REPAIR, None, args)
    made = await server.client.repair_all(
        given.namespace,
        args,
        **wanted,
        simple=given.simple,
        rate=given.rate,
        idempotency_key=request_headers.idempotency_key_of(request.headers),
    )
    return _shown(caller, made, 202, {"Location": f"/v1/bulk/{made.bulk_id}"})


@routes.get(
    "/v1/bulk",
    operation_id="bulks",
    summary="The newest bulks",
    response_model=None,
    responses=answers({200: ("The bulks.", BulksBody)}, ANY_TIME),
)
async def bulks(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("bulk")],
    limit: Annotated[int, Query(ge=1, le=1000, description="The most bulks of the answer.")] = _SHOWN,
) -> Response:
    """Return the newest bulks of the namespaces that the caller sees."""
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.bulks(limit=limit, namespaces=seen_by(caller))
    seen = [_body(caller, each) for each in found]
    return bodies.shown(BulksBody(bulks=seen).model_dump(mode="json"))


@routes.get(
    _BULK,
    operation_id="bulk",
    summary="A bulk and its progress",
    response_model=None,
    responses=answers({200: ("The bulk, with what is left.", BulkBody)}, (*ANY_TIME, 404)),
)
async def bulk(
    request: Request,
    server: TheServer,
    bulk_id: BulkId,
    caller: Annotated[Caller, require_scope("bulk")],
) -> Response:
    """Return how many processes it has repaired, how many were refused or failed, and how many are left."""
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.bulk(bulk_id)
    _require_seen(caller, found)
    return _shown(caller, found, 200)


@routes.post(
    _BULK + "/stop",
    operation_id="stop_bulk",
    summary="Stop a bulk",
    response_model=None,
    responses=answers({200: ("It begins no more repairs.", BulkBody)}, (*ANY_TIME, 404)),
)
async def stop_bulk(
    request: Request,
    server: TheServer,
    bulk_id: BulkId,
    caller: Annotated[Caller, require_scope("bulk")],
) -> Response:
    """Begin no more repairs: those under way go on, and repaired processes stay so.

    A bulk that was stopped before stays stopped.
    """
    bodies.require_acceptable(request, headers.JSON)
    _require_seen(caller, await server.client.bulk(bulk_id))
    return _shown(caller, await server.client.stop_bulk(bulk_id), 200)


def _require_seen(caller: Caller, found: Bulk) -> None:
    if not caller.may("bulk", found.namespace):
        raise BulkNotFound(found.bulk_id)


def _body(caller: Caller, found: Bulk) -> BulkBody:
    body = BulkBody.model_validate(found, from_attributes=True)
    if not caller.may("errors:read", found.namespace):
        # A filter may quote the text of a failure, too.
        body.last_error = body.detail_like = None
    return body


def _preview(caller: Caller, namespace: str, found: BulkPreview) -> PreviewBody:
    preview = PreviewBody.model_validate(found, from_attributes=True)
    if not caller.may("errors:read", namespace):
        preview.groups = _without_messages(preview.groups)
    if not caller.may("processes:read", namespace):
        for group in preview.groups:
            group.examples = []
    return preview


def _without_messages(groups: Iterable[GroupBody]) -> list[GroupBody]:
    """Return one group for each handler: even the number of messages is for callers who may read them."""
    merged: dict[str | None, GroupBody] = {}
    for group in groups:
        known = merged.get(group.handler)
        if known is None:
            merged[group.handler] = group.model_copy(update={"detail": ""})
            continue
        known.processes += group.processes
        known.first_broken = min(known.first_broken, group.first_broken)
        known.last_broken = max(known.last_broken, group.last_broken)
    return sorted(merged.values(), key=lambda group: -group.processes)


def _shown(caller: Caller, found: Bulk, status: int, said: dict[str, str] | None = None) -> Response:
    return bodies.shown(_body(caller, found).model_dump(mode="json"), status, said or {})
