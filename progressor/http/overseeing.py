"""What an operator asks: namespaces paused and resumed, and who serves what.

Rule: it concerns all processes of a namespace, or of the database: who may is told apart from who calls.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from pydantic import AwareDatetime, BaseModel
from starlette.responses import Response

from progressor.http import bodies, headers
from progressor.http.access import Caller, needs
from progressor.http.documented import ANY_TIME, answers
from progressor.http.routing import NamespaceName, TheServer, router

routes = router()


class KnownNamespaceBody(BaseModel):
    """A namespace that some worker served, and who serves it now."""

    name: str
    paused: bool
    workers: int
    slots: int | None
    free_slots: int
    updated_at: AwareDatetime


class NamespacesBody(BaseModel):
    """All namespaces, by name."""

    namespaces: list[KnownNamespaceBody]


class KnownWorkerBody(BaseModel):
    """An OS process that has a heartbeat; one that serves nothing is a zombie collector."""

    worker_id: str
    host: str
    namespaces: list[str]
    free_slots: dict[str, int]
    started_at: AwareDatetime
    seen_at: AwareDatetime
    is_live: bool


class WorkersBody(BaseModel):
    """All workers and zombie collectors, by host."""

    workers: list[KnownWorkerBody]


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
    caller: Annotated[Caller, needs("processes:read")],
) -> Response:
    """By name, each with its live workers and their slots."""
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
    summary="Who has a heartbeat",
    response_model=None,
    responses=answers({200: ("The workers.", WorkersBody)}, ANY_TIME),
)
async def workers(
    request: Request,
    server: TheServer,
    caller: Annotated[Caller, needs("admin")],
) -> Response:
    """By host: also those that fell silent, until a collector has dealt with what they left.

    Of what they serve it names the namespaces that its caller sees.
    """
    bodies.require_acceptable(request, headers.JSON)
    found = await server.client.workers()
    shown = [_seen_by(caller, KnownWorkerBody.model_validate(each, from_attributes=True)) for each in found]
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
    caller: Annotated[Caller, needs("admin")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """What runs finishes. Requests are accepted and wait, and so do timers. Paused twice is paused."""
    await server.client.pause(namespace)
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
    caller: Annotated[Caller, needs("admin")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Its workers are woken for what waits."""
    await server.client.resume(namespace)
    return Response(status_code=204)


def _seen_by(caller: Caller, worker: KnownWorkerBody) -> KnownWorkerBody:
    """A worker without the namespaces that are hidden from this caller."""
    seen = [name for name in worker.namespaces if caller.may("admin", name)]
    slots = {name: free for name, free in worker.free_slots.items() if name in seen}
    return worker.model_copy(update={"namespaces": seen, "free_slots": slots})
