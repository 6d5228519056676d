"""One schedule: its standing, what became of its last times, and a backfill of times of the past.

Rule: the times that a backfill sends are said before it is begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.responses import Response

from progressor.errors import (
    InvalidRequest,
    NamespaceNotFound,
    ProcessNotFound,
    ProgressorError,
    Reject,
    ReplyTimeout,
)
from progressor.http.server.problems import Refusal
from progressor.inputs import HistoryRange
from progressor.model import Event, Snapshot
from progressor.rights import Scope
from progressor.schedules import SCHEDULES, Span, times_of
from progressor.web.page import PageRequest, Pages
from progressor.web.pages.changes import PATIENCE
from progressor.web.pages.schedules import state_of
from progressor.web.problem import PageProblem
from progressor.web.typed import moment_of

pages = Pages()

_PATH = "/schedules/{namespace}/{name}"
_REFUSED = HTTPStatus.UNPROCESSABLE_ENTITY
_OUTCOMES = 10
# Bytes of the events that say what became of them.
_ROOM = 1 << 18


class Outcome(NamedTuple):
    """An entry of a schedule's log: a time that was sent, skipped or missed.

    `status` is that of the process it was sent to, `gone` if there is none; None if the caller may not see
    it. `text` says that a start has made nothing, for the process was there.
    """

    at: datetime | None
    what: str
    nominal: datetime | None
    text: str
    namespace: str | None = None
    process_id: str = ""
    status: str | None = None


@pages.get(_PATH, scope=Scope.PROCESSES_READ)
async def schedule(request: PageRequest, namespace: str, name: str) -> Response:
    """Return a schedule; with a range in the address, the times that a backfill of it would send."""
    return await _schedule_page(request, namespace, name, request.query_params)


async def _schedule_page(
    request: PageRequest,
    namespace: str,
    name: str,
    given: Mapping[str, str],
    problem: PageProblem | None = None,
) -> Response:
    reader = request.server.client.reader
    snapshot = await reader.standing(SCHEDULES, f"{namespace}/{name}")
    found = await reader.view(snapshot)
    state, times = state_of(found), None
    if problem is None and given.get("since", "").strip() and state is not None:
        try:
            times = times_of(state.declaration, _span(request, given), now=datetime.now(UTC))
        except InvalidRequest as error:
            problem = request.problem_of(error)
        except Reject as reject:
            problem = PageProblem(_REFUSED, "This cannot be made up", reject.reason)
    reads_state = request.may(Scope.STATE_READ, namespace)
    return request.page(
        "schedule.html",
        f"Schedule {namespace}/{name}",
        problem=problem,
        namespace=namespace,
        name=name,
        process=found,
        state=state,
        detail=found.detail if request.reads_failures(namespace) else None,
        outcomes=await _outcomes(request, snapshot) if reads_state else None,
        since=given.get("since", ""),
        until=given.get("until", ""),
        times=times,
    )


@pages.post(_PATH + "/backfill", scope=Scope.ADMIN)
async def backfill(request: PageRequest, namespace: str, name: str) -> Response:
    """Have the times of a range sent, in their order."""
    form, client, path = request.fields, request.server.client, f"schedules/{namespace}/{name}"
    try:
        span, key = _span(request, form), form.get("key") or None
        times = await client.call(
            *(SCHEDULES, f"{namespace}/{name}", "backfill", span.model_dump(mode="json")),
            idempotency_key=key,
            timeout=PATIENCE,
        )
    except ReplyTimeout:
        return request.to(path, "The backfill was accepted, and is under way.")
    except (Refusal, ProgressorError) as error:
        return await _schedule_page(request, namespace, name, form, request.problem_of(error))
    is_one = len(times) == 1
    return request.to(
        path, "1 time is sent." if is_one else f"{len(times):,} times are sent, in their order."
    )


def _span(request: PageRequest, given: Mapping[str, str]) -> Span:
    """Return the range of a form; raise InvalidRequest if it is none."""
    zone = request.preferences.zone
    since, until = (moment_of(given.get(each, "").strip(), each, zone) for each in ("since", "until"))
    if since is None:
        raise InvalidRequest("since is required: the first time of the range", field="since")
    return Span(since=since, until=until)


async def _outcomes(request: PageRequest, snapshot: Snapshot) -> list[Outcome]:
    """Return the newest entries of a schedule's log, the newest first."""
    reader = request.server.client.reader
    wanted = HistoryRange(0, _OUTCOMES, "backward")
    found = await reader.with_history(snapshot, wanted, room=_ROOM)
    wire, known = await reader.wire_of(SCHEDULES), dict[tuple[str, str], Snapshot | None]()
    return [await _outcome(request, wire.event(each, snapshot), known) for each in found.history]


async def _outcome(
    request: PageRequest, event: Event, known: dict[tuple[str, str], Snapshot | None]
) -> Outcome:
    said: dict[str, Any] = event.payload if isinstance(event.payload, dict) else {}
    nominal, to = said.get("nominal", said.get("until")), str(said.get("to", ""))
    text = str(said.get("because") or (f"{said['times']:,} times" if "times" in said else ""))
    outcome = Outcome(
        event.timestamp, event.name or "", datetime.fromisoformat(nominal) if nominal else None, text
    )
    namespace, slash, process_id = to.partition("/")
    if not slash:
        return outcome._replace(text=text or to)
    if not request.may(Scope.PROCESSES_READ, namespace):
        return outcome._replace(text="to a namespace that you do not see")
    if (namespace, process_id) not in known:
        known[namespace, process_id] = await _standing(request, namespace, process_id)
    found = known[namespace, process_id]
    was_there = (
        found is not None
        and said.get("kind") == "start"
        and event.timestamp is not None
        and found.created_at < event.timestamp
    )
    return outcome._replace(
        namespace=namespace,
        process_id=process_id,
        text="it was there before: nothing was started" if was_there else "",
        status="gone" if found is None else found.status,
    )


async def _standing(request: PageRequest, namespace: str, process_id: str) -> Snapshot | None:
    try:
        return await request.server.client.reader.standing(namespace, process_id)
    except (ProcessNotFound, NamespaceNotFound):
        return None
