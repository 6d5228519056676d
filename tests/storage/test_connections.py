"""What was opened is closed, wherever its user is cancelled and whenever its pool closes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import types
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor.errors import StorageUnavailable
from progressor.storage.operations import Storage
from progressor.storage.postgres import pool as connections
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.session_setup import refuse_lent_sessions
from progressor.storage.queries.reads import Reads
from tests.support import SECOND, eventually, lack_descriptors

Act = Callable[[], Awaitable[object]]
STATE = pytest.mark.parametrize("keeps_state", [True, False])


@types.coroutine
def interrupted(work: Coroutine[Any, Any, object], *, at: int, by: Act) -> Generator[Any, None, bool]:
    """Do this work, and `by` where it waits for the `at`-th time; False if it never waited that often."""
    inner, thrown, left = work.__await__(), None, at
    while True:
        try:
            future = inner.send(None) if thrown is None else inner.throw(thrown)
        except StopIteration:
            return left <= 0
        left -= 1
        if left == 0:
            yield from by().__await__()
        try:
            thrown = yield future
        except asyncio.CancelledError as cancelled:
            thrown = cancelled


async def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.fixture(autouse=True)
def little_to_collect() -> Iterator[None]:
    """The garbage collector looks at what a test makes, not each time at all that was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def wherever(begin: Callable[[], tuple[Coroutine[Any, Any, object], Act, Act]]) -> None:
    """Interrupt at each wait in turn: nothing is left to the garbage collector."""
    for at in itertools.count(1):
        work, act, close = begin()
        went_through = True
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with suppress(asyncio.CancelledError):
                went_through = await interrupted(work, at=at, by=act)
            await (close if went_through or act is cancel else act)()
            del work, act, close
            gc.collect()
        assert [str(each.message) for each in warned] == [], at
        if not went_through:
            assert at > 2
            return


async def nothing() -> None:
    pass


@STATE
async def test_a_transaction_that_is_cancelled(dsn: str, keeps_state: bool) -> None:
    """Wherever it is, from the opening of the connection to its return."""

    def begin() -> tuple[Coroutine[Any, Any, object], Act, Act]:
        connections = SessionPool(dsn, limit=1, session_state=keeps_state)

        async def work() -> None:
            async with connections.acquire() as session:
                await session.transact({"server_version": {}})

        return work(), cancel, connections.close

    await wherever(begin)


@STATE
async def test_a_read_that_is_cancelled(dsn: str, keeps_state: bool) -> None:
    """Wherever it is, also where SQLAlchemy asks a first connection what its server is."""

    def begin() -> tuple[Coroutine[Any, Any, object], Act, Act]:
        reads = Reads(dsn, patience=SECOND, session_state=keeps_state)
        return reads.process("ns", "p"), cancel, reads.close

    await wherever(begin)


@STATE
async def test_a_close_while_a_read_is_under_way(dsn: str, keeps_state: bool) -> None:
    """Wherever it is: what is in use is closed by its user, and so is what is opened afterwards."""

    def begin() -> tuple[Coroutine[Any, Any, object], Act, Act]:
        reads = Reads(dsn, patience=SECOND, session_state=keeps_state)

        async def work() -> None:
            await reads.process("ns", "p")
            await reads.process("ns", "p")

        return work(), reads.close, nothing

    await wherever(begin)


async def test_the_question_whether_sessions_are_lent_is_cancelled(dsn: str) -> None:
    """Wherever it is."""
    await wherever(lambda: (refuse_lent_sessions(dsn), cancel, nothing))


async def test_a_wait_for_a_connection_has_an_end(dsn: str) -> None:
    """While all connections wait for locks, an operation with patience is told so; one without waits on."""
    pool = SessionPool(dsn, limit=1)
    storage = Storage(pool, patience=SECOND / 5)
    async with pool.acquire():
        with pytest.raises(StorageUnavailable, match="all connections of this client were in use"):
            await storage.mailbox("ns", "p")
        waits = asyncio.create_task(storage.hand_back([]))
        await asyncio.sleep(0.4)
        assert not waits.done()
    await waits
    assert await storage.mailbox("ns", "p") is None
    await pool.close()


async def test_no_descriptor_is_left_for_a_session(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be done is done when there is one; the connection that lacked it is closed."""
    lacking = lack_descriptors(monkeypatch, times=2)
    connections = SessionPool(dsn, limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await Storage(connections, patience=10 * SECOND).server()
        gc.collect()
    assert not lacking
    await connections.close()


async def test_what_nobody_uses_is_closed(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, so that others find a place on the server; what is in use stays, and new ones open."""
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0.05)
    pool = SessionPool(dsn, limit=3)
    sessions = [await pool.take() for _ in range(3)]
    for each in sessions[:2]:
        await pool.give_back(each, ended=False)
    await eventually(lambda: all(each.is_lost for each in sessions[:2]), "both are closed")
    assert not sessions[2].is_lost
    async with pool.acquire() as another:
        assert another not in sessions
    await pool.give_back(sessions[2], ended=False)
    await eventually(lambda: sessions[2].is_lost and another.is_lost, "the others, too")
    await pool.close()


async def test_of_several_servers_the_one_that_was_reached_is_named(dsn: str) -> None:
    """A URL may list a standby, or what is gone: the first line of a log has the server that answers."""
    stated = conninfo_to_dict(dsn)
    host, port = str(stated["host"]), str(stated.get("port", 5432))
    listed = make_conninfo(dsn, host=f"127.0.0.1,{host}", port=f"1,{port}")
    pool = SessionPool(listed, limit=1)
    found = await Storage(pool, patience=10 * SECOND).server()
    assert (found["host"], found["port"]) == (host, port)
    await pool.close()
