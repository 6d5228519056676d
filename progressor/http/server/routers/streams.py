"""Server-sent events: answers without an end, for the routes that watch a process or follow the feed.

Rule: a stream holds no place among requests, and no memory between two parts. It ends once its caller has
left or may not read any more what it shows, or the server begins to stop: then its reader asks again,
behind the last position that it has.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from progressor.errors import ProgressorError
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.principals import Principal
from progressor.http.server.bodies import PIECE, NotTaken, sent
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.problems import Refusal, problem, problem_of
from progressor.http.wire import headers
from progressor.http.wire.problems import DEFECT
from progressor.loggers import Logger

log = Logger("progressor.http")

ROOM = 1 << 20
"""Bytes of the values of one part, but one value at least."""

# Seconds between two comments of a stream where nothing happens; then its caller is looked up again, too.
_HEARTBEAT = 15.0
# Milliseconds after which a browser asks again.
_BEGIN = b"retry: 1000\n\n"
_HEADERS = {
    "Cache-Control": "no-store",
    # nginx, and what follows it in this, passes each part on at once.
    "X-Accel-Buffering": "no",
}


def head_of_stream() -> Response:
    """Return the answer to HEAD."""
    return Response(media_type=headers.STREAM, headers=_HEADERS)


class EventStream(Response, ABC):
    """An answer without an end; what it sends, subclasses say."""

    media_type = headers.STREAM

    def __init__(self, request: ApiRequest) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["Content-Length"]
        self._request = request

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        # Of a peer that takes nothing any more no more is kept than a piece.
        with suppress(NotTaken):
            try:
                await send(start)
                # A time-out: the caller has left, or the server stops.
                with suppress(TimeoutError):
                    async with (
                        self._request.server.waits.streaming(receive),
                        aclosing(self._parts()) as parts,
                    ):
                        async for part in parts:
                            for begin in range(0, len(part), PIECE):
                                await sent(send, part[begin : begin + PIECE])
                            self._request.place.keep(0)
            finally:
                self._leave()
            await sent(send, b"", more=False)

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        """Yield what is sent; end with the problem of an error."""
        yield _BEGIN
        try:
            async for part in self._until_over():
                yield part
        except ProgressorError as error:
            yield problem_event(problem_of(error, shows_failures=self._shows_failures()))
        except Refusal as refusal:
            yield problem_event(refusal.answer())
        except Exception:
            log.exception("request failed", extra={"method": self._request.method, **self._request.facts})
            yield problem_event(problem(DEFECT, "a defect of the API, which its log describes"))

    async def _until_over(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        checked = clock()
        while not self._is_over:
            comes = await self._comes(_HEARTBEAT)
            if clock() - checked >= _HEARTBEAT:
                caller, _ = await self._request.server.access.admit(self._request)
                self._require(caller)
                self._request.caller = caller
                checked = clock()
                if self._is_over:
                    return
            if not comes:
                yield self._sign_of_life()
                continue
            async for part in self._next_parts():
                yield part

    @property
    def _is_over(self) -> bool:
        """True if nothing more is to be sent."""
        return False

    def _leave(self) -> None:
        """Give back what the stream holds."""

    def _sign_of_life(self) -> bytes:
        """Return what is sent where nothing happens."""
        return b":\n\n"

    @abstractmethod
    async def _comes(self, seconds: float) -> bool:
        """Wait for so long until there is something to send; return False if there is nothing."""

    @abstractmethod
    def _next_parts(self) -> AsyncIterator[bytes]:
        """Yield what is to be sent now."""

    @abstractmethod
    def _require(self, caller: Principal) -> None:
        """Raise Refusal if the caller may not read any more what the stream shows."""

    def _shows_failures(self) -> bool:
        """Return whether the caller may read the texts of failures."""
        return False

    def _kept(self, part: bytes) -> bytes:
        """Return a part, with the memory that it needs until it is sent; raise Refusal if that is taken.

        Memory for ROOM was taken before its values were read, whose size was not known.
        """
        self._request.place.reserve_now(max(0, PAGE_WEIGHT * (len(part) - ROOM)))
        self._request.place.keep(PAGE_WEIGHT * len(part))
        return part


def event_of(data: bytes, event: str | None = None, *, position: str | None = None) -> bytes:
    """Return an event of a stream, of a type unless it is a message, with its position as `id`."""
    lines = [] if position is None else [b"id: %s\n" % position.encode()]
    lines += [] if event is None else [b"event: %s\n" % event.encode()]
    return b"".join([*lines, b"data: ", data, b"\n\n"])


def problem_event(answer: Response) -> bytes:
    """Return the event that ends a stream with a problem."""
    return event_of(bytes(answer.body), "problem")
