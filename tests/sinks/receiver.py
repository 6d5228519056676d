"""A receiver of webhooks: an HTTP server of a few lines, which answers as a test says, byte by byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request as it came."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Keeps what it received; a connection lasts until its answer closes it, or the client leaves."""

    def __init__(self, answer: Answer) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                received = await _read(reader)
                self.received.append(received)
                await self._answer(received, writer)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(first.split(" ")[1], headers, body)


def status(code: int, *headers: str) -> Answer:
    """An answer of this status, after which the connection goes on."""

    async def answer(_received: Received, writer: asyncio.StreamWriter) -> None:
        head = "\r\n".join([f"HTTP/1.1 {code} So", *headers, "Content-Length: 2"])
        writer.write(f"{head}\r\n\r\nok".encode())

    return answer


@asynccontextmanager
async def receiving(
    answer: Answer, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """A receiver on a port of its own, until the end of the block; no connection outlives it."""
    receiver = Receiver(answer)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            serving.discard(task)

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()
