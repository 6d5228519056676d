"""A line to PostgreSQL that fails when it is told to: cut, held, closed to all, or cut at a commit.

It reads the frontend's messages, so it knows by the names of the prepared statements which operation of
the engine travels, and where its transaction ends: with the Sync that libpq's pipeline mode sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

_PIECE = 1 << 16
_LENGTH = struct.Struct(">i")
# A transaction that was fully sent but for its end: time for the server to get hold of it.
_SETTLE = 0.02


class AtCommit(StrEnum):
    """Where a connection is cut, seen from one transaction."""

    BEFORE = "cut before COMMIT"
    """Its statements reached the server, its end did not: it must not have happened."""
    DURING = "cut at COMMIT"
    """Its end was sent, and the line was cut at once: nobody knows."""
    AFTER = "answer of COMMIT lost"
    """It was committed, and its answer thrown away: it happened, and the engine does not know."""


@dataclass
class Trap:
    """Springs once, at the next transaction that carries one of the verbs."""

    where: AtCommit
    verbs: frozenset[str]
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    verb: str = ""


class Proxy:
    """Listens on a free port of 127.0.0.1; passes everything on to one Unix socket."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._lines: set[_Line] = set()
        self._server: asyncio.Server | None = None
        self._refuses = False
        self.passes = asyncio.Event()
        self.passes.set()
        self.trap: Trap | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> int:
        """Cut all connections; how many there were."""
        lines = list(self._lines)
        for line in lines:
            line.cut()
        return len(lines)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Nothing is passed on, in either direction."""
        self.passes.clear()
        try:
            yield
        finally:
            self.passes.set()

    @asynccontextmanager
    async def partitioned(self) -> AsyncIterator[None]:
        """Everything is cut, and nobody let in."""
        self._refuses = True
        self.cut()
        try:
            yield
        finally:
            self._refuses = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            far = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self, (reader, writer), far)
        self._lines.add(line)
        try:
            await line.run()
        finally:
            self._lines.discard(line)


class _Line:
    def __init__(
        self,
        proxy: Proxy,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._near_reader, self._near_writer = near
        self._far_reader, self._far_writer = far
        self._swallows: Trap | None = None

    def cut(self) -> None:
        self._near_writer.transport.abort()
        self._far_writer.transport.abort()

    async def run(self) -> None:
        ways = [asyncio.create_task(self._forth()), asyncio.create_task(self._back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.cut()

    async def _forth(self) -> None:
        """What the engine says, message by message."""
        messages = _Messages(greeting=True)
        names: set[str] = set()
        with contextlib.suppress(ConnectionError):
            while piece := await self._near_reader.read(_PIECE):
                passed = b""
                for kind, message in messages.of(piece):
                    if kind == b"B":
                        names.add(_statement_of(message))
                    trap = self._proxy.trap
                    if kind == b"S" and trap is not None and names & trap.verbs:
                        trap.verb = ", ".join(sorted(names & trap.verbs))
                        self._proxy.trap = None
                        await self._spring(trap, passed, message)
                        return
                    if kind == b"S":
                        names.clear()
                    passed += message
                await self._pass(self._far_writer, passed)

    async def _spring(self, trap: Trap, passed: bytes, sync: bytes) -> None:
        if trap.where is AtCommit.BEFORE:
            await self._pass(self._far_writer, passed)
            await asyncio.sleep(_SETTLE)
            trap.sprung.set()
        elif trap.where is AtCommit.DURING:
            await self._pass(self._far_writer, passed + sync)
            trap.sprung.set()
        else:
            self._swallows = trap
            await self._pass(self._far_writer, passed + sync)
            # The other way hears the server out, and ends the line.
            await asyncio.Event().wait()

    async def _back(self) -> None:
        """What the server says."""
        messages = _Messages(greeting=False)
        with contextlib.suppress(ConnectionError):
            while piece := await self._far_reader.read(_PIECE):
                trap = self._swallows
                kinds = {kind for kind, _ in messages.of(piece)}
                if trap is None:
                    await self._pass(self._near_writer, piece)
                elif b"Z" in kinds:
                    trap.sprung.set()
                    return

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._proxy.passes.wait()
        writer.write(data)
        await writer.drain()


class _Messages:
    """Splits a stream into messages: a kind, a length, a body; the frontend's first has no kind."""

    def __init__(self, *, greeting: bool) -> None:
        self._greeting = greeting
        self._rest = b""

    def of(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        data, at = self._rest + piece, 0
        while True:
            head = 0 if self._greeting else 1
            if len(data) < at + head + 4:
                break
            end = at + head + _LENGTH.unpack_from(data, at + head)[0]
            if len(data) < end:
                break
            kind = b"" if self._greeting else data[at : at + 1]
            self._greeting = False
            yield kind, data[at:end]
            at = end
        self._rest = data[at:]


def _statement_of(bind: bytes) -> str:
    """The prepared statement's name, in any session: behind kind, length and the portal's name."""
    _portal, name, _rest = bind[5:].split(b"\0", 2)
    return name.decode(errors="replace").removeprefix("progressor.")
