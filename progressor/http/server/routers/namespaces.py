"""The operator's routes: namespaces are paused, resumed and retired; their status, failures and workers.

Rule: they concern all processes of a namespace, or of the database, so their scopes are not those of calls.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.http.server import bodies
from progressor.http.server.auth.scopes import Caller, require, require_scope
from progressor.http.server.openapi.operations import ANY_TIME, WITHOUT_NUL, answers, text_schema
from progressor.http.server.routing import NamespaceName, ProcessId, TheServer, router
from progressor.http.wire import headers
from progressor.inputs import NAMESPACE_PATTERN

routes = router()

_IN_SECONDS = ConfigDict(ser_json_timedelta="float")
_MOMENT, _DURATION = TypeAdapter(AwareDatetime), TypeAdapter(timedelta)

Only = Annotated[
    str | None,
    Query(description="Only this namespace.", json_schema_extra=text_schema(NAMESPACE_PATTERN)),
]


class KnownNamespaceBody(BaseModel):
    """A namespace that some worker served, and who serves it now."""

    name: str
    paused: bool
    workers: int
    slots: int | None
    free_slots: int
    steps: int
    updated_at: AwareDatetime
    pause_reason: str | None


class NamespacesBody(BaseModel):
    """All namespaces, by name."""

    namespaces: list[KnownNamespaceBody]


class KnownWorkerBody(BaseModel):
    """An OS process that has a heartbeat; one that serves nothing is a zombie collector.

    `silent_for` and `lease_age` are seconds.
    """

    model_config = _IN_SECONDS

    worker_id: str
    host: str
    namespaces: list[str]
    free_slots: dict[str, int]
    started_at: AwareDatetime
    seen_at: AwareDatetime
    silent_for: timedelta
    lease_age: timedelta
    is_live: bool


class WorkersBody(BaseModel):
    """All workers and zombie collectors, by host."""

    workers: list[KnownWorkerBody]


class WaitingBody(BaseModel):
    """Tasks that could run now and wait, counted up to 1,001; `age` is the oldest's wait in seconds."""

    model_config = _IN_SECONDS

    tasks: int
    age: timedelta


class MailboxBody(BaseModel):
    """The requests that wait on a process; `at_least`: there are more. `age` and `through_in` are seconds.

    `age` is how long the oldest has waited, `through_in` how long they will take at the present pace, null
    if that is unknown.
    """

    model_config = _IN_SECONDS

    process_id: str
    requests: int
    at_least: bool
    age: timedelta
    through_in: timedelta | None


class WaitingRequestsBody(BaseModel):
    """All requests that wait in a namespace, those behind others too, and the deepest mailboxes."""

    model_config = _IN_SECONDS

    requests: int
    at_least: bool
    age: timedelta
    deepest: list[MailboxBody]


class NamespaceStatusBody(BaseModel):
    """The status of a namespace. Counts stop at 1,001, which stands for more than 1,000.

    Requests that wait are counted further. `through_in` is how many seconds they will take at the pace of
    the last minute, null if that is unknown.
    """

    model_config = _IN_SECONDS

    name: str
    paused: bool
    workers: int
    slots: int | None
    free_slots: int
    running: int
    waiting: WaitingRequestsBody
    through_in: timedelta | None
    calls: WaitingBody
    timers: WaitingBody
    broken: int
    started: int
    steps: int
    next_timers: list[AwareDatetime]
    pause_reason: str | None


class StatusBody(BaseModel):
    """The namespaces, by name."""

    namespaces: list[NamespaceStatusBody]


class FailureGroupBody(BaseModel):
    """Failures of one handler with one message; `process_id` is that of the last."""

    namespace: str
    status: str
    handler: str
    message: str
    count: int
    at_least: bool
    first_seen: AwareDatetime
    last_seen: AwareDatetime
    process_id: str


class FailuresBody(BaseModel):
    """The groups, the largest first."""

    groups: list[FailureGroupBody]


@routes.get(
    "/v1/namespaces",
    operation_id="namespaces",
    summary="Every namespace that was ever served and is not retired",
    response_model=None,
    responses=answers({200: ("The namespaces.", NamespacesBody)}, ANY_TIME),
)
async def namespaces(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("processes:read")],
) -> Response:
    """Return them by name, each with its live workers and their slots."""
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.namespaces()
    shown = [
        KnownNamespaceBody.model_validate(each, from_attributes=True)
        for each in found
        if caller.may("processes:read", each.name)
    ]
    return bodies.shown(NamespacesBody(namespaces=shown).model_dump(mode="json"))


@routes.get(
    "/v1/workers",
    operation_id="workers",
    summary="OS processes with a heartbeat: workers and collectors",
    response_model=None,
    responses=answers({200: ("The workers.", WorkersBody)}, ANY_TIME),
)
async def workers(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("admin")],
) -> Response:
    """Return them by host; also silent ones, until a zombie collector has dealt with what they left.

    A worker is shown with the namespaces that the caller sees, and not at all if it serves others alone.
    """
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.workers()
    shown = [
        _seen_by(caller, KnownWorkerBody.model_validate(each, from_attributes=True))
        for each in found
        # A zombie collector serves no namespace.
        if not each.namespaces or any(caller.may("admin", name) for name in each.namespaces)
    ]
    return bodies.shown(WorkersBody(workers=shown).model_dump(mode="json"))


