"""Namespaces: who serves them, with which options, their pause, and the limits of their groups."""

from __future__ import annotations

from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.http.server.auth.visible import namespaces_for
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages, number_of
from progressor.web.pages.overview import SPAN
from progressor.web.problem import PageProblem

pages = Pages()

_GROUPS = 100
# Names that a browser offers while a namespace is typed: more would be no help, and a slow page.
_MOST_OFFERED = 500


async def offered_namespaces(request: PageRequest, scope: Scope) -> list[str]:
    """Return names to offer where a namespace is typed: those in which the caller has this scope."""
    return (await names_for(request, scope))[:_MOST_OFFERED]


async def names_for(request: PageRequest, scope: Scope) -> list[str]:
    """Return the namespaces in which the caller has this scope."""
    return [
        each for each in await request.server.client.reader.namespace_names() if request.may(scope, each)
    ]


@pages.get("/namespaces", scope=Scope.PROCESSES_READ)
async def namespaces(request: PageRequest) -> Response:
    """Return the namespaces that the caller sees, with their load."""
    found = namespaces_for(request.caller, await request.server.client.status())
    return request.page("namespaces.html", "Namespaces", namespaces=found)


@pages.get("/namespaces/{namespace}", scope=Scope.PROCESSES_READ)
async def namespace(request: PageRequest, namespace: str) -> Response:
    """Return a namespace: load, options, groups, retention, schemas."""
    return await _namespace_page(request, namespace)


async def _namespace_page(
    request: PageRequest, namespace: str, problem: PageProblem | None = None
) -> Response:
    client = request.server.client
    (status,) = await client.status(namespace)
    after = request.query_params.get("group") or None
    groups = await client.groups(namespace, after=after, limit=_GROUPS + 1)
    return request.page(
        "namespace.html",
        namespace,
        problem=problem,
        status=status,
        samples=await client.reader.samples([namespace], within=SPAN),
        published=await client.published(namespace),
        groups=groups[:_GROUPS],
        following=groups[_GROUPS - 1].name if len(groups) > _GROUPS else None,
        kept=await client.retention(namespace),
    )


@pages.post("/namespaces/{namespace}/pause", scope=Scope.ADMIN)
async def pause(request: PageRequest, namespace: str) -> Response:
    """Begin no more steps of a namespace."""
    await request.server.client.pause(namespace, request.reason)
    return request.to(f"namespaces/{namespace}", "It is paused: running steps finish, no more begin.")


@pages.post("/namespaces/{namespace}/resume", scope=Scope.ADMIN)
async def resume(request: PageRequest, namespace: str) -> Response:
    """Let a paused namespace go on."""
    await request.server.client.resume(namespace)
    return request.to(f"namespaces/{namespace}", "It goes on.")


@pages.post("/namespaces/{namespace}/limit", scope=Scope.ADMIN)
async def limit_group(request: PageRequest, namespace: str) -> Response:
    """Let so many steps of a group run at once, or as many as the namespace says."""
    form = request.fields
    group, takes_back = form.get("group", ""), form.get("how") == "unset"
    try:
        limit = None if takes_back else number_of(form.get("limit", "").strip(), "limit")
        await request.server.client.set_group_limit(namespace, group, limit)
    except InvalidRequest as error:
        return await _namespace_page(request, namespace, request.problem_of(error))
    note = (
        f"{group} has the limit of its namespace." if takes_back else f"{limit:,} steps of {group} at once."
    )
    return request.to(f"namespaces/{namespace}", note)
