"""The system: is the database well, and do its invariants hold."""

from __future__ import annotations

from starlette.responses import Response

from progressor.http.server.auth.scopes import seen_by
from progressor.release import VERSION
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages, forbidden

pages = Pages()


@pages.get("/system", scope=Scope.ADMIN)
async def system(request: PageRequest) -> Response:
    """Return the health of the database, and who serves what."""
    if seen_by(request.caller) is not None:
        raise forbidden("the system is shown to those who see all namespaces")
    client = request.server.client
    return request.page("system.html", "System", health=await client.health(), version=VERSION)
