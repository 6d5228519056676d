"""Connections to the API's socket, and the bounds on what their peers send before they are authenticated.

Rule: whatever a peer sends, and however slowly, a connection holds a bounded number of bytes for a bounded
time. Input that is no request is answered with a problem document, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto
from typing import Any

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from progressor import metrics
from progressor.http.server.problems import problem
from progressor.http.wire.problems import (
    HEAD_TOO_LARGE,
    MALFORMED,
    OVERLOADED,
    RETRY_AFTER_SECONDS,
    TOO_SLOW,
    Kind,
)
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines
from progressor.supervision import watched

log = Logger("progressor.http")

# The head of a request: its URL and all header fields. The trailers of a body may have as many bytes.
HEAD_BYTES = 64 << 10
HEAD_FIELDS = 200
HEAD_SECONDS = 20.0
# Bytes that all connections of a server hold together, and that no request has read yet.
HELD_BYTES = 32 << 20
# Bytes of a body that are held for each request under way; the peer keeps the rest until it is read.
_BODY_BYTES = 16 << 10
# Bytes of a body that are copied to leave in one piece with its head.
_JOINED_BYTES = 16 << 10
# Bytes; a body is parsed in such pieces, so that few requests behind it begin before it is answered.
_PIECE_BYTES = 1 << 10
_HEAD_ENDS = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_FRAMING = (b"content-length", b"transfer-encoding")
# Seconds that a refused peer may go on to send, so that it reads the refusal and no broken connection.
_LINGER_SECONDS = 2.0
_UNKNOWN = "other"

_FULL = OutageLines(
    "connections at their bound", "connections still at their bound", "connections below their bound"
)


class HttpConnections:
    """The connections of one server, at most `most` at once.

    At the bound a new connection takes the place of the one that has been idle for longest.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0
        self.held_bytes = 0
        self._idle: dict[HttpConnection, None] = {}
        self._outage = Outage(log, _FULL, most=most, setting="PROGRESSOR_HTTP_MAX_CONNECTIONS")

    def make(self, **of_uvicorn: Any) -> HttpConnection:
        """Return a new connection of this server; uvicorn calls this."""
        return HttpConnection(self, **of_uvicorn)

    def enter(self, connection: HttpConnection) -> bool:
        """Count a new connection; return False if there is no room for it, and it must be refused."""
        self._count += 1
        self._idle[connection] = None
        if self._count <= self.most:
            self._outage.worked()
            return True
        oldest = next(iter(self._idle))
        self._outage.failed(
            "every connection has a request under way"
            if oldest is connection
            else "the connection that was idle for longest is closed for a new one"
        )
        if oldest is not connection:
            oldest.drop()
        return oldest is not connection

    def leave(self, connection: HttpConnection) -> None:
        """Forget a connection that is closed."""
        self._count -= 1
        self._idle.pop(connection, None)
        self.held_bytes -= connection.held

    def note_request(self, connection: HttpConnection) -> None:
        """Note that the connection has a request under way."""
        self._idle.pop(connection, None)

    def note_idle(self, connection: HttpConnection) -> None:
        """Note that the connection waits for its next request from now on."""
        self._idle[connection] = None

    def note_held(self, more: int) -> bool:
        """Note that a connection holds so many bytes more, or fewer; return False if there is no room.

        The connections that have been idle for longest are closed to make room.
        """
        self.held_bytes += more
        while self.held_bytes > HELD_BYTES and self._idle:
            next(iter(self._idle)).drop()
        return self.held_bytes <= HELD_BYTES


class _Flow(FlowControl):
    """The flow control of a connection: it reads the bytes that it holds before more from the peer."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        if self.read_paused:
            super().resume_reading()
            # In a later turn of the loop: uvicorn is not done yet with the request before.
            self._connection.loop.call_soon(self._connection.on_room)


class AnswerTransport(asyncio.Transport):
    """The transport of one answer: a head that states the length of its body leaves with that body.

    uvicorn writes them one after the other, which would be a system call and a packet for each. The head of
    a stream leaves at once: its first part may be long in coming.
    """

    def __init__(self, connection: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._head: bytes | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hold the head of an answer of a stated length until more is written; write all else."""
        if self._head is None and _LENGTH in bytes(data):
            self._head = bytes(data)
        elif self._head and len(data) <= _JOINED_BYTES:
            head, self._head = self._head, b""
            self._connection.write(head + data)
        else:
            self.flush()
            self._connection.write(data)

    def flush(self) -> None:
        """Write the head if it is held still: an answer without a body has ended."""
        head, self._head = self._head, b""
        if head and not self._connection.is_closing():
            self._connection.write(head)

    def is_closing(self) -> bool:
        return self._connection.is_closing()

    def close(self) -> None:
        self.flush()
        self._connection.close()


class _TooManyFields(Exception):
    pass


