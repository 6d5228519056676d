"""The audit: what operators did, when, from where and why."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.responses import Response

from progressor.acts import AuditPage, AuditVerb
from progressor.http.server.auth.scopes import require, seen_by
from progressor.rights import Scope
from progressor.web.page import MISTYPED, PageRequest, Pages
from progressor.web.pages.namespaces.namespace import offered_namespaces
from progressor.web.typed import since_of

pages = Pages()

_PAGE = 100
_FIELDS = ("namespace", "process_id", "verb", "since")


@pages.get("/audit", scope=Scope.AUDIT_READ)
async def audit(request: PageRequest) -> Response:
    """Return a page of acts, the newest first."""
    given = {name: request.query_params.get(name, "").strip() for name in _FIELDS}
    page, problem = AuditPage([], None), None
    try:
        page = await _acts(request, given)
    except MISTYPED as error:
        problem = request.problem_of_filter(error)
    stated = {name: value for name, value in given.items() if value}
    following = None if page.cursor is None else urlencode(stated | {"cursor": page.cursor})
    return request.page(
        "audit.html",
        "Audit",
        problem=problem,
        entries=page.entries,
        given=given,
        offered=await offered_namespaces(request, Scope.AUDIT_READ),
        verbs=list(AuditVerb),
        following=following,
    )


async def _acts(request: PageRequest, given: Mapping[str, str]) -> AuditPage:
    if given["namespace"]:
        require(request.caller, Scope.AUDIT_READ, given["namespace"])
    return await request.server.client.audit(
        given["namespace"] or None,
        process_id=given["process_id"] or None,
        verb=given["verb"] or None,
        since=since_of(given["since"], request.preferences.zone),
        namespaces=seen_by(request.caller),
        limit=_PAGE,
        cursor=request.query_params.get("cursor") or None,
    )
