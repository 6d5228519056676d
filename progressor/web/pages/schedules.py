"""Schedules: when each is due next, what it sends, what it did last; and the times that it is to make up.

Rule: a schedule belongs to the namespace that declares it, and is seen by those who see that.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from progressor.errors import InvalidRequest, NamespaceNotFound, ReplyTimeout
from progressor.handlers.process import Process
from progressor.http.server.auth.scopes import require
from progressor.http.wire.paths import segment_of
from progressor.rights import Scope
from progressor.schedules import SCHEDULES, ScheduleState
from progressor.web.page import PageRequest, Pages
from progressor.web.pages.changes import PATIENCE

pages = Pages()

_PAGE = 100


@pages.get("/schedules", scope=Scope.PROCESSES_READ)
async def schedules(request: PageRequest) -> Response:
    """Return the schedules of the namespaces that the caller sees."""
    found, following = [], None
    try:
        page = await request.server.client.search(
            namespace=SCHEDULES, limit=_PAGE, cursor=request.query_params.get("cursor") or None
        )
    except NamespaceNotFound:
        pass
    else:
        following = page.cursor
        for each in page.items:
            namespace, _, name = each.process_id.rpartition("/")
            if request.may(Scope.PROCESSES_READ, namespace):
                state = state_of(each)
                found.append({"namespace": namespace, "name": name, "process": each, "state": state})
    return request.page("schedules.html", "Schedules", schedules=found, following=following)


@pages.post("/schedules", scope=Scope.ADMIN)
async def change_schedule(request: PageRequest) -> Response:
    """Pause, resume or trigger a schedule."""
    form, client = request.fields, request.server.client
    namespace, name, how = form.get("namespace", ""), form.get("name", ""), form.get("how", "")
    require(request.caller, Scope.ADMIN, namespace)
    if how not in ("pause", "resume", "trigger"):
        raise InvalidRequest("a schedule is paused, resumed or triggered", field="how")
    args = request.reason if how == "pause" else None
    key = form.get("key") or None
    try:
        await client.call(
            SCHEDULES, f"{namespace}/{name}", how, args, idempotency_key=key, timeout=PATIENCE
        )
    except ReplyTimeout:
        return request.to("schedules", f"{namespace}/{name}: {how} was accepted, and is under way.")
    if how == "trigger":
        # What becomes of it is known once the run before has ended: the page of the schedule says it then.
        path = f"schedules/{segment_of(namespace)}/{segment_of(name)}"
        return request.to(
            path, "It is sent as soon as the run before has ended. Below stands what came of it."
        )
    return request.to("schedules", f"{namespace}/{name}: {how} is done.")


def state_of(schedule: Process[Any]) -> ScheduleState | None:
    """Return the state of a schedule; None if it has none yet, or one that no schedule has."""
    state = schedule.state
    if state is None or isinstance(state, ScheduleState):
        return state
    try:
        return ScheduleState.model_validate(state)
    except ValidationError:
        return None
