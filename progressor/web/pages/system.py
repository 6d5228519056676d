"""The system: is the database well, do its invariants hold, and which settings does this console have.

Rule: every look has an end. What could take longer than a page is asked for by a link of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta

from starlette.responses import Response

from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable
from progressor.http.server.problems import not_now
from progressor.http.server.routers.health import health_of
from progressor.http.wire.problems import OVERLOADED
from progressor.monitoring import DatabaseFigures
from progressor.release import VERSION
from progressor.rights import Scope
from progressor.storage.doctor import advice_on
from progressor.web.page import PageRequest, Pages

pages = Pages()

# Seconds that the database may take for its figures.
_SECONDS = 5.0
# The time that an examination may take: its snapshot keeps dead rows, and somebody waits for the page.
_LONGEST_EXAMINATION = timedelta(seconds=10)


@pages.get("/system", scope=Scope.ADMIN)
async def system(request: PageRequest) -> Response:
    """Return the health of the database, its figures, who serves what, and the settings."""
    request.require_all("the system is")
    server = request.server
    return request.page(
        "system.html",
        "System",
        health=await health_of(server),
        figures=await _figures(request),
        needed=server.client.system.needed_revision,
        settings={"client": server.client.system.settings, "console": asdict(server.options)},
        version=VERSION,
    )


async def _figures(request: PageRequest) -> DatabaseFigures | None:
    try:
        async with asyncio.timeout(_SECONDS):
            return await request.server.client.system.database()
    except (TimeoutError, StorageUnavailable, SchemaMismatch):
        # The health above says what is wrong.
        return None


@pages.get("/system/doctor", scope=Scope.ADMIN)
async def doctor(request: PageRequest) -> Response:
    """Return what the quick checks of the doctor find, with what to do."""
    request.require_all("the system is")
    try:
        report = await request.server.client.system.examine(within=_LONGEST_EXAMINATION)
    except InvalidRequest as error:
        raise not_now(OVERLOADED, str(error)) from None
    return request.page(
        "doctor.html", "Doctor", report=report, advice_on=advice_on, within=_LONGEST_EXAMINATION
    )
