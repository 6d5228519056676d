"""One process: why it broke, what it did, its state, its history, its timers; and forms that change it.

Rule: a range is read by its place, never counted, and a long value is a page of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from progressor.client.results import Published, TraceEntry
from progressor.errors import ArchiveDamaged, ArchiveUnavailable, InvalidRequest
from progressor.handlers.dry_run import DryRun
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.wire.models import process_document
from progressor.inputs import RESERVED, HistoryRange
from progressor.model import Snapshot
from progressor.rights import Scope
from progressor.storage import TaskRow, TraceRange
from progressor.supervision import in_thread
from progressor.texts import pretty
from progressor.web.forms import ArgsForm, repair_form
from progressor.web.page import PageRequest, Pages, number_of
from progressor.web.problem import PageProblem
from progressor.web.rendering import difference

pages = Pages()

PATH = "/processes/{namespace}/{process_id}"
_PAGE = 50
_MOST_MESSAGES = 20
# Bytes of the tasks or events of a page: more is on the next one.
_ROOM = 1 << 20
_VIEWS = ("timeline", "history", "raw")


@pages.get(PATH, scope=Scope.PROCESSES_READ)
async def process(request: PageRequest, namespace: str, process_id: str) -> Response:
    """Return its standing with its state, and its newest tasks or events."""
    return await process_page(request, namespace, process_id)


async def process_page(
    request: PageRequest,
    namespace: str,
    process_id: str,
    problem: PageProblem | None = None,
    dry_run: DryRun | None = None,
) -> Response:
    """Return the page of a process.

    With a problem, it shows that, and the form that was refused again; with a dry run, what that found.
    """
    view = request.query_params.get("view", "timeline")
    if view not in _VIEWS:
        raise InvalidRequest("view must be timeline, history or raw", field="view")
    reader, client = request.server.client.reader, request.server.client
    await request.place.reserve(PAGE_WEIGHT * 2 * _ROOM)
    snapshot = await reader.standing(namespace, process_id)
    published = await client.published(namespace)
    reads_state = request.may(Scope.STATE_READ, namespace)
    failures = request.reads_failures(namespace)
    found = await reader.view(snapshot)
    document = process_document(found, state=False, history=False, failures=failures)
    more: dict[str, Any] = {"entries": None, "events": None, "following": None, "archive_failure": None}
    if reads_state and view == "timeline":
        more |= await _timeline(request, snapshot)
    elif reads_state and view == "history":
        more |= await _history(request, snapshot)
    of_culprit = snapshot.corrupted_by if reads_state else None
    state = await _state(request, snapshot) if reads_state else None
    return request.page(
        "process.html",
        f"{namespace}/{process_id}",
        problem=problem,
        process=found,
        snapshot=snapshot,
        detail=document["detail"],
        culprit=None if of_culprit is None else await _task(request, snapshot, of_culprit),
        state=state,
        dry_run=dry_run,
        change=None
        if dry_run is None
        else await in_thread("page", partial(difference, state or "", pretty(dry_run.state))),
        mailbox=await client.mailbox(namespace, process_id),
        **_forms(published),
        is_paused=published.paused,
        view=view,
        views=_VIEWS,
        reserved=RESERVED,
        undelivered=await reader.undelivered(snapshot, limit=_MOST_MESSAGES),
        **more,
    )


def _forms(published: Published) -> dict[str, Any]:
    """Return the forms of its calls by name and of its repair handler, and whether they are raw."""
    calls = published.schemas.get("calls") or {}
    return {
        "calls": {name: ArgsForm.of(schemas.get("args")) for name, schemas in calls.items()},
        "repair": repair_form(published),
        "is_raw": published.is_raw,
        "has_repair": published.has_repair,
        "has_dry_runs": bool(published.schemas.get("dry_run")),
    }


@pages.get(PATH + "/value", scope=Scope.STATE_READ)
async def value(request: PageRequest, namespace: str, process_id: str) -> Response:
    """Return a state whole, as text."""
    snapshot = await request.server.client.reader.standing(namespace, process_id)
    return Response(await _state(request, snapshot), media_type="text/plain; charset=utf-8")


async def _timeline(request: PageRequest, snapshot: Snapshot) -> dict[str, Any]:
    """Return the newest tasks before a place, the newest first."""
    reader, before = request.server.client.reader, _place(request)
    of = TraceRange(snapshot.namespace, snapshot.process_id, 0, before, None, _PAGE)
    rows, has_more = await reader.trace(of, room=_ROOM)
    entries = await _entries(request, snapshot, rows)
    return {"entries": entries[::-1], "following": rows[0].task_id if rows and has_more else None}


async def _task(request: PageRequest, snapshot: Snapshot, task_id: int) -> TraceEntry | None:
    """Return one task; None if it is deleted."""
    of = TraceRange(snapshot.namespace, snapshot.process_id, task_id - 1, task_id + 1, None, 1)
    rows, _ = await request.server.client.reader.trace(of, room=_ROOM)
    return next(iter(await _entries(request, snapshot, rows)), None)


async def _entries(request: PageRequest, snapshot: Snapshot, rows: Sequence[TaskRow]) -> list[TraceEntry]:
    """Return tasks as a page shows them: without the texts of failures for who may not read them."""
    wire = await request.server.client.reader.wire_of(snapshot.namespace)
    failures = request.reads_failures(snapshot.namespace)
    entries = [TraceEntry.of(row, wire, snapshot) for row in rows]
    return [each if failures else replace(each, error=None) for each in entries]


async def _history(request: PageRequest, snapshot: Snapshot) -> dict[str, Any]:
    """Return the newest events before a place, the newest first; of those left if the archive fails."""
    reader, before = request.server.client.reader, _place(request)
    wanted = HistoryRange(before or 0, _PAGE, "backward")
    failure = None
    try:
        found = await reader.with_history(snapshot, wanted, room=_ROOM)
    except (ArchiveDamaged, ArchiveUnavailable) as error:
        failure = str(error)
        found = snapshot._replace(history=await reader.left(snapshot, wanted, _ROOM))
    wire = await reader.wire_of(snapshot.namespace)
    events = [wire.event(each, snapshot) for each in found.history]
    last = events[-1].event_id if events else None
    return {
        "events": events,
        "archive_failure": failure,
        "following": last if last is not None and last > found.first_event_id else None,
    }


def _place(request: PageRequest) -> int | None:
    text = request.query_params.get("before")
    return None if text is None else number_of(text, "before")


async def _state(request: PageRequest, snapshot: Snapshot) -> str:
    """Return the state as it is stored, whether or not it fits its type; its bytes if it is no JSON."""
    # Its size was not known before it was read.
    request.place.reserve_now(PAGE_WEIGHT * len(snapshot.aux_state or b""))
    wire = await request.server.client.reader.wire_of(snapshot.namespace)
    # In a thread: other pages are answered while a large one is written out.
    return await in_thread("page", lambda: pretty(wire.decode_any(snapshot.aux_state, "state", snapshot)))
