"""The routes that only read: processes, their events and tasks, searches, namespaces.

Rule: no route here changes anything, and every list comes in pages.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from progressor.client.results import TraceEntry
from progressor.errors import InvalidRequest, ReplyTimeout
from progressor.handlers.codec import decode
from progressor.http.server import bodies, request_headers
from progressor.http.server.auth.scopes import Caller, require, require_scope, seen_by
from progressor.http.server.bodies import (
    AcceptedBody,
    EventsBody,
    Moment,
    NamespaceBody,
    PageBody,
    ProcessBody,
    TraceBody,
)
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.openapi.operations import (
    ANSWER,
    ANY_TIME,
    OF_TAGGED,
    OF_WAITS,
    TAGGED,
    TAGGED_AFTER_INIT,
    WAITS,
    WAITS_FOR_INIT,
    answers,
    text_schema,
)
from progressor.http.server.preconditions import tagged
from progressor.http.server.routers.requests import PendingTask, still_under_way, waited
from progressor.http.server.routing import (
    Fingerprint,
    NamespaceName,
    ProcessId,
    RouteContext,
    TaskId,
    TheServer,
    reads_failures,
    router,
)
from progressor.http.wire import headers
from progressor.inputs import NAMESPACE_PATTERN
from progressor.model import LAST_ID, HistoryRange, ProcessStatus, Snapshot
from progressor.storage import MOST_ITEMS, TimerFilter, TraceRange

routes = router()

_PROCESS = "/v1/namespaces/{namespace}/processes/{process_id}"
_SHORTEST_WAIT = 1
_RANGE = re.compile(r"(first|last):([0-9]{1,5})")

HistoryOf = Annotated[
    str | None,
    Query(
        pattern="^(none|(first|last):([1-9][0-9]{0,2}|1000))$",
        description="The events to show: none, first:N or last:N, N from 1 to 1000.",
        examples=["last:20"],
    ),
]
After = Annotated[int, Query(ge=0, le=LAST_ID, description="The id to begin behind.")]
Before = Annotated[int | None, Query(ge=1, le=LAST_ID, description="The id to end before.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="The most items of a page.")]
Last = Annotated[int | None, Query(ge=0, le=MOST_ITEMS, description="The most tasks from the end.")]
ShowState = Annotated[bool, Query(description="Show the state; it needs the scope state:read.")]


class SearchQuery(BaseModel, extra="forbid"):
    """The query of a search; an unknown parameter is refused, so that a slip does not find everything."""

    namespace: str | None = Field(None, json_schema_extra=text_schema(NAMESPACE_PATTERN))
    status: ProcessStatus | None = None
    metadata: str | None = Field(
        None,
        description="A JSON object; metadata that contain all of it match.",
        json_schema_extra={"contentMediaType": headers.JSON},
    )
    timer: TimerFilter | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    state: bool = Field(default=False, description="Show states; it needs the scope state:read.")
    limit: int = Field(default=100, ge=1, le=MOST_ITEMS)
    cursor: str | None = Field(None, description="The cursor that the page before returned.")


@routes.get(
    _PROCESS,
    operation_id="get",
    summary="A process as it is now",
    response_model=None,
    openapi_extra=TAGGED_AFTER_INIT,
    responses=answers(
        {200: ("The process.", ProcessBody), 304: ("It is as If-None-Match says.", None)},
        (*ANY_TIME, 404),
        said=(*OF_WAITS, *OF_TAGGED),
    ),
)
async def get(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:read")],
    history: HistoryOf = None,
    state: ShowState = True,
) -> Response:
    """Return it once its init is over: wait for a running init as long as `Prefer: wait=N` says."""
    bodies.require_acceptable(request, headers.JSON)
    wanted = _range(history)
    if state or wanted is not None:
        require_state(caller, namespace)
    said: dict[str, str] = {}
    snapshot = await _initialised(request, server, namespace, process_id, said)
    # The size of the state was not known before it was read.
    request.state.place.reserve_now(PAGE_WEIGHT * len(snapshot.aux_state or b""))
    if wanted is not None:
        snapshot = await _with_history(request, server, snapshot, wanted)
    process = await server.client.reader.view(snapshot)
    body = bodies.shown(
        bodies.shown_process(
            process,
            state=state,
            history=wanted is not None,
            failures=reads_failures(caller, namespace),
        ),
        headers=said,
    )
    return tagged(request, body)


async def _initialised(
    request: Request,
    server: RouteContext,
    namespace: str,
    process_id: str,
    said: dict[str, str],
) -> Snapshot:
    """Return a process once its init is over; raise ReplyTimeout if it is not in the preferred time."""
    wait = request_headers.preferences_of(request.headers).wait
    # A shorter wait may be over before the process was read once.
    preferences = request_headers.Preferences(None if wait is None else max(wait, _SHORTEST_WAIT))
    request.state.said = said
    try:
        return await waited(
            request,
            server,
            preferences,
            lambda seconds: server.client.reader.process(
                namespace, process_id, wanted=None, seconds=seconds
            ),
            said,
        )
    except TimeoutError:
        if await request.is_disconnected():
            raise ClientDisconnect from None
        raise ReplyTimeout(namespace, process_id, idempotency_key=None, task_id=None) from None


@routes.get(
    _PROCESS + "/events",
    operation_id="events",
    summary="A range of a process's history",
    response_model=None,
    openapi_extra=WAITS_FOR_INIT,
    responses=answers({200: ("The events.", EventsBody)}, (*ANY_TIME, 404), said=OF_WAITS),
)
async def events(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("state:read")],  # noqa: ARG001 - that it is admitted is enough
    after: After = 0,
    limit: Limit = 100,
    direction: Annotated[Literal["forward", "backward"], Query()] = "forward",
) -> Response:
    """Return them oldest first, or backward, from behind the id `after`; 0: from the first, or the last."""
    bodies.require_acceptable(request, headers.JSON)
    wanted = HistoryRange(after, limit, direction)
    said: dict[str, str] = {}
    snapshot = await _initialised(request, server, namespace, process_id, said)
    snapshot = await _with_history(request, server, snapshot._replace(aux_state=None), wanted)
    wire = await server.client.reader.wire_of(namespace)
    found = snapshot.history
    last = snapshot.last_event_id if direction == "forward" else 1
    more = bool(found) and found[-1].event_id != last
    shown = (bodies.shown_event(wire.event(event)) for event in found)
    return bodies.Listed("events", shown, {"after": found[-1].event_id if more else None}, said)


async def _with_history(
    request: Request, server: RouteContext, snapshot: Snapshot, wanted: HistoryRange
) -> Snapshot:
    """Return a process with as much of a range of its history as fits on a page."""
    room = server.options.max_page_bytes
    await _reserve(request, room)
    history = await server.client.reader.events(snapshot, wanted, room=room)
    _keep(request, sum(len(event.payload) for event in history) + len(snapshot.aux_state or b""))
    return snapshot._replace(history=history)


async def _reserve(request: Request, size: int) -> None:
    """Take the memory of a page of so many bytes; raise Refusal if it is not free."""
    await request.state.place.reserve(PAGE_WEIGHT * size)


def _keep(request: Request, size: int) -> None:
    """Give back the memory that a page of so many bytes does not need."""
    request.state.place.keep(PAGE_WEIGHT * size)


@routes.get(
    _PROCESS + "/trace",
    operation_id="trace",
    summary="The tasks of a process, in their order",
    response_model=None,
    responses=answers({200: ("The tasks.", TraceBody)}, (*ANY_TIME, 404)),
)
async def trace(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("state:read")],
    after: After = 0,
    limit: Limit = 100,
    last: Last = None,
    before: Before = None,
) -> Response:
    """Return those between `after` and `before`, with their events: the first `limit`, or the `last`."""
    bodies.require_acceptable(request, headers.JSON)
    if last is not None and "limit" in request.query_params:
        raise InvalidRequest("give one of limit and last", field="last")
    most = limit + 1 if last is None else None
    room = server.options.max_page_bytes // 2
    # As much for the tasks as for their events.
    await _reserve(request, 2 * room)
    of = TraceRange(namespace, process_id, after, before, most, last)
    rows, has_more = await server.client.reader.trace(of, room=room)
    _keep(request, sum(row.size for row in rows))
    if last is None:
        rows, has_more = rows[:limit], has_more or len(rows) > limit
    failures, wire = reads_failures(caller, namespace), await server.client.reader.wire_of(namespace)
    shown = (bodies.shown_task(TraceEntry.of(row, wire), failures=failures) for row in rows)
    members = {
        "after": rows[-1].task_id if rows and has_more and last is None else None,
        "before": rows[0].task_id if rows and has_more and last is not None else None,
    }
    return bodies.Listed("tasks", shown, members, {})


@routes.get(
    _PROCESS + "/tasks/{task_id}",
    operation_id="result",
    summary="The answer of a task",
    response_model=None,
    openapi_extra=WAITS,
    responses=answers(
        {200: ("The answer, null for none.", ANSWER), 202: ("No answer yet.", AcceptedBody)},
        (*ANY_TIME, 404, 409, 422),
        said=OF_WAITS,
    ),
)
async def result(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    task_id: TaskId,
    caller: Annotated[Caller, require_scope("processes:read")],  # noqa: ARG001 - that it is admitted is enough
    fingerprint: Fingerprint = None,
) -> Response:
    """Answer as its request would be answered: with the answer, or its problem.

    `Prefer: wait=N` waits for it. Without the fingerprint a restored server may take another task for it.
    """
    published = await server.publications.of(namespace)
    bodies.require_acceptable(request, bodies.answer_type(published))
    said: dict[str, str] = {}
    try:
        value = await waited(
            request,
            server,
            request_headers.preferences_of(request.headers),
            lambda seconds: server.client.result(
                namespace, process_id, task_id, fingerprint=fingerprint, timeout=seconds
            ),
            said,
            default=0.0,
        )
    except (ReplyTimeout, TimeoutError) as error:
        key = getattr(error, "idempotency_key", None)
        waiting = PendingTask(namespace, process_id, task_id, fingerprint, key, published.paused)
        return still_under_way(waiting.seen(error), said)
    return bodies.answer(value, headers=said)


@routes.get(
    "/v1/processes",
    operation_id="search",
    summary="Search processes by namespace, status, metadata, timer and creation",
    response_model=None,
    responses=answers({200: ("A page of processes.", PageBody)}, (*ANY_TIME, 404)),
)
async def search(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, require_scope("processes:read")],
    wanted: Annotated[SearchQuery, Query()],
) -> Response:
    """Return them by namespace, then creation, a page at a time, and with states if `state` is true."""
    bodies.require_acceptable(request, headers.JSON)
    if wanted.namespace is not None:
        require(caller, "processes:read", wanted.namespace)
    if wanted.state:
        require_state(caller, wanted.namespace)
    room = server.options.max_page_bytes
    await _reserve(request, room)
    snapshots, cursor = await server.client.reader.search(
        namespace=wanted.namespace,
        namespaces=seen_by(caller),
        status=wanted.status,
        metadata=decode(None if wanted.metadata is None else wanted.metadata.encode(), field="metadata"),
        timer=wanted.timer,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        limit=wanted.limit,
        cursor=wanted.cursor,
        states=wanted.state,
        room=room,
    )
    _keep(request, sum(len(each.aux_state or b"") for each in snapshots))
    shown = (
        bodies.shown_process(
            process, state=wanted.state, history=False, failures=reads_failures(caller, process.namespace)
        )
        for process in [await server.client.reader.view(each) for each in snapshots]
    )
    return bodies.Listed("processes", shown, {"cursor": cursor}, {})


@routes.get(
    "/v1/namespaces/{namespace}",
    operation_id="namespace",
    summary="Options and JSON schemas that the workers of a namespace published",
    response_model=None,
    openapi_extra=TAGGED,
    responses=answers(
        {200: ("The namespace.", NamespaceBody), 304: ("It is as If-None-Match says.", None)},
        (*ANY_TIME, 404),
        said=OF_TAGGED,
    ),
)
async def namespace_(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    caller: Annotated[Caller, require_scope("processes:read")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Return its options, and the JSON schemas of its state and of what its handlers take and return."""
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.published(namespace)
    body = {
        "name": found.name,
        "paused": found.paused,
        "options": found.options,
        "schemas": found.schemas,
    }
    return tagged(request, bodies.shown(body))


def require_state(caller: Caller, namespace: str | None) -> None:
    """Raise Refusal unless this caller may read states and histories."""
    require(caller, "state:read", namespace)


def _range(text: str | None) -> HistoryRange | None:
    if text is None or text == "none":
        return None
    found = _RANGE.fullmatch(text)
    limit = int(found[2]) if found else 0
    if found is None or not 1 <= limit <= MOST_ITEMS:
        raise InvalidRequest(
            f"history must be none, first:N or last:N, N from 1 to {MOST_ITEMS}", field="history"
        )
    return HistoryRange(limit=limit, direction="forward" if found[1] == "first" else "backward")
