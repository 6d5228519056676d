"""The route that watches a process: its changes as server-sent events, until it is removed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Collection
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response

from progressor.client.results import ProcessChange
from progressor.client.watches.positions import place_of
from progressor.client.watches.process_watch import ProcessWatch
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.principals import Principal
from progressor.http.server.auth.scopes import require
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.openapi.operations import STREAM, WATCHES
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName, ProcessId
from progressor.http.server.routers.streams import ROOM, EventStream, event_of, head_of_stream
from progressor.http.wire import headers
from progressor.http.wire.models import plain, state_of
from progressor.http.wire.paths import PROCESS
from progressor.rights import Scope

routes = Routes()


Position = Annotated[
    str | None,
    Field(description="The position of a change to go on behind; the header Last-Event-ID goes before it."),
]
ShowState = Annotated[bool, Field(description="Show the state in each change; it needs state:read.")]
ShowEvents = Annotated[bool, Field(description="Show the new events; it needs state:read.")]


@routes.add(
    "GET",
    PROCESS + "/watch",
    "A process as its steps are committed, as server-sent events",
    scope=Scope.PROCESSES_READ,
    takes=WATCHES,
    answers={200: ("Changes, each a JSON object in `data`, with its position as `id`.", STREAM)},
    problems=(404,),
)
async def watch(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    after: Position = None,
    state: ShowState = False,
    events: ShowEvents = True,
) -> Response:
    """Begin with the process as it is, or with what has changed since a position; end once it is removed.

    An event `problem` has the problem document of an error that ends the stream.
    """
    if state or events:
        require(request.caller, Scope.STATE_READ, namespace)
    request.require_acceptable(headers.STREAM)
    place = place_of(namespace, process_id, request.headers.get(headers.LAST_EVENT_ID) or after)
    if request.scope.get("is_head"):
        return head_of_stream()
    request.move_to(request.server.watch_places)
    watches = request.server.client.watches
    stored = state_of if state else None
    begun = await watches.begin(namespace, process_id, place, state=stored, events=events)
    scopes = [Scope.PROCESSES_READ, *([Scope.STATE_READ] if state or events else [])]
    return ChangeStream(request, begun, scopes, namespace)


class WatchStream(EventStream):
    """A stream about the changes of one process; what it sends of each, subclasses say."""

    def __init__(
        self, request: ApiRequest, watch: ProcessWatch, scopes: Collection[Scope], namespace: str
    ) -> None:
        super().__init__(request)
        self._watch = watch
        self._scopes = scopes
        self._namespace = namespace

    @property
    def _is_over(self) -> bool:
        return self._watch.is_over

    def _leave(self) -> None:
        self._watch.leave()

    async def _comes(self, seconds: float) -> bool:
        return await self._watch.waits(seconds)

    async def _next_parts(self) -> AsyncIterator[bytes]:
        part = await self._part()
        if part is not None:
            yield part

    @abstractmethod
    async def _part(self) -> bytes | None:
        """Read what has changed, and return what is sent of it."""

    def _require(self, caller: Principal) -> None:
        for scope in self._scopes:
            require(caller, scope, self._namespace)

    def _shows_failures(self) -> bool:
        return self._request.reads_failures(self._namespace)


class ChangeStream(WatchStream):
    """The changes of one process, whole."""

    async def _part(self) -> bytes | None:
        await self._request.place.reserve(PAGE_WEIGHT * ROOM)
        change = await self._watch.change()
        if change is None:
            self._request.place.keep(0)
            return None
        return self._kept(self._shown(change))

    def _shown(self, change: ProcessChange) -> bytes:
        shown: dict[str, Any] = plain(change)
        if not self._shows_failures():
            shown["detail"] = None
        return event_of(to_json(shown, fallback=str), position=change.position)
