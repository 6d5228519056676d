"""The operator's routes: namespaces are paused, resumed and retired; their status, failures and workers.

Rule: they concern all processes of a namespace, or of the database, so their scopes are not those of calls.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from progressor.config import MOST_OF_A_GROUP
from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require
from progressor.http.server.auth.visible import failures_for, namespaces_for, workers_for
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import (
    GroupName,
    NamespaceName,
    Only,
    ProcessId,
    Since,
    id_text,
    since_of,
)
from progressor.http.wire.models import (
    FailuresBody,
    GroupsBody,
    MailboxBody,
    NamespacesBody,
    StatusBody,
    WorkersBody,
    plain,
)
from progressor.http.wire.paths import PROCESS
from progressor.rights import Scope

routes = Routes()


@routes.add(
    "GET",
    "/v1/namespaces",
    "Every namespace that was ever served and is not retired",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The namespaces.", NamespacesBody)},
)
async def namespaces(request: ApiRequest) -> Response:
    """Return them by name, each with its live workers and their slots."""
    found = await request.server.client.namespaces()
    return bodies.shown({"namespaces": [plain(each) for each in namespaces_for(request.caller, found)]})


@routes.add(
    "GET",
    "/v1/workers",
    "OS processes with a heartbeat: workers and collectors",
    scope=Scope.ADMIN,
    answers={200: ("The workers.", WorkersBody)},
)
async def workers(request: ApiRequest) -> Response:
    """Return them by host; also silent ones, until a zombie collector has dealt with what they left.

    A worker is shown with the namespaces that the caller sees, and not at all if it serves others alone.
    """
    found = workers_for(request.caller, await request.server.client.workers())
    return bodies.shown({"workers": [plain(each) for each in found]})


@routes.add(
    "POST",
    "/v1/namespaces/{namespace}/pause",
    "Begin no more steps of a namespace",
    scope=Scope.ADMIN,
    answers={204: ("It is paused.", None)},
)
async def pause(
    request: ApiRequest,
    namespace: NamespaceName,
    reason: Annotated[str | None, id_text("The reason, for the operator who finds it paused.")] = None,
) -> Response:
    """Let running steps finish, and begin no more. Requests are accepted and wait, and so do timers.

    A namespace that is paused already stays paused.
    """
    await request.server.client.pause(namespace, reason)
    return Response(status_code=204)


@routes.add(
    "POST",
    "/v1/namespaces/{namespace}/resume",
    "Let a paused namespace go on",
    scope=Scope.ADMIN,
    answers={204: ("It goes on.", None)},
)
async def resume(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Let it go on, and wake its workers for what waits."""
    await request.server.client.resume(namespace)
    return Response(status_code=204)


@routes.add(
    "POST",
    "/v1/namespaces/{namespace}/retire",
    "Forget a namespace that nobody serves and that has no process",
    scope=Scope.ADMIN,
    answers={204: ("It is forgotten.", None)},
    problems=(409,),
)
async def retire(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Forget it, or answer 409 with what is left. A worker that serves it again makes it known again."""
    await request.server.client.retire(namespace)
    return Response(status_code=204)


@routes.add(
    "GET",
    "/v1/namespaces/{namespace}/groups",
    "Groups of processes: their limits, and what runs and waits in them",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The groups.", GroupsBody)},
)
async def groups(
    request: ApiRequest,
    namespace: NamespaceName,
    after: Annotated[str | None, id_text("Those whose names come after this one.")] = None,
    limit: Annotated[int, Field(ge=1, le=1000, description="How many, at most.")] = 100,
) -> Response:
    """Return them by name. `limit` null: there is none."""
    found = await request.server.client.groups(namespace, after=after, limit=limit)
    return bodies.shown({"groups": [plain(each) for each in found]})


@routes.add(
    "PUT",
    "/v1/namespaces/{namespace}/groups/{group}/limit",
    "Let so many steps of a group run at once",
    scope=Scope.ADMIN,
    answers={204: ("It holds from now on.", None)},
)
async def set_group_limit(
    request: ApiRequest,
    namespace: NamespaceName,
    group: GroupName,
    limit: Annotated[
        int | None,
        Field(ge=0, le=MOST_OF_A_GROUP, description="How many; without it as many as the namespace says."),
    ] = None,
) -> Response:
    """Set the limit of a group, over all workers. After a lower one, what runs ends."""
    await request.server.client.set_group_limit(namespace, group, limit)
    return Response(status_code=204)


@routes.add(
    "GET",
    "/v1/status",
    "Status of each namespace: waiting, running and broken work, and its workers",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The namespaces.", StatusBody)},
    problems=(404,),
)
async def status(request: ApiRequest, namespace: Only = None) -> Response:
    """Return them by name. `started` counts processes started in the last minute, `steps` its steps."""
    caller = request.caller
    if namespace is not None:
        require(caller, Scope.PROCESSES_READ, namespace)
    found = await request.server.client.status(namespace)
    return bodies.shown({"namespaces": [plain(each) for each in namespaces_for(caller, found)]})


@routes.add(
    "GET",
    PROCESS + "/mailbox",
    "The requests that wait on a process",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The mailbox.", MailboxBody)},
)
async def mailbox(request: ApiRequest, namespace: NamespaceName, process_id: ProcessId) -> Response:
    """Return how many wait, for how long the oldest has, and in how many seconds they will be through."""
    return bodies.shown(plain(await request.server.client.mailbox(namespace, process_id)))


@routes.add(
    "GET",
    "/v1/errors",
    "Failures, grouped by namespace, handler and message",
    scope=Scope.ERRORS_READ,
    answers={200: ("The groups.", FailuresBody)},
    problems=(404,),
)
async def errors(request: ApiRequest, namespace: Only = None, since: Since = None) -> Response:
    """Return broken processes, and timers that failed and are tried again. It needs processes:read, too."""
    caller = request.caller
    require(caller, Scope.ERRORS_READ, namespace)
    require(caller, Scope.PROCESSES_READ, namespace)
    found = await request.server.client.errors(namespace=namespace, since=since_of(since))
    return bodies.shown({"groups": [plain(each) for each in failures_for(caller, found)]})
