"""The timer of a process: set, unset and fired, as a client does it.

Rule: each is a call that every namespace has, with a key, an answer and a task as any other.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from fastapi import Path, Request
from starlette.responses import Response

from progressor.client.results import Receipt
from progressor.handlers.timer_calls import FIRE_TIMER, SET_TIMER, UNSET_TIMER, TimerArgs
from progressor.http.server import request_body
from progressor.http.server.auth.scopes import Caller, require_scope
from progressor.http.server.bodies import AcceptedBody, NewTimer, timer_of
from progressor.http.server.openapi.operations import (
    ANSWER,
    ANY_TIME,
    ASKS,
    OF_ACCEPTED,
    WITH_BODY,
    answers,
    takes,
)
from progressor.http.server.routers.requests import ProcessRequest
from progressor.http.server.routing import NamespaceName, ProcessId, RouteContext, TheServer, router

routes = router()

_TIMER = "/v1/namespaces/{namespace}/processes/{process_id}/timers/{timer}"
_PROBLEMS = (*ANY_TIME, 404, 409, 422)
_GOOD: dict[int, Any] = {
    200: ("null: it is done.", ANSWER),
    202: ("Accepted, and not done yet. Location is its task's address.", AcceptedBody),
}
TimerName = Annotated[
    Literal["default"], Path(description="A process has one timer, which has no name: `default`.")
]


async def _asked(
    request: Request, server: RouteContext, namespace: str, process_id: str, name: str, args: Any = None
) -> Response:
    asked = await ProcessRequest.read(request, server, namespace, process_id, answers_json=True)
    asked.require_key()
    key = asked.idempotency_key
    submitted: Awaitable[Receipt] = server.client.submit_call(
        namespace, process_id, name, args, idempotency_key=key, context=asked.context
    )
    return await asked.answered(submitted)


@routes.patch(
    _TIMER,
    operation_id="set_timer",
    summary="Set the timer of a process",
    response_model=None,
    openapi_extra={**takes(NewTimer), **ASKS},
    responses=answers(_GOOD, (*_PROBLEMS, *WITH_BODY), said=OF_ACCEPTED),
)
async def set_timer(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
    caller: Annotated[Caller, require_scope("processes:repair")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Replace the one that it has, if any; `after` counts from the commit of the step that does it."""
    body = await request_body.read_body(request, server.options)
    given = timer_of(request_body.model_in(request, body, NewTimer))
    args = TimerArgs(at=given.at, after=given.after, remove=given.remove)
    return await _asked(request, server, namespace, process_id, SET_TIMER, args)


@routes.delete(
    _TIMER,
    operation_id="unset_timer",
    summary="Cancel the timer of a process",
    response_model=None,
    openapi_extra=ASKS,
    responses=answers(_GOOD, _PROBLEMS, said=OF_ACCEPTED),
)
async def unset_timer(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
    caller: Annotated[Caller, require_scope("processes:repair")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Cancel it; do nothing if there is none."""
    return await _asked(request, server, namespace, process_id, UNSET_TIMER)


@routes.post(
    _TIMER + "/fire",
    operation_id="fire_timer",
    summary="Make the timer of a process due now",
    response_model=None,
    openapi_extra=ASKS,
    responses=answers(_GOOD, _PROBLEMS, said=OF_ACCEPTED),
)
async def fire_timer(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName,  # noqa: ARG001 - there is one
    caller: Annotated[Caller, require_scope("processes:repair")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Make it due; its step comes after this one. Answer with `rejected` if there is no timer."""
    return await _asked(request, server, namespace, process_id, FIRE_TIMER)
