"""The timers of a process: set, unset and fired, as a client does it.

Rule: each is a call that every namespace has, with a key, an answer and a task as any other.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from progressor.client.timers import args_of
from progressor.http.server import request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.bodies import NewTimer
from progressor.http.server.openapi.operations import ANSWER, ASKS, takes
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName, ProcessId, TimerName
from progressor.http.server.routers.requests import ProcessRequest
from progressor.http.wire.models import AcceptedBody
from progressor.http.wire.paths import PROCESS
from progressor.inputs import FIRE_TIMER, SET_TIMER, UNSET_TIMER
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


async def _asked(
    request: ApiRequest, namespace: str, process_id: str, name: str, args: dict[str, Any]
) -> Response:
    asked = await ProcessRequest.read(request, namespace, answers_json=True)
    asked.require_key()
    return await asked.answered(
        request.server.client.submit_call(namespace, process_id, name, args or None, **asked.stated)
    )


@routes.add("PATCH", _TIMER, "Set a timer of a process", takes={**takes(NewTimer), **ASKS}, **_OF_ALL)
async def set_timer(
    request: ApiRequest, namespace: NamespaceName, process_id: ProcessId, timer: TimerName
) -> Response:
    """Replace the one of this name, if any; `after` counts from the commit of the step that does it.

    With `every` it recurs, and `at` or `after` is its first time.
    """
    body = await request_body.read_body(request)
    given = request_body.model_in(request, body, NewTimer).named()
    args = args_of(timer) | given.as_json()
    return await _asked(request, namespace, process_id, SET_TIMER, args)


@routes.add("DELETE", _TIMER, "Cancel a timer of a process", takes=ASKS, **_OF_ALL)
async def unset_timer(
    request: ApiRequest, namespace: NamespaceName, process_id: ProcessId, timer: TimerName
) -> Response:
    """Cancel it; do nothing if there is none."""
    return await _asked(request, namespace, process_id, UNSET_TIMER, args_of(timer))


@routes.add("POST", _TIMER + "/fire", "Make a timer of a process due now", takes=ASKS, **_OF_ALL)
async def fire_timer(
    request: ApiRequest, namespace: NamespaceName, process_id: ProcessId, timer: TimerName
) -> Response:
    """Make it due; its step comes after this one. Answer with `rejected` if there is no such timer."""
    return await _asked(request, namespace, process_id, FIRE_TIMER, args_of(timer))
