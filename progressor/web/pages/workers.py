"""Workers: OS processes with a heartbeat."""

from __future__ import annotations

from starlette.responses import Response

from progressor.http.server.auth.visible import workers_for
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages

pages = Pages()


@pages.get("/workers", scope=Scope.ADMIN)
async def workers(request: PageRequest) -> Response:
    """Return them by host, silent ones too."""
    found = workers_for(request.caller, await request.server.client.workers())
    return request.page("workers.html", "Workers", workers=found)
