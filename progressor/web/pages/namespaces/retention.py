"""Retention: for how long a namespace keeps what has ended, what other times would delete, and the walks.

Rule: times are set behind an estimate of what they delete, for what a walk deletes is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from progressor.config import Retention
from progressor.errors import InvalidRequest
from progressor.monitoring import KnownRetention
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages
from progressor.web.problem import PageProblem
from progressor.web.typed import duration_of, typed_time

pages = Pages()

_PATH = "/namespaces/{namespace}/retention"
_TIMES = ("tasks", "keys", "events")
_FIELDS = (*_TIMES, "archive")
_COUNT = re.compile("[0-9]{1,19}")


@pages.get(_PATH, scope=Scope.PROCESSES_READ)
async def retention(request: PageRequest, namespace: str) -> Response:
    """Return the times and the last walk; with other times in the address, what they would delete."""
    return await _retention_page(request, namespace, request.query_params)


async def _retention_page(
    request: PageRequest, namespace: str, given: Mapping[str, str], problem: PageProblem | None = None
) -> Response:
    client = request.server.client
    known = await client.retention(namespace)
    wanted = estimate = None
    is_asked = problem is None and any(name in given for name in _TIMES)
    try:
        wanted = _wanted(given) if is_asked else None
    except InvalidRequest as error:
        problem = request.problem_of(error)
    if wanted is not None and not wanted.is_for_ever:
        estimate = await client.estimate_retention(namespace, wanted)
    said = (await client.published(namespace)).options.get("retention")
    said = said if isinstance(said, dict) else {}
    return request.page(
        "retention.html",
        f"Retention of {namespace}",
        problem=problem,
        namespace=namespace,
        known=known,
        # What the fields of a form held, or what holds now.
        given={each: given.get(each, "") for each in _FIELDS} if is_asked or problem else _typed(known),
        wanted=wanted,
        estimate=estimate,
        said=said,
        query=urlencode({"tasks": "", **{name: value for name, value in said.items() if value}}),
    )


@pages.post(_PATH + "/set", scope=Scope.ADMIN)
async def set_retention(request: PageRequest, namespace: str) -> Response:
    """Keep what has ended for the times of a form, whatever the code says."""
    try:
        await request.server.client.set_retention(namespace, _wanted(request.fields))
    except InvalidRequest as error:
        return await _retention_page(request, namespace, request.fields, request.problem_of(error))
    return _back(request, namespace, "These times hold from now on.")


@pages.post(_PATH + "/unset", scope=Scope.ADMIN)
async def unset_retention(request: PageRequest, namespace: str) -> Response:
    """Keep what has ended for the times that the code says."""
    await request.server.client.set_retention(namespace, None)
    return _back(request, namespace, "The times of the code hold from now on.")


@pages.post(_PATH + "/run", scope=Scope.ADMIN)
async def begin_retention(request: PageRequest, namespace: str) -> Response:
    """Have a walk begin now, which the zombie collectors make."""
    await request.server.client.begin_retention(namespace)
    return _back(request, namespace, "A walk begins as soon as a zombie collector gets to it.")


def _back(request: PageRequest, namespace: str, note: str) -> Response:
    return request.to(f"namespaces/{namespace}/retention", note)


def _wanted(given: Mapping[str, str]) -> Retention:
    tasks, keys, events = (given.get(name, "").strip() for name in _TIMES)
    return Retention(
        tasks=duration_of(tasks, "tasks"),
        keys=duration_of(keys, "keys"),
        events=int(events) if _COUNT.fullmatch(events) else duration_of(events, "events"),
        archive=bool(given.get("archive")),
    )


def _typed(known: KnownRetention) -> dict[str, Any]:
    """Return a retention as somebody types it into the form."""
    last = known.events_last
    return {
        "tasks": typed_time(known.tasks),
        "keys": typed_time(known.keys),
        "events": typed_time(known.events_for) if last is None else str(last),
        "archive": known.archive,
    }
