"""The engine's own connection: what its event loop watches, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from progressor.storage.connections import Connections
from progressor.storage.session import Session
from tests.support import Tables, eventually

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
    connections = Connections(dsn, limit=1)
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


async def test_the_socket_stays_watched(session: Session, watched: Watched) -> None:
    """A transaction neither sets the watch nor takes it away: both are system calls."""
    for _ in range(3):
        await _use(session)
    assert watched.calls == []


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
