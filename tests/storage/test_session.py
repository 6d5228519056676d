"""The engine's own connection: what its event loop watches, and until when."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import datetime
from typing import Any

import psycopg
import pytest
import uvloop
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.sqlstates import judged
from progressor.storage.postgres.watch import has_ended
from progressor.storage.statements import STATEMENTS
from tests.support import T0, Tables, eventually

LARGE = "x" * (8 << 20)


class Watched:
    """What a session asks its loop to watch, call by call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.calls: list[str] = []
        for name in ("add_reader", "remove_reader", "add_writer", "remove_writer"):
            monkeypatch.setattr(loop, name, self._noted(name, getattr(loop, name)))

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            self.calls.append(name)
            return call(*args)

        return noted


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[Session]:
    connections = SessionPool(dsn, limit=1)
    async with connections.acquire() as session:
        await session.transact({"begin": {}, "rollback": {}})
        yield session
    await connections.close()


@pytest.fixture
async def watched(session: Session, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """From after the first transaction on."""
    return Watched(monkeypatch)


async def _use(session: Session) -> None:
    assert (await session.transact({"server_version": {}}))["server_version"]


class Nothing:
    """A look at the socket that never finds an answer there already, however slow this machine is."""

    def poll(self, _: float) -> list[tuple[int, int]]:
        return []


@pytest.fixture
def unhurried(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is there before it is waited for sets the watch anew: here none is."""
    monkeypatch.setattr(session._watch, "_arrivals", Nothing())


@pytest.mark.usefixtures("unhurried")
async def test_the_socket_stays_watched(session: Session, watched: Watched) -> None:
    """A transaction neither sets the watch nor takes it away: both are system calls."""
    for _ in range(3):
        await _use(session)
    assert watched.calls == []


@pytest.mark.usefixtures("unhurried")
async def test_what_is_large_is_sent_while_answers_are_read(session: Session, watched: Watched) -> None:
    """While not all has left, the loop watches for room too; the other watch stays."""
    for _ in range(2):
        await session.transact({"find_tokens": {"now": None, "token_id": LARGE}})
    assert set(watched.calls) == {"add_writer", "remove_writer"}
    assert watched.calls[-1] == "remove_writer"
    await _use(session)


async def test_a_session_that_ended_is_not_watched_for_good(
    session: Session, watched: Watched, tables: Tables
) -> None:
    """What arrives unasked is left to its next user: a watch for it would go off again and again."""
    pid = session._pgconn.backend_pid
    tables.execute("SELECT pg_terminate_backend(%s)", pid)
    await eventually(lambda: "remove_reader" in watched.calls, "the watch is taken away")
    await asyncio.sleep(0)
    assert watched.calls == ["remove_reader"]
    with pytest.raises(psycopg.OperationalError):
        await _use(session)
    assert session.is_lost


async def test_no_watch_outlives_its_session(session: Session, watched: Watched) -> None:
    """The next one may get its descriptor."""
    await session.close()
    assert watched.calls == ["remove_reader"]


@pytest.mark.usefixtures("unhurried")
async def test_a_wait_that_is_cancelled_leaves_nothing_behind(session: Session, watched: Watched) -> None:
    """The loop watches the session no longer, and it is not taken for one that can be used again."""
    waiting = asyncio.create_task(session.transact({"begin": {}, "server_version": {}, "rollback": {}}))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not session.is_idle
    await session.close()
    assert watched.calls == ["remove_reader"]


class Reset:
    """A way to the server, whose end here can be reset as a firewall does it."""

    def __init__(self, dsn: str) -> None:
        self._far = conninfo_to_dict(dsn)
        self._near: asyncio.StreamWriter | None = None

    @asynccontextmanager
    async def dsn(self) -> AsyncIterator[str]:
        """Where connections go this way."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            yield make_conninfo(**{**self._far, "host": "127.0.0.1", "port": port})
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._near = writer
        host, port = str(self._far["host"]), self._far.get("port", 5432)
        if host.startswith("/"):
            far = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            far = await asyncio.open_connection(host, int(port))
        with closing(far[1]):
            await asyncio.gather(_pour(reader, far[1]), _pour(far[0], writer), return_exceptions=True)

    def __call__(self) -> None:
        assert self._near is not None
        at_once = struct.pack("ii", 1, 0)
        self._near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._near.transport.abort()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
    finally:
        writer.close()


async def _reset_at_rest(dsn: str) -> None:
    reset = Reset(dsn)
    async with asyncio.timeout(30), reset.dsn() as way:
        connections = SessionPool(way, limit=1)
        async with connections.acquire() as session:
            await _use(session)
            reset()
            await eventually(lambda: not session._watch.is_set, "the watch is taken away")
            with pytest.raises(psycopg.OperationalError):
                await _use(session)
        await connections.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_session_that_is_reset_at_rest(
    dsn: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Its next user hears of it, on uvloop too, which stops to watch what was reset."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_reset_at_rest(dsn))


async def _ended_at_rest(dsn: str, tables: Tables) -> None:
    connections = SessionPool(dsn, limit=1)
    async with asyncio.timeout(30), connections.acquire() as session:
        await _use(session)
        # What the server says at the end arrives with the reset that answers what is sent now.
        tables.execute("SELECT pg_terminate_backend(%s, 10000)", session._pgconn.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await _use(session)
    await connections.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_last_word_that_comes_with_a_reset(
    dsn: str, tables: Tables, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """After the word was read, the end is heard of as well."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_ended_at_rest(dsn, tables))


async def test_the_last_word_of_a_session(session: Session, tables: Tables) -> None:
    """Why the server ends it amid a statement is the error of who waits for that."""
    look = {"next_sweep": {"archives": False, "now": None}}
    await session.transact(look)
    with tables.connection.transaction():
        tables.execute("LOCK TABLE retention IN ACCESS EXCLUSIVE MODE")
        asked = asyncio.create_task(session.transact(look))
        await eventually(tables.waiting, "it waits")
        tables.execute("SELECT pg_terminate_backend(%s)", session._pgconn.backend_pid)
        with pytest.raises(psycopg.errors.AdminShutdown, match="administrator command") as ended:
            await asked
    assert judged(ended.value).ends_sessions


async def _ended_in_the_pool(dsn: str, tables: Tables) -> None:
    connections = SessionPool(dsn, limit=2)
    async with asyncio.timeout(30), connections.acquire() as one, connections.acquire() as other:
        await _use(one)
        await _use(other)
    tables.execute("SELECT pg_terminate_backend(%s, 10000)", one._pgconn.backend_pid)
    tables.execute("SELECT pg_terminate_backend(%s, 10000)", other._pgconn.backend_pid)
    await eventually(lambda: not (one._watch.is_set or other._watch.is_set), "the watches are taken away")
    async with asyncio.timeout(30), connections.acquire() as session:
        assert session not in (one, other)
        await _use(session)
    await connections.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_session_that_was_ended_at_rest_is_not_handed_out(
    dsn: str, tables: Tables, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Its next user would have to try again, and to log an outage that is none."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_ended_in_the_pool(dsn, tables))


def test_what_the_server_says_at_rest_is_no_end(dsn: str, tables: Tables) -> None:
    """It may say at any time that a setting has changed; a notification stands for that here."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("LISTEN anything")
        assert not has_ended(connection.pgconn)
        tables.execute("NOTIFY anything")
        for _ in range(2):
            select.select([connection.pgconn.socket], [], [], 10)
            assert not has_ended(connection.pgconn)
            tables.execute("NOTIFY anything")
        tables.execute("SELECT pg_terminate_backend(%s, 10000)", connection.pgconn.backend_pid)
        assert has_ended(connection.pgconn)


async def test_a_socket_that_somebody_else_has_too_is_not_watched_for_good(
    session: Session, tables: Tables
) -> None:
    """As a forked process has: the watch ends with the session, although the socket lives on."""
    inherited = os.dup(session._pgconn.socket)
    try:
        tables.execute("SELECT pg_terminate_backend(%s, 10000)", session._pgconn.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await _use(session)
        await session.close()
        await asyncio.sleep(0)
        ready, _, _ = select.select([asyncio.get_running_loop()._selector], [], [], 0)  # type: ignore[attr-defined]
        assert ready == []
    finally:
        os.close(inherited)


async def test_values_of_a_class_of_its_own(session: Session) -> None:
    """They travel as what they are a kind of; what is of no known kind is refused."""

    class Id(str):
        __slots__ = ()

    class Moment(datetime):
        pass

    now = Moment.fromtimestamp(T0.timestamp(), T0.tzinfo)
    assert await session.transact({"find_tokens": {"now": now, "token_id": Id("x")}})
    with pytest.raises(TypeError, match="no binary format for object"):
        await session.transact({"find_tokens": {"now": None, "token_id": object()}})


async def test_what_is_prepared_before_one_that_cannot_be_is_known(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tables: Tables
) -> None:
    """The session is as good as before: what failed is prepared when it can be, and nothing is twice."""
    for name, sql in {
        "good": "SELECT 1 AS one",
        "bad": "SELECT 2 AS two FROM later",
        "last": "SELECT 3",
    }.items():
        monkeypatch.setitem(STATEMENTS, name, sql)
    connections = SessionPool(dsn, limit=1)
    async with connections.acquire() as session:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await session.transact({"good": {}, "bad": {}, "last": {}})
        assert session.is_idle
        assert await session.transact({"good": {}}) == {"good": [{"one": 1}]}
        tables.connection.execute("CREATE TABLE public.later AS SELECT 1")
        tables.connection.commit()
        assert (await session.transact({"good": {}, "bad": {}, "last": {}}))["bad"] == [{"two": 2}]
    await connections.close()