@routes.post(
    "/v1/namespaces/{namespace}/pause",
    operation_id="pause",
    summary="Begin no more steps of a namespace",
    status_code=204,
    response_model=None,
    responses=answers({204: ("It is paused.", None)}, (*ANY_TIME, 404)),
)
async def pause(
    server: TheServer,
    namespace: NamespaceName,
    caller: Annotated[Caller, require_scope("admin")],  # noqa: ARG001 - that it is admitted is enough
    reason: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=256,
            description="The reason, for the operator who finds it paused.",
            json_schema_extra={"pattern": WITHOUT_NUL},
        ),
    ] = None,
) -> Response:
    """Let running steps finish, and begin no more. Requests are accepted and wait, and so do timers.

    A namespace that is paused already stays paused.
    """
    await server.client.pause(namespace, reason)
    return Response(status_code=204)


@routes.post(
    "/v1/namespaces/{namespace}/resume",
    operation_id="resume",
    summary="Let a paused namespace go on",
    status_code=204,
    response_model=None,
    responses=answers({204: ("It goes on.", None)}, (*ANY_TIME, 404)),
)
async def resume(
    server: TheServer,
    namespace: NamespaceName,
    caller: Annotated[Caller, require_scope("admin")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Let it go on, and wake its workers for what waits."""
    await server.client.resume(namespace)
    return Response(status_code=204)


@routes.post(
    "/v1/namespaces/{namespace}/retire",
    operation_id="retire",
    summary="Forget a namespace that nobody serves and that has no process",
    status_code=204,
    response_model=None,
    responses=answers({204: ("It is forgotten.", None)}, (*ANY_TIME, 404, 409)),
)
async def retire(
    server: TheServer,
    namespace: NamespaceName,
    caller: Annotated[Caller, require_scope("admin")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Forget it, or answer 409 with what is left. A worker that serves it again makes it known again."""
    await server.client.retire(namespace)
    return Response(status_code=204)


@routes.get(
    "/v1/status",
    operation_id="status",
    summary="Status of each namespace: waiting, running and broken work, and its workers",
    response_model=None,
    responses=answers({200: ("The namespaces.", StatusBody)}, (*ANY_TIME, 404)),
)
async def status(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("processes:read")],
    namespace: Only = None,
) -> Response:
    """Return them by name. `started` counts processes started in the last minute, `steps` its steps."""
    bodies.require_acceptable(request, headers.JSON)
    if namespace is not None:
        require(caller, "processes:read", namespace)
    found = await server.client.status(namespace)
    shown = [
        NamespaceStatusBody.model_validate(each, from_attributes=True)
        for each in found
        if caller.may("processes:read", each.name)
    ]
    return bodies.shown(StatusBody(namespaces=shown).model_dump(mode="json"))


@routes.get(
    "/v1/namespaces/{namespace}/processes/{process_id}/mailbox",
    operation_id="mailbox",
    summary="The requests that wait on a process",
    response_model=None,
    responses=answers({200: ("The mailbox.", MailboxBody)}, (*ANY_TIME, 404)),
)
async def mailbox(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:read")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Return how many wait, for how long the oldest has, and in how many seconds they will be through."""
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.mailbox(namespace, process_id)
    shown = MailboxBody.model_validate(found, from_attributes=True)
    return bodies.shown(shown.model_dump(mode="json"))


@routes.get(
    "/v1/errors",
    operation_id="errors",
    summary="Failures, grouped by namespace, handler and message",
    response_model=None,
    responses=answers({200: ("The groups.", FailuresBody)}, (*ANY_TIME, 404)),
)
async def errors(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("errors:read")],
    namespace: Only = None,
    since: Annotated[
        str | None, Query(description="Failures since this time, or of this last time: 3600, PT1H.")
    ] = None,
) -> Response:
    """Return broken processes, and timers that failed and are tried again. It needs processes:read, too."""
    bodies.require_acceptable(request, headers.JSON)
    require(caller, "errors:read", namespace)
    require(caller, "processes:read", namespace)
    found = await server.client.errors(namespace=namespace, since=_begin(since))
    shown = [
        FailureGroupBody.model_validate(each, from_attributes=True)
        for each in found
        if caller.may("errors:read", each.namespace)
    ]
    return bodies.shown(FailuresBody(groups=shown).model_dump(mode="json"))


def _begin(since: str | None) -> datetime | timedelta | None:
    """Return a time, or how long ago; raise InvalidRequest for another text."""
    if since is None:
        return None
    try:
        # A time has hyphens between numbers; no duration begins with a digit and has one.
        if since[:1].isdigit() and "-" in since:
            return _MOMENT.validate_python(since)
        return _DURATION.validate_python(float(since) if _is_number(since) else since)
    except (ValidationError, OverflowError):
        raise InvalidRequest(
            "since must be a time (2026-02-28T12:00:00Z), or a duration up to now (3600, PT1H)",
            field="since",
        ) from None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _seen_by(caller: Caller, worker: KnownWorkerBody) -> KnownWorkerBody:
    """Return a worker without the namespaces that are hidden from this caller."""
    seen = [name for name in worker.namespaces if caller.may("admin", name)]
    slots = {name: free for name, free in worker.free_slots.items() if name in seen}
    return worker.model_copy(update={"namespaces": seen, "free_slots": slots})