class _Stage(Enum):
    """The part of a request that comes next."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()


class HttpConnection(HttpToolsProtocol):
    """One connection: its requests are read one after the other, each once the one before is answered."""

    def __init__(self, connections: HttpConnections, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._connections = connections
        self._place = _Stage.BETWEEN
        self._rest = b""
        # Bytes that the parser was given since it last handed over a head or a part of a body.
        self._unparsed = 0
        self.held = 0
        self._refusal: tuple[Kind, str] | None = None
        self._is_refused = False
        # While a parser is told the head of a request that has begun already.
        self._is_told = False
        self._timer: asyncio.TimerHandle | None = None
        self.on_room = watched("connection", self._read_on)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        self.flow = _Flow(self)
        if self._connections.enter(self):
            self._wait_for_more()
            return
        most = self._connections.most
        self._refuse(OVERLOADED, f"{most:,} connections are open here, which is as many as it takes")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        self._rest, self.held = b"", 0
        self._forget_timer()
        super().connection_lost(exc)

    def _wait_for_more(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def drop(self) -> None:
        """Close a connection that has no request, at once."""
        self._connections.note_request(self)
        self._note_held(0)
        self._is_refused, self._rest = True, b""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        self._rest += data
        self._read_on()

    def _read_on(self) -> None:
        """Parse the bytes that have come, as far as there is room; hold the rest, and read no more."""
        data, begin = self._rest, 0
        while begin < len(data) and not self.flow.read_paused and self._is_open:
            if self._is_answering:
                self.flow.pause_reading()
                break
            piece = data[begin : self._end_of_piece(data, begin)]
            begin += len(piece)
            self._parse(piece)
        if not self._is_open:
            return
        self._rest = data[begin:]
        if not self._note_held(self._unparsed + len(self._rest)):
            self._refuse(OVERLOADED, "too much has been sent here that nobody has read yet")
        elif self._place is _Stage.BODY and not self._is_under_way:
            # The request was answered before its whole body had come: read the rest, as long as it comes.
            self._unset_keepalive_if_required()
            self._wait_for_more()
        elif self._timer is None and not self._is_under_way and data:
            # A request has begun: its head must be whole in time.
            self._timer = self.loop.call_later(HEAD_SECONDS, watched("connection", self._be_late))

    @property
    def _is_open(self) -> bool:
        """Return whether bytes that come are still read."""
        return not (self._is_refused or self._refusal or self.transport.is_closing())

    @property
    def _is_under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_answering(self) -> bool:
        """Return whether a request has been read whole, and is not answered yet."""
        return bool(self.pipeline) or (self._is_under_way and not self.cycle.more_body)

    def _end_of_piece(self, data: bytes, begin: int) -> int:
        if self._place is _Stage.BODY:
            return begin + _PIECE_BYTES
        # A head alone, so that no request behind it begins yet.
        end = data.find(_HEAD_ENDS, begin)
        return len(data) if end < 0 else end + len(_HEAD_ENDS)

    def _parse(self, piece: bytes) -> None:
        self._unparsed += len(piece)
        if self._unparsed > HEAD_BYTES:
            self._refuse(HEAD_TOO_LARGE, f"URL and header fields may have {HEAD_BYTES:,} bytes at most")
            return
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._decline_upgrade()
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _TooManyFields):
                self._refuse(HEAD_TOO_LARGE, f"a request may have {HEAD_FIELDS} header fields at most")
            else:
                self._refuse(MALFORMED, "this is no request of HTTP/1.1")

    def _decline_upgrade(self) -> None:
        """Answer a request that asks for another protocol in HTTP/1.1, with its body if it has one.

        httptools takes such a request for one without: so another parser is told how its body comes.
        """
        framing = [b"%b: %b\r\n" % field for field in self.headers if field[0] in _FRAMING]
        if not framing:
            # Nothing behind it is answered, for it may be of that protocol.
            self.cycle.keep_alive = False
            return
        self.cycle.more_body, self._place = True, _Stage.BODY
        self.parser, self._is_told = httptools.HttpRequestParser(self), True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
        self._is_told = False

    def on_message_begin(self) -> None:
        if not self._is_told:
            super().on_message_begin()
            self._place = _Stage.HEAD

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are dropped: no route reads them.
        if self._place is _Stage.HEAD:
            if len(self.headers) == HEAD_FIELDS:
                raise _TooManyFields
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_told:
            return
        super().on_headers_complete()
        self.cycle.transport = AnswerTransport(self.transport)
        self._place, self._unparsed = _Stage.BODY, 0
        self._forget_timer()
        self._connections.note_request(self)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unparsed = 0
        if len(self.cycle.body) > _BODY_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._place, self._unparsed = _Stage.BETWEEN, 0

    def on_response_complete(self) -> None:
        if isinstance(answer := self.cycle.transport, AnswerTransport):
            # Before anything that comes behind this answer.
            answer.flush()
        super().on_response_complete()
        if self.transport.is_closing() or self._is_under_way:
            return
        self.cycle.body.clear()
        self._connections.note_idle(self)
        if self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._rest:
            self._unset_keepalive_if_required()
            self._read_on()

    def _note_held(self, held: int) -> bool:
        if held == self.held:
            return True
        more, self.held = held - self.held, held
        return self._connections.note_held(more)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _be_late(self) -> None:
        self._timer = None
        if self._place is _Stage.HEAD:
            self._refuse(TOO_SLOW, f"URL and header fields did not come within {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Answer input that is no request with a problem, after the requests before it, and close."""
        if self._is_answering:
            self._refusal, self._rest = (kind, detail), b""
            self._note_held(self._unparsed)
            return
        if self._is_under_way:
            # Its body ends here: the route that reads it sees a disconnect.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        self._is_refused, self._rest = True, b""
        self._note_held(0)
        self._unset_keepalive_if_required()
        self._forget_timer()
        metrics.took(metrics.HTTP_REQUEST, time.monotonic(), _UNKNOWN, _UNKNOWN, str(kind.status))
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if kind is OVERLOADED else {}
        self.transport.write(_written(problem(kind, detail, headers={**headers, "Connection": "close"})))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def _written(answer: Response) -> bytes:
    """Return an answer as the bytes of HTTP/1.1."""
    lines = [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
    return b"".join([STATUS_LINE[answer.status_code], *lines, b"\r\n", bytes(answer.body)])
