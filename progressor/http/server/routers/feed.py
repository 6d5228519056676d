"""The route of the feed: what processes do, a page at a time or as server-sent events.

Rule: a caller reads namespaces that the token sees, and no others, whatever patterns are asked for. What
was read of the feed is not kept here: a caller goes on behind the last position that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response

from progressor.app.projection import MOST_NAMES
from progressor.client.feed.events import filter_of
from progressor.client.feed.positions import check_start, position_of
from progressor.client.feed.reading import FeedReading
from progressor.client.results import FeedEvent
from progressor.errors import ProgressorError
from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.principals import Principal
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.openapi.operations import FOLLOWS, STREAM, content_of
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import text_like
from progressor.http.server.problems import problem_of
from progressor.http.server.request_headers import asks_for
from progressor.http.server.routers.streams import (
    ROOM,
    EventStream,
    event_of,
    head_of_stream,
    problem_event,
)
from progressor.http.wire import headers
from progressor.http.wire.models import FeedBody, plain
from progressor.http.wire.paths import FEED
from progressor.model import FEED_KINDS, FeedKind
from progressor.rights import MOST_PATTERNS, PATTERN_OF_NAMES, Scope
from progressor.storage import MOST_FEED_ENTRIES, FeedEntry

routes = Routes()

# Seconds in which a page is looked for among what is there by now; the next page goes on behind that.
_SEARCH = 1.0

# The patterns are for the document alone; the texts are checked elsewhere.
Names = Annotated[
    list[Annotated[str, text_like(PATTERN_OF_NAMES)]] | None,
    Field(
        max_length=MOST_PATTERNS,
        description="Names, or patterns as `billing.*`; none: all that the token sees.",
    ),
]
EventNames = Annotated[
    list[Annotated[str, text_like(r"^[^\u0000]+$")]] | None,
    Field(max_length=MOST_NAMES, description="Names of events; none: all."),
]
Kinds = Annotated[
    list[FeedKind],
    Field(
        min_length=1,
        max_length=len(FEED_KINDS),
        description="`event`, which needs state:read, and what happens to processes.",
    ),
]
After = Annotated[
    bodies.Moment | str,
    Field(
        union_mode="left_to_right",
        description="`latest`, `beginning`, a time with its offset, or a position to go on behind it.",
    ),
]
Limit = Annotated[int, Field(ge=1, le=MOST_FEED_ENTRIES, description="Of a page.")]


@routes.add(
    "GET",
    FEED,
    "What processes do, in the order in which it was committed",
    scope=Scope.PROCESSES_READ,
    takes=FOLLOWS,
    answers={
        200: (
            "A page; or events without an end, each in `data`, for who accepts `text/event-stream`.",
            {**content_of(FeedBody), **STREAM},
        )
    },
    problems=(404, 410),
)
async def feed(
    request: ApiRequest,
    namespaces: Names = None,
    events: EventNames = None,
    kinds: Kinds = ["event"],  # noqa: B006 - it is not changed
    after: After = "latest",
    limit: Limit = 100,
) -> Response:
    """Return the entries behind `after`, oldest first, of namespaces with a feed.

    A page has up to `limit` of them, or waits for some as `Prefer: wait=N` says. A stream goes on until its
    caller leaves; an event `problem` has the problem document of an error that ends it.
    """
    wanted = filter_of(namespaces, events, kinds)
    shown = Shown(namespaces, [Scope.PROCESSES_READ, *([Scope.STATE_READ] if "event" in kinds else [])])
    patterns = shown.patterns_for(request.caller)
    is_stream = asks_for(request.headers, headers.STREAM)
    request.require_acceptable(headers.STREAM if is_stream else headers.JSON)
    start = check_start("after", request.headers.get(headers.LAST_EVENT_ID, "").strip() or after)
    is_head = bool(request.scope.get("is_head"))
    if is_stream and not is_head:
        request.move_to(request.server.watch_places)
    wanted = wanted._replace(namespaces=patterns)
    reading = await request.server.client.readings.begin(wanted, start)
    if not is_stream:
        return await _page(request, reading, limit)
    return head_of_stream() if is_head else FeedStream(request, reading, shown)


class Shown:
    """The namespaces that a caller asks for, None for all that the token sees, with the scopes needed."""

    def __init__(self, namespaces: Sequence[str] | None, scopes: Collection[Scope]) -> None:
        self._namespaces = namespaces
        self._scopes = scopes

    def patterns_for(self, caller: Principal) -> Sequence[str] | None:
        """Return the patterns to read, None for all; raise Refusal if the caller may not read them all."""
        patterns = seen_by(caller) if self._namespaces is None else self._namespaces
        # A pattern is seen if one of the token fits all that it fits: each of its stars stands below one.
        for pattern in patterns or ("*",):
            for scope in self._scopes:
                require(caller, scope, pattern)
        return patterns


async def _page(request: ApiRequest, reading: FeedReading, limit: int) -> Response:
    room = request.server.options.max_page_bytes
    found: list[FeedEntry] = []

    async def wait(seconds: float) -> None:
        nonlocal found
        found = await look_for(request, reading, seconds, limit=limit, room=room)

    # A time-out: the server stops, or the caller has left. What comes is told to who asks again.
    with suppress(TimeoutError):
        await request.waited(wait, default=0.0)
    # One entry more than there is room for may have come.
    size = sum(len(entry.payload or b"") for entry in found)
    request.place.reserve_now(PAGE_WEIGHT * max(0, size - room))
    told: list[FeedEvent] = []
    for entry in found:
        try:
            told.append(await reading.told(entry))
        except Exception as error:
            # A codec is the user's code.
            if told:
                break
            if not isinstance(error, ProgressorError):
                raise
            return problem_of(error, shows_failures=False, position=position_of(entry.place))
    is_whole = len(told) == len(found)
    members = {
        "position": reading.position if is_whole else told[-1].position,
        "has_more": reading.has_more or not is_whole,
    }
    request.place.keep(PAGE_WEIGHT * size)
    return bodies.Listed("events", (plain(event) for event in told), members)


async def look_for(
    request: ApiRequest, reading: FeedReading, seconds: float, *, limit: int, room: int
) -> list[FeedEntry]:
    """Return the next entries, with memory taken for `room` bytes of them; none if none came in time.

    However little time there is, a second is for what is there by now: a filter may fit little of it.
    """
    clock = asyncio.get_running_loop().time
    begun = clock()
    while True:
        await request.place.reserve(PAGE_WEIGHT * room)
        found = await reading.look(limit=limit, room=room)
        if found:
            return found
        request.place.keep(0)
        if clock() - begun >= (max(seconds, _SEARCH) if reading.has_more else seconds):
            return []
        await reading.pause()


class FeedStream(EventStream):
    """The entries of the feed, as they come."""

    def __init__(self, request: ApiRequest, reading: FeedReading, shown: Shown) -> None:
        super().__init__(request)
        self._reading = reading
        self._shown = shown
        self._patterns = shown.patterns_for(request.caller)
        self._is_ended = False
        self._is_begun = False
        self._found: list[FeedEntry] = []

    async def _comes(self, seconds: float) -> bool:
        # The position first: a caller whose stream is lost before anything came goes on behind it.
        seconds = seconds if self._is_begun else 0.0
        self._is_begun = True
        self._found = await look_for(
            self._request, self._reading, seconds, limit=MOST_FEED_ENTRIES, room=ROOM
        )
        return bool(self._found)

    async def _next_parts(self) -> AsyncIterator[bytes]:
        blocks: list[bytes] = []
        for entry in self._found:
            try:
                event = await self._reading.told(entry)
            except Exception as error:
                # A codec is the user's code.
                if blocks:
                    yield self._kept(b"".join(blocks))
                if not isinstance(error, ProgressorError):
                    raise
                self._is_ended = True
                yield problem_event(
                    problem_of(error, shows_failures=False, position=position_of(entry.place))
                )
                return
            blocks.append(event_of(to_json(plain(event), fallback=str), position=event.position))
        self._found = []
        yield self._kept(b"".join(blocks))

    def _sign_of_life(self) -> bytes:
        # A reader of rare events goes on behind all that was passed over.
        return b"id: %s\n\n" % self._reading.position.encode()

    @property
    def _is_over(self) -> bool:
        return self._is_ended

    def _require(self, caller: Principal) -> None:
        # Whoever asks again reads what the token sees by then.
        self._is_ended = self._shown.patterns_for(caller) != self._patterns
