"""The routes that only read: processes, their events and tasks, searches, namespaces.

Rule: no route here changes anything, and every list comes in pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from progressor.client.results import Receipt, TraceEntry
from progressor.errors import InvalidRequest, NamespaceNotFound, ReplyTimeout
from progressor.handlers.codec import decode
from progressor.http.server import bodies, request_headers
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.bodies import Moment
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.openapi.operations import (
    ANSWER,
    TAGGED,
    TAGGED_AFTER_INIT,
    UNCHANGED,
    WAITS,
    WAITS_FOR_INIT,
)
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import (
    Fingerprint,
    MetadataFilter,
    NamespaceName,
    ProcessId,
    TaskId,
    text_like,
)
from progressor.http.server.preconditions import tagged
from progressor.http.server.routers.requests import still_under_way
from progressor.http.wire.models import (
    AcceptedBody,
    EventsBody,
    NamespaceBody,
    PageBody,
    ProcessBody,
    TraceBody,
    plain,
    process_document,
)
from progressor.http.wire.paths import PROCESS
from progressor.inputs import LAST_ID, NAMESPACE_PATTERN, HistoryRange
from progressor.model import ProcessStatus, Snapshot
from progressor.rights import Scope
from progressor.storage import MOST_ITEMS, TraceRange

routes = Routes()

_SHORTEST_WAIT = 1

HistoryOf = Annotated[
    str | None,
    Field(
        pattern="^(none|(first|last):([1-9][0-9]{0,2}|1000))$",
        description="The events to show: none, first:N or last:N, N from 1 to 1000.",
        examples=["last:20"],
    ),
]
After = Annotated[int, Field(ge=0, le=LAST_ID, description="The id to begin behind.")]
Before = Annotated[int | None, Field(ge=1, le=LAST_ID, description="The id to end before.")]
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="The most items of a page.")]
Last = Annotated[int | None, Field(ge=0, le=MOST_ITEMS, description="The most tasks from the end.")]
ShowState = Annotated[bool, Field(description="Show the state; it needs the scope state:read.")]


@routes.add(
    "GET",
    PROCESS,
    "A process as it is now",
    scope=Scope.PROCESSES_READ,
    takes=TAGGED_AFTER_INIT,
    answers={200: ("The process.", ProcessBody), **UNCHANGED},
)
async def get(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    history: HistoryOf = None,
    state: ShowState = True,
) -> Response:
    """Return it once its init is over: wait for a running init as long as `Prefer: wait=N` says."""
    wanted = _range(history)
    if state or wanted is not None:
        require(request.caller, Scope.STATE_READ, namespace)
    snapshot = await _initialised(request, namespace, process_id)
    # The size of the state was not known before it was read.
    request.place.reserve_now(PAGE_WEIGHT * len(snapshot.aux_state or b""))
    if wanted is not None:
        snapshot = await _with_history(request, snapshot, wanted)
    process = await request.server.client.reader.view(snapshot)
    failures = request.reads_failures(namespace)
    body = process_document(process, state=state, history=wanted is not None, failures=failures)
    return tagged(request, bodies.shown(body))


async def _initialised(request: ApiRequest, namespace: str, process_id: str) -> Snapshot:
    """Return a process once its init is over; raise ReplyTimeout if it is not in the preferred time."""
    wait = request_headers.preferences_of(request.headers).wait
    reader = request.server.client.reader
    try:
        return await request.waited(
            lambda seconds: reader.process(namespace, process_id, wanted=None, seconds=seconds),
            # A shorter wait may be over before the process was read once.
            preferences=request_headers.Preferences(None if wait is None else max(wait, _SHORTEST_WAIT)),
        )
    except TimeoutError:
        if await request.is_disconnected():
            raise ClientDisconnect from None
        raise ReplyTimeout(namespace, process_id, idempotency_key=None, task_id=None) from None


@routes.add(
    "GET",
    PROCESS + "/events",
    "A range of a process's history",
    scope=Scope.STATE_READ,
    takes=WAITS_FOR_INIT,
    answers={200: ("The events.", EventsBody)},
)
async def events(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    after: After = 0,
    limit: Limit = 100,
    direction: Literal["forward", "backward"] = "forward",
) -> Response:
    """Return them oldest first, or backward, from behind the id `after`; 0: from the first, or the last."""
    wanted = HistoryRange(after, limit, direction)
    snapshot = await _initialised(request, namespace, process_id)
    snapshot = await _with_history(request, snapshot._replace(aux_state=None), wanted)
    wire = await request.server.client.reader.wire_of(namespace)
    found = snapshot.history
    if wire.is_coded:
        # What cannot be decoded is a problem of its own, which an answer that has begun cannot be.
        _ = [wire.event(each, snapshot) for each in found]
    last = snapshot.last_event_id if direction == "forward" else snapshot.first_event_id
    more = bool(found) and found[-1].event_id != last
    shown = (plain(wire.event(event, snapshot)) for event in found)
    return bodies.Listed("events", shown, {"after": found[-1].event_id if more else None})


async def _with_history(request: ApiRequest, snapshot: Snapshot, wanted: HistoryRange) -> Snapshot:
    """Return a process with as much of a range of its history as fits on a page."""
    room = request.server.options.max_page_bytes
    await request.place.reserve(PAGE_WEIGHT * room)
    found = await request.server.client.reader.with_history(snapshot, wanted, room=room)
    _keep(request, sum(len(event.payload) for event in found.history) + len(found.aux_state or b""))
    return found


def _keep(request: ApiRequest, size: int) -> None:
    """Give back the memory that a page of so many bytes does not need."""
    request.place.keep(PAGE_WEIGHT * size)


@routes.add(
    "GET",
    PROCESS + "/trace",
    "The tasks of a process, in their order",
    scope=Scope.STATE_READ,
    answers={200: ("The tasks.", TraceBody)},
)
async def trace(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    after: After = 0,
    limit: Limit = 100,
    last: Last = None,
    before: Before = None,
) -> Response:
    """Return those between `after` and `before`, with their events: the first `limit`, or the `last`."""
    if last is not None and "limit" in request.query_params:
        raise InvalidRequest("give one of limit and last", field="last")
    most = limit + 1 if last is None else None
    room, reader = request.server.options.max_page_bytes // 2, request.server.client.reader
    # As much for the tasks as for their events.
    await request.place.reserve(PAGE_WEIGHT * 2 * room)
    of = TraceRange(namespace, process_id, after, before, most, last)
    rows, has_more = await reader.trace(of, room=room)
    _keep(request, sum(row.size for row in rows))
    if last is None:
        rows, has_more = rows[:limit], has_more or len(rows) > limit
    failures, wire = request.reads_failures(namespace), await reader.wire_of(namespace)
    if wire.is_coded:
        _ = [TraceEntry.of(row, wire, of) for row in rows]
    entries = (TraceEntry.of(row, wire, of) for row in rows)
    shown = (plain(each if failures else replace(each, error=None)) for each in entries)
    members = {
        "after": rows[-1].task_id if rows and has_more and last is None else None,
        "before": rows[0].task_id if rows and has_more and last is not None else None,
    }
    return bodies.Listed("tasks", shown, members)


@routes.add(
    "GET",
    PROCESS + "/tasks/{task_id}",
    "The answer of a task",
    scope=Scope.PROCESSES_READ,
    takes=WAITS,
    answers={200: ("The answer, null for none.", ANSWER), 202: ("No answer yet.", AcceptedBody)},
    problems=(409, 422),
)
async def result(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    task_id: TaskId,
    fingerprint: Fingerprint = None,
) -> Response:
    """Answer as its request would be answered: with the answer, or its problem.

    `Prefer: wait=N` waits for it. Without the fingerprint a restored server may take another task for it.
    The answer of a dry run needs the scope `state:read` too.
    """
    server = request.server
    try:
        published = await server.publications.of(namespace)
    except NamespaceNotFound:
        if fingerprint is not None:
            # It may be lost with the task: then the look at the task raises RequestLost.
            await server.client.reader.is_dry_run(namespace, process_id, task_id, fingerprint=fingerprint)
        raise
    request.require_acceptable(bodies.answer_type(published))
    if not request.caller.may(Scope.STATE_READ, namespace) and await server.client.reader.is_dry_run(
        namespace, process_id, task_id, fingerprint=fingerprint
    ):
        # Its answer has the state.
        require(request.caller, Scope.STATE_READ, namespace)
    try:
        value = await request.waited(
            lambda seconds: server.client.result(
                namespace, process_id, task_id, fingerprint=fingerprint, timeout=seconds
            ),
            default=0.0,
        )
    except (ReplyTimeout, TimeoutError) as error:
        key: Any = getattr(error, "idempotency_key", None)
        task = Receipt(namespace, process_id, task_id, key, replayed=False, fingerprint=fingerprint)
        return still_under_way(request, task, published, error)
    return bodies.answer(value)


@routes.add(
    "GET",
    "/v1/processes",
    "Search processes by namespace, status, metadata, timer and creation",
    scope=Scope.PROCESSES_READ,
    answers={200: ("A page of processes.", PageBody)},
    problems=(404,),
)
async def search(
    request: ApiRequest,
    namespace: Annotated[str | None, text_like(NAMESPACE_PATTERN)] = None,
    status: ProcessStatus | None = None,
    metadata: MetadataFilter = None,
    timer: Annotated[
        str | None,
        text_like(
            r"^[^~\u0000][^\u0000]*$",
            "`none`, `overdue`, `held`, or a timer's name, `default` for the one without.",
        ),
    ] = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    state: Annotated[bool, Field(description="Show states; it needs the scope state:read.")] = False,
    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 100,
    cursor: Annotated[str | None, Field(description="The cursor that the page before returned.")] = None,
) -> Response:
    """Return them by namespace, then creation, a page at a time, and with states if `state` is true."""
    caller, reader = request.caller, request.server.client.reader
    if namespace is not None:
        require(caller, Scope.PROCESSES_READ, namespace)
    if state:
        require(caller, Scope.STATE_READ, namespace)
    room = request.server.options.max_page_bytes
    await request.place.reserve(PAGE_WEIGHT * room)
    snapshots, following = await reader.search(
        namespace=namespace,
        namespaces=seen_by(caller),
        status=status,
        metadata=decode(None if metadata is None else metadata.encode(), field="metadata"),
        timer=timer,
        created_after=created_after,
        created_before=created_before,
        limit=limit,
        cursor=cursor,
        states=state,
        room=room,
    )
    _keep(request, sum(len(each.aux_state or b"") for each in snapshots))
    for each in snapshots:
        wire = await reader.wire_of(each.namespace)
        if wire.is_coded and each.aux_state is not None:
            # As for events: before the answer begins.
            wire.unseal(each.aux_state, "state", each)
    shown = (
        process_document(
            process, state=state, history=False, failures=request.reads_failures(process.namespace)
        )
        for process in [await reader.view(each) for each in snapshots]
    )
    return bodies.Listed("processes", shown, {"cursor": following})


@routes.add(
    "GET",
    "/v1/namespaces/{namespace}",
    "Options and JSON schemas that the workers of a namespace published",
    scope=Scope.PROCESSES_READ,
    takes=TAGGED,
    answers={200: ("The namespace.", NamespaceBody), **UNCHANGED},
)
async def namespace(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Return its options, and the JSON schemas of its state and of what its handlers take and return."""
    return tagged(request, bodies.shown(plain(await request.server.client.published(namespace))))


def _range(text: str | None) -> HistoryRange | None:
    """Return the range of a checked text: none, first:N or last:N."""
    end, _, limit = (text or "none").partition(":")
    if end == "none":
        return None
    return HistoryRange(limit=int(limit), direction="forward" if end == "first" else "backward")
