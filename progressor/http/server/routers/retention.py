"""The routes of retention: how long a namespace keeps what has ended, and the walks that delete the rest.

Rule: durations are ISO 8601 here, and a time that is left out means for ever.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from starlette.responses import Response

from progressor.config import Retention
from progressor.errors import InvalidRequest
from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName
from progressor.http.wire.models import KnownRetentionBody, RetentionEstimateBody, plain
from progressor.rights import Scope

routes = Routes()

_DURATION = TypeAdapter(timedelta)
_PATH = "/v1/namespaces/{namespace}/retention"

Tasks = Annotated[str | None, Field(description="For how long ended tasks are kept: P90D.", max_length=64)]
Keys = Annotated[
    str | None, Field(description="And those with an idempotency key, if longer.", max_length=64)
]
Events = Annotated[
    str | None,
    Field(
        description="For how long events are kept, P1Y, or how many of each process: 1000.", max_length=64
    ),
]

Archived = Annotated[bool, Field(description="Write what is deleted to the archive first.")]


@routes.add(
    "GET",
    _PATH,
    "For how long a namespace keeps what has ended",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The times, and the last walk.", KnownRetentionBody)},
)
async def retention(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Return the times, null for ever, and how far the last walk came that deleted the rest."""
    return bodies.shown(plain(await request.server.client.retention(namespace)))


@routes.add(
    "PUT",
    _PATH,
    "Keep what has ended for these times",
    scope=Scope.ADMIN,
    answers={204: ("They hold from now on.", None)},
)
async def set_retention(
    request: ApiRequest,
    namespace: NamespaceName,
    tasks: Tasks = None,
    keys: Keys = None,
    events: Events = None,
    archive: Archived = False,
) -> Response:
    """Set them, whatever the code of the namespace says. A walk begins at once: what it deletes is gone."""
    wanted = retention_of(tasks, keys, events, archive=archive)
    await request.server.client.set_retention(namespace, wanted)
    return Response(status_code=204)


@routes.add(
    "DELETE",
    _PATH,
    "Keep what has ended for the times that the code of a namespace says",
    scope=Scope.ADMIN,
    answers={204: ("They hold from now on.", None)},
)
async def unset_retention(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Take back what was set."""
    await request.server.client.set_retention(namespace, None)
    return Response(status_code=204)


@routes.add(
    "GET",
    _PATH + "/estimate",
    "What these times would delete now",
    scope=Scope.PROCESSES_READ,
    answers={200: ("The estimate.", RetentionEstimateBody)},
)
async def estimate_retention(
    request: ApiRequest,
    namespace: NamespaceName,
    tasks: Tasks = None,
    keys: Keys = None,
    events: Events = None,
) -> Response:
    """Return an estimate from a sample of the tables; without any time, for those of the namespace."""
    given = None if tasks is keys is events is None else retention_of(tasks, keys, events)
    return bodies.shown(plain(await request.server.client.estimate_retention(namespace, given)))


@routes.add(
    "POST",
    _PATH + "/run",
    "Delete now what the namespace keeps no longer",
    scope=Scope.ADMIN,
    answers={202: ("A walk begins.", None)},
)
async def begin_retention(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Have a walk begin now, which the zombie collectors make; `GET` shows how far it is."""
    await request.server.client.begin_retention(namespace)
    return Response(status_code=202)


def retention_of(
    tasks: str | None, keys: str | None, events: str | None, *, archive: bool = False
) -> Retention:
    """Return the retention of these texts, None for ever; raise InvalidRequest for one that is none."""
    kept = int(events) if events is not None and events.isdecimal() else _duration(events, "events")
    times = {"tasks": _duration(tasks, "tasks"), "keys": _duration(keys, "keys")}
    return Retention(**times, events=kept, archive=archive)


def _duration(text: str | None, field: str) -> timedelta | None:
    if text is None:
        return None
    try:
        # A number alone has no unit.
        return _DURATION.validate_python(None if text.isdecimal() else text)
    except ValidationError:
        raise InvalidRequest(f"{field} must be an ISO 8601 duration, such as P90D", field=field) from None
