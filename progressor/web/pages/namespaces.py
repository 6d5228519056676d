"""Namespaces: who serves them, with which options, and their pause."""

from __future__ import annotations

from starlette.responses import Response

from progressor.http.server.auth.visible import namespaces_for
from progressor.http.wire.models import plain
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages
from progressor.web.pages.overview import SPAN

pages = Pages()


@pages.get("/namespaces", scope=Scope.PROCESSES_READ)
async def namespaces(request: PageRequest) -> Response:
    """Return the namespaces that the caller sees, with their load."""
    found = namespaces_for(request.caller, await request.server.client.status())
    return request.page("namespaces.html", "Namespaces", namespaces=found)


@pages.get("/namespaces/{namespace}", scope=Scope.PROCESSES_READ)
async def namespace(request: PageRequest, namespace: str) -> Response:
    """Return a namespace: load, options, groups, retention, schemas."""
    client = request.server.client
    (status,) = await client.status(namespace)
    return request.page(
        "namespace.html",
        namespace,
        status=status,
        samples=await client.reader.samples([namespace], within=SPAN),
        published=await client.published(namespace),
        groups=await client.groups(namespace),
        retention=plain(await client.retention(namespace)),
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
