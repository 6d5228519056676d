"""The route that watches a process: its changes as server-sent events, until it is removed.

Rule: a stream holds no place among requests, and no memory between two changes. It ends once its caller has
left or may not read the process any more, or the server begins to stop: then its reader asks again, behind
the last position that it has.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from progressor.client.results import ProcessChange
from progressor.client.watches.positions import place_of
from progressor.client.watches.process_watch import ProcessWatch
from progressor.errors import ProgressorError
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.openapi.operations import WATCHES
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import NamespaceName, ProcessId
from progressor.http.server.problems import Refusal, problem_of
from progressor.http.wire import headers
from progressor.http.wire.models import plain
from progressor.http.wire.paths import PROCESS
from progressor.rights import Scope

routes = Routes()

# Seconds between two comments of a stream without changes; then its caller is looked up again, too.
_HEARTBEAT = 15.0
# Seconds that the peer may take to accept a part of a stream.
_PATIENCE = 30.0
# Bytes of the events of one change, but one event at least.
_ROOM = 1 << 20
# Milliseconds after which a browser asks again.
_BEGIN = b"retry: 1000\n\n"
_COMMENT = b":\n\n"
_HEADERS = {
    "Cache-Control": "no-store",
    # nginx, and what follows it in this, passes each part on at once.
    "X-Accel-Buffering": "no",
}
_STREAM = {headers.STREAM: {"schema": {"type": "string"}}}

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
    answers={200: ("Changes, each a JSON object in `data`, with its position as `id`.", _STREAM)},
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
        return Response(media_type=headers.STREAM, headers=_HEADERS)
    request.move_to(request.server.watch_places)
    watches = request.server.client.watches
    begun = await watches.begin(namespace, process_id, place, state=state, events=events)
    scopes = [Scope.PROCESSES_READ, *([Scope.STATE_READ] if state or events else [])]
    return ChangeStream(request, begun, scopes, namespace)


class WatchStream(Response, ABC):
    """An answer without an end about the changes of one process; what it sends of each, subclasses say."""

    media_type = headers.STREAM

    def __init__(
        self, request: ApiRequest, watch: ProcessWatch, scopes: list[Scope], namespace: str
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["Content-Length"]
        self._request = request
        self._watch = watch
        self._scopes = scopes
        self._namespace = namespace

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            await send(start)
            # A time-out: nobody reads it any more, or the server stops.
            with suppress(TimeoutError):
                async with self._request.server.waits.streaming(receive), aclosing(self._parts()) as parts:
                    async for part in parts:
                        await _sent(send, part)
                        self._request.place.keep(0)
        finally:
            self._watch.leave()
        with suppress(TimeoutError):
            await _sent(send, b"", more=False)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        """Yield what is sent; end with the problem of an error."""
        yield _BEGIN
        try:
            async for part in self._changes():
                yield part
        except ProgressorError as error:
            shows = self._request.reads_failures(self._namespace)
            yield event_of(bytes(problem_of(error, shows_failures=shows).body), event="problem")
        except Refusal as refusal:
            yield event_of(bytes(refusal.answer().body), event="problem")

    async def _changes(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        checked = clock()
        while not self._watch.is_over:
            has_changed = await self._watch.waits(_HEARTBEAT)
            if clock() - checked >= _HEARTBEAT:
                await self._check()
                checked = clock()
            if not has_changed:
                yield _COMMENT
                continue
            part = await self._part()
            if part is not None:
                yield part

    @abstractmethod
    async def _part(self) -> bytes | None:
        """Read what has changed, and return what is sent of it."""

    async def _check(self) -> None:
        """Raise Refusal if the caller may not read the process any more."""
        caller, _ = await self._request.server.access.admit(self._request)
        for scope in self._scopes:
            require(caller, scope, self._namespace)
        self._request.caller = caller


class ChangeStream(WatchStream):
    """The changes of one process, whole."""

    async def _part(self) -> bytes | None:
        await self._request.place.reserve(PAGE_WEIGHT * _ROOM)
        change = await self._watch.change()
        if change is None:
            self._request.place.keep(0)
            return None
        return self._kept(self._shown(change))

    def _kept(self, part: bytes) -> bytes:
        """Return a part, with the memory that it needs until it is sent; raise Refusal if that is taken."""
        # The size of the state was not known before it was read.
        self._request.place.reserve_now(max(0, PAGE_WEIGHT * (len(part) - _ROOM)))
        self._request.place.keep(PAGE_WEIGHT * len(part))
        return part

    def _shown(self, change: ProcessChange) -> bytes:
        shown: dict[str, Any] = plain(change)
        if not self._request.reads_failures(self._namespace):
            shown["detail"] = None
        return event_of(to_json(shown, fallback=str), position=change.position)


def event_of(data: bytes, *, position: str | None = None, event: str | None = None) -> bytes:
    lines = [] if position is None else [f"id: {position}\n".encode()]
    lines += [] if event is None else [f"event: {event}\n".encode()]
    return b"".join([*lines, b"data: ", data, b"\n\n"])


async def _sent(send: Send, part: bytes, *, more: bool = True) -> None:
    """Send a part; raise TimeoutError if the peer does not take it in time."""
    async with asyncio.timeout(_PATIENCE):
        await send({"type": "http.response.body", "body": part, "more_body": more})
