"""The timer of a process: set, unset and fired, as a client does it.

Rule: each is a call that every namespace has, with a key, an answer and a task as any other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from progressor.handlers.timer_calls import FIRE_TIMER, SET_TIMER, UNSET_TIMER, TimerArgs
from progressor.http.server import request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.bodies import NewTimer, timer_of
from progressor.http.server.openapi.operations import ANSWER, ASKS, takes
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName, ProcessId
from progressor.http.server.routers.requests import ProcessRequest
from progressor.http.wire.models import AcceptedBody
from progressor.http.wire.paths import PROCESS
from progressor.rights import Scope

routes = Routes()

_TIMER = PROCESS + "/timers/{timer}"
_OF_ALL: dict[str, Any] = {
    "scope": Scope.PROCESSES_REPAIR,
    "answers": {
        200: ("null: it is done.", ANSWER),
        202: ("Accepted, and not done yet. Location is its task's address.", AcceptedBody),
    },
    "problems": (409, 422),
}
TimerName = Annotated[
    Literal["default"], Field(description="A process has one timer, which has no name: `default`.")
]


async def _asked(
    request: ApiRequest, namespace: str, process_id: str, name: str, args: Any = None
) -> Response:
    asked = await ProcessRequest.read(request, namespace, answers_json=True)
    asked.require_key()
    return await asked.answered(
        request.server.client.submit_call(namespace, process_id, name, args, **asked.stated)
    )


@routes.add(
    "PATCH",
    _TIMER,
    "Set the timer of a process",
    takes={**takes(NewTimer), **ASKS},
    **_OF_ALL,
)
async def set_timer(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
) -> Response:
    """Replace the one that it has, if any; `after` counts from the commit of the step that does it."""
    body = await request_body.read_body(request)
    given = timer_of(request_body.model_in(request, body, NewTimer))
    args = TimerArgs(at=given.at, after=given.after, remove=given.remove)
    return await _asked(request, namespace, process_id, SET_TIMER, args)


@routes.add("DELETE", _TIMER, "Cancel the timer of a process", takes=ASKS, **_OF_ALL)
async def unset_timer(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
) -> Response:
    """Cancel it; do nothing if there is none."""
    return await _asked(request, namespace, process_id, UNSET_TIMER)


@routes.add(
    "POST",
    _TIMER + "/fire",
    "Make the timer of a process due now",
    takes=ASKS,
    **_OF_ALL,
)
async def fire_timer(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
) -> Response:
    """Make it due; its step comes after this one. Answer with `rejected` if there is no timer."""
    return await _asked(request, namespace, process_id, FIRE_TIMER)
