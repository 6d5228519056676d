"""A connection that ends at any moment of a start or a check is an error of ours, never a driver's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor import (
    Client,
    Engine,
    Namespace,
    NamespaceNotFound,
    Process,
    ProcessNotFound,
    ProgressorError,
)
from progressor.storage import migrations
from progressor.storage.doctor import examine

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Act = Callable[[str], Awaitable[None]]

_FORTH, _BACK = "what is asked", "what is answered"


class Line:
    """A way to PostgreSQL that is cut once: before it asks so many pieces, or after so many answers."""

    def __init__(self, dsn: str, direction: str, at: int) -> None:
        self._place = conninfo_to_dict(dsn)
        self._direction, self._left = direction, at
        self.is_cut = False
        self._tasks = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def dsn(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            # Each piece is one of the protocol of PostgreSQL.
            yield make_conninfo("", **self._place | {
                "host": "127.0.0.1", "port": port, "sslmode": "disable", "gssencmode": "disable",
            })  # fmt: skip
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._place["host"]), self._place.get("port") or 5432
        if host.startswith("/"):
            far = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            far = await asyncio.open_connection(host, int(port))
        near = reader, writer
        ways = [
            asyncio.create_task(self._carry(near, far, _FORTH)),
            asyncio.create_task(self._carry(far, near, _BACK)),
        ]
        self._tasks.update(ways)

    async def _carry(self, source: Streams, target: Streams, direction: str) -> None:
        try:
            with suppress(ConnectionError):
                while piece := await source[0].read(1 << 16):
                    ends = direction == self._direction and self._ends()
                    if not ends or direction == _BACK:
                        target[1].write(piece)
                        await target[1].drain()
                    if ends:
                        break
        finally:
            source[1].close()
            target[1].close()

    def _ends(self) -> bool:
        self._left -= 1
        self.is_cut = self.is_cut or self._left == 0
        return self._left == 0


billing = Namespace("billing")


@billing.init
async def open_(process: Process) -> None:
    process.state = {}


@billing.call
async def ping(process: Process) -> str:
    return "pong"


async def as_client(dsn: str) -> None:
    async with Client(dsn) as client:
        await client.health()
        with suppress(ProcessNotFound, NamespaceNotFound):
            await client.get("billing", "none")
        await client.search()
        await client.tokens.listed()


async def as_engine(dsn: str) -> None:
    async with Engine(dsn, [billing]) as engine:
        await engine.client.start("billing", "acme", idempotency_key="one")
        assert await engine.client.call("billing", "acme", "ping") == "pong"


async def check(dsn: str) -> None:
    await asyncio.to_thread(migrations.check, dsn)


async def descent(dsn: str) -> None:
    await asyncio.to_thread(migrations.descent, dsn, "0001")


async def upgrade(dsn: str) -> None:
    await asyncio.to_thread(migrations.upgrade, dsn)


async def doctor(dsn: str) -> None:
    await asyncio.to_thread(examine, dsn)


# A cursor of psycopg that cannot tell the server of its end stays open, and warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("direction", [_FORTH, _BACK])
@pytest.mark.parametrize("act", [check, descent, upgrade, doctor])
async def test_a_cut_at_each_piece(dsn: str, act: Act, direction: str) -> None:
    """It goes well, or it is an error of this API: whichever piece the connection ends at."""
    async for through in cut_lines(dsn, direction):
        with suppress(ProgressorError):
            await act(through)


# A cursor of psycopg that cannot tell the server of its end stays open, and warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("direction", [_FORTH, _BACK])
@pytest.mark.parametrize("act", [as_client, as_engine])
async def test_a_cut_at_each_piece_is_survived(dsn: str, act: Act, direction: str) -> None:
    """A client and an engine start and go on, whichever piece one of their connections ends at."""
    async for through in cut_lines(dsn, direction):
        await act(through)


async def cut_lines(dsn: str, direction: str) -> AsyncIterator[str]:
    """DSNs that are cut at each piece, as long as so many are needed."""
    for at in places():
        line = Line(dsn, direction, at)
        async with line.dsn() as through, asyncio.timeout(60):
            yield through
        if not line.is_cut:
            return


def places() -> Iterator[int]:
    """Each of the first pieces, then ever fewer."""
    return itertools.chain(range(1, 41), itertools.count(41, 7))
