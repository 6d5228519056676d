"""Failures, grouped by namespace, handler and message, and their repair in bulk."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from progressor.client.failure_groups import FailureGroup, grouped, those_of
from progressor.errors import InvalidRequest
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.auth.visible import failures_for, preview_for
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import INVALID_ARGS
from progressor.model import TaskType
from progressor.rights import Scope
from progressor.web.forms import repair_form
from progressor.web.page import MISTYPED, PageRequest, Pages
from progressor.web.pages.namespaces.namespace import offered_namespaces
from progressor.web.pages.overview import LOOKS, MOST
from progressor.web.problem import PageProblem
from progressor.web.typed import since_of

pages = Pages()

_RATE = "50"
_REFUSED = HTTPStatus.UNPROCESSABLE_ENTITY
# Processes that a preview counts and shows in groups, and the newest broken ones that it looks at.
_PREVIEWED, _PREVIEW_LOOKS = 2000, 10_000
# Rows of a page of a group, and what names a group.
_PAGE = 100
_OF_A_GROUP = ("namespace", "status", "handler", "message")
_FILTER = ("handler", "detail_like")
_CHANGED = "The filter was changed after the page had shown what matches. This is what matches now."


@pages.get("/broken", scope=Scope.ERRORS_READ)
async def broken(request: PageRequest) -> Response:
    """Return the groups, the largest first."""
    require(request.caller, Scope.PROCESSES_READ, None)
    given = {name: request.query_params.get(name, "").strip() for name in ("namespace", "since")}
    groups, problem = list[FailureGroup](), None
    try:
        groups = await _groups(request, **given)
    except MISTYPED as error:
        problem = request.problem_of_filter(error)
    stated = {name: text for name, text in given.items() if text}
    unmuted, shows_muted = request.preferences.unmuted(groups), request.query_params.get("muted") == "show"
    return request.page(
        "broken.html",
        "Broken",
        problem=problem,
        groups=groups if shows_muted else unmuted,
        muted=len(groups) - len(unmuted),
        shows_muted=shows_muted,
        other=urlencode(stated if shows_muted else stated | {"muted": "show"}),
        given=given,
        offered=await offered_namespaces(request, Scope.ERRORS_READ),
    )


async def _groups(request: PageRequest, namespace: str, since: str) -> list[FailureGroup]:
    if namespace:
        require(request.caller, Scope.ERRORS_READ, namespace)
    failed = await request.server.client.reader.failed(
        namespace or None,
        since=since_of(since, request.preferences.zone),
        namespaces=seen_by(request.caller),
        most=MOST,
        looks=LOOKS,
    )
    return failures_for(request.caller, grouped(failed))


@pages.get("/broken/group", scope=Scope.ERRORS_READ)
async def group(request: PageRequest) -> Response:
    """Return the processes that a group counts, a page at a time, by their ids."""
    given = {name: request.query_params.get(name, "") for name in (*_OF_A_GROUP, "since", "after")}
    namespace = given["namespace"]
    for scope in (Scope.PROCESSES_READ, Scope.ERRORS_READ):
        require(request.caller, scope, namespace)
    failed = await request.server.client.reader.failed(
        namespace, since=since_of(given["since"], request.preferences.zone), most=MOST, looks=LOOKS
    )
    found = those_of(failed, **{name: given[name] for name in _OF_A_GROUP})
    left = [each for each in found if each.process_id > given["after"]]
    return request.page(
        "group.html",
        "Processes of a group",
        found=left[:_PAGE],
        many=len(found),
        at_least=any(each.at_least for each in found),
        given=given,
        following=urlencode(given | {"after": left[_PAGE - 1].process_id}) if len(left) > _PAGE else None,
    )


@pages.get("/bulk/new", scope=Scope.BULK)
async def new_bulk(request: PageRequest) -> Response:
    """Return what a bulk of this filter would repair, and the form that begins it."""
    return await _bulk_page(request, request.query_params)


async def _bulk_page(
    request: PageRequest, given: Mapping[str, str], problem: PageProblem | None = None
) -> Response:
    namespace = given.get("namespace", "")
    require(request.caller, Scope.BULK, namespace)
    wanted, preview = _filter(request, namespace, given), None
    try:
        found = await request.server.client.reader.preview_newest(
            namespace, **wanted, looks=_PREVIEW_LOOKS, most=_PREVIEWED
        )
        preview = preview_for(request.caller, namespace, found)
    except InvalidRequest as error:
        problem = request.problem_of(error)
    published = await request.server.publications.of(namespace)
    return request.page(
        "bulk_new.html",
        "Repair all that match",
        problem=problem,
        namespace=namespace,
        wanted=wanted,
        preview=preview,
        rate=given.get("rate", _RATE),
        repair=repair_form(published),
        has_repair=published.has_repair,
    )


@pages.post("/bulk", scope=Scope.BULK)
async def begin_bulk(request: PageRequest) -> Response:
    """Begin the bulk that a form describes, and lead to its page; or look again at what matches."""
    form = request.fields
    if "look" in form:
        return await _bulk_page(request, form)
    if any(form.get(f"seen_{name}", form.get(name)) != form.get(name) for name in _FILTER):
        return await _bulk_page(request, form, PageProblem(_REFUSED, "Nothing has begun", _CHANGED))
    try:
        return await _begin(request)
    except InvalidRequest as error:
        return await _bulk_page(request, form, request.problem_of(error))
    except Refusal as refusal:
        if refusal.kind is not INVALID_ARGS:
            raise
        return await _bulk_page(request, form, request.problem_of(refusal))


async def _begin(request: PageRequest) -> Response:
    form, server = request.fields, request.server
    namespace = form.get("namespace", "")
    require(request.caller, Scope.BULK, namespace)
    wanted = _filter(request, namespace, form)
    simple, redo = form.get("how") == "simple", "redo" in form
    if redo:
        require(request.caller, Scope.PROCESSES_CALL, namespace)
    args = None
    if not simple:
        args = repair_form(await server.publications.of(namespace)).read(form)
        await server.publications.check(namespace, TaskType.REPAIR, None, args)
    made = await server.client.repair_all(
        namespace,
        args,
        **wanted,
        simple=simple,
        redo=redo,
        rate=_rate(form.get("rate", _RATE)),
        idempotency_key=form.get("key") or None,
    )
    return request.to(f"bulk/{made.bulk_id}", "The bulk has begun.")


def _filter(request: PageRequest, namespace: str, given: Any) -> dict[str, str | None]:
    detail_like, handler = given.get("detail_like") or None, given.get("handler") or None
    if detail_like is not None:
        # A pattern that matches reveals, letter by letter, the texts of failures.
        require(request.caller, Scope.ERRORS_READ, namespace)
    return {"detail_like": detail_like, "handler": handler}


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest("rate must be a number of processes a second", field="rate") from None
