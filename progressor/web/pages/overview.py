"""The overview: what needs somebody now, and the load of each namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from starlette.responses import Response

from progressor.client.failure_groups import FailureGroup, grouped
from progressor.http.server.auth.scopes import seen_by
from progressor.http.server.auth.visible import failures_for, namespaces_for, workers_for
from progressor.monitoring import KnownWorker, NamespaceStatus
from progressor.rights import Scope
from progressor.storage import KnownSubscription
from progressor.web.page import PageRequest, Pages

pages = Pages()

_MOST_GROUPS = 10
# Failures that a page looks at, in one namespace and in all. Broken shows the groups whole; the overview
# comes anew every few seconds, and looks at fewer.
MOST, LOOKS = 1000, 10_000
_FEW_LOOKS = 4000
# The time that the lines of the load go back.
SPAN = timedelta(hours=1)


@pages.get("/", scope=Scope.PROCESSES_READ)
async def overview(request: PageRequest) -> Response:
    """Return what is broken, waits and runs."""
    found, groups, silent, behind = await asyncio.gather(
        request.server.client.status(), _groups(request), _silent(request), _behind(request)
    )
    seen, unmuted = namespaces_for(request.caller, found), request.preferences.unmuted(groups)
    return request.page(
        "overview.html",
        "Overview",
        namespaces=seen,
        samples=await request.server.client.reader.samples([each.name for each in seen], within=SPAN),
        groups=unmuted[:_MOST_GROUPS],
        muted=len(groups) - len(unmuted),
        silent=silent,
        behind=behind,
        tiles=_Tiles(seen),
    )


class _Tiles:
    """The sums of all namespaces that a caller sees."""

    def __init__(self, found: Sequence[NamespaceStatus]) -> None:
        self.broken = sum(each.broken for each in found)
        self.waiting = sum(each.waiting.requests for each in found)
        self.oldest = max((each.waiting.age for each in found), default=timedelta())
        self.overdue = sum(each.timers.tasks for each in found)
        self.oldest_timer = max((each.timers.age for each in found), default=timedelta())
        self.running = sum(each.running for each in found)
        self.slots = sum(each.slots or 0 for each in found)
        self.steps = sum(each.steps for each in found)


async def _groups(request: PageRequest) -> Sequence[FailureGroup]:
    if not request.may(Scope.ERRORS_READ):
        return ()
    reader, seen = request.server.client.reader, seen_by(request.caller)
    failed = await reader.failed(None, since=None, namespaces=seen, most=MOST, looks=_FEW_LOOKS)
    return failures_for(request.caller, grouped(failed))


async def _silent(request: PageRequest) -> Sequence[KnownWorker]:
    if not request.may(Scope.ADMIN):
        return ()
    found = workers_for(request.caller, await request.server.client.workers())
    return [each for each in found if not each.is_live]


async def _behind(request: PageRequest) -> Sequence[KnownSubscription]:
    if not request.may(Scope.ADMIN) or seen_by(request.caller) is not None:
        return ()
    found = await request.server.client.subscriptions()
    return [each for each in found if each.is_lost or each.parked or each.error is not None]
