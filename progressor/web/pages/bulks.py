"""Bulks: what they have repaired, what is left, and how to stop one."""

from __future__ import annotations

from starlette.responses import Response

from progressor.http.server.auth.scopes import seen_by
from progressor.http.server.auth.visible import bulk_for
from progressor.http.server.routers.bulks import seen_bulk
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages, number_of

pages = Pages()

_SHOWN = 100


@pages.get("/bulk", scope=Scope.BULK)
async def bulks(request: PageRequest) -> Response:
    """Return the newest bulks."""
    found = await request.server.client.bulks(limit=_SHOWN, namespaces=seen_by(request.caller))
    return request.page(
        "bulks.html", "Bulk repairs", bulks=[bulk_for(request.caller, each) for each in found]
    )


@pages.get("/bulk/{bulk_id}", scope=Scope.BULK)
async def bulk(request: PageRequest, bulk_id: str) -> Response:
    """Return a bulk and its progress."""
    found = await seen_bulk(request, number_of(bulk_id, "bulk_id"))
    return request.page("bulk.html", f"Bulk {found.bulk_id}", bulk=bulk_for(request.caller, found))


@pages.post("/bulk/{bulk_id}/stop", scope=Scope.BULK)
async def stop_bulk(request: PageRequest, bulk_id: str) -> Response:
    """Begin no more repairs of a bulk."""
    found = await seen_bulk(request, number_of(bulk_id, "bulk_id"))
    await request.server.client.stop_bulk(found.bulk_id)
    return request.to(f"bulk/{found.bulk_id}", "The bulk begins no more repairs.")
