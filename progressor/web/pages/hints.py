"""Hints that a process has changed: a stream that tells its page when to ask anew.

Rule: nothing of the process stands in it, so a page shows what its own request may read. Without the stream
a page is as right, and five seconds later.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from progressor.http.server.routers.streams import event_of
from progressor.http.server.routers.watches import WatchStream
from progressor.http.wire.headers import STREAM
from progressor.rights import Scope
from progressor.web.page import PageRequest, Pages
from progressor.web.pages.process import PATH

pages = Pages()

# Seconds between two hints: whatever happens meanwhile is one.
_PACE = 1.0
_CHANGED = event_of(b"", "changed")


@pages.get(PATH + "/hints", scope=Scope.PROCESSES_READ)
async def hints(request: PageRequest, namespace: str, process_id: str) -> Response:
    """Return a hint at once, and one after each change, until the process is removed."""
    if request.scope.get("is_head"):
        return Response(media_type=STREAM)
    request.move_to(request.server.watch_places)
    watches = request.server.client.watches
    watch = await watches.begin(namespace, process_id, None, events=False)
    return HintStream(request, watch, [Scope.PROCESSES_READ], namespace)


class HintStream(WatchStream):
    """The moments at which a process has changed."""

    _next_at = 0.0

    async def _part(self) -> bytes | None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._next_at - clock()))
        if await self._watch.change() is None:
            return None
        self._next_at = clock() + _PACE
        return _CHANGED
