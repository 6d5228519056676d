"""Hints behind a transaction: they leave in its message, and their end is not that of the transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from progressor.storage.params import hint_columns
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.session_setup import BOUNDED_TRANSACTION
from progressor.storage.statements import Transaction
from tests.support import Tables

CHANNEL = "progressor_test"
LOOK: Transaction = {"server_version": {}}
# PostgreSQL takes less than 8,000 bytes.
TOO_LONG = "x" * 8000


@pytest.fixture(params=[True, False], ids=["keeps state", "keeps no state"])
async def session(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    connections = SessionPool(dsn, limit=1, session_state=request.param)
    async with connections.acquire() as session:
        yield session
    await connections.close()


@pytest.fixture
def ear(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        yield connection


class Sent:
    """Hints, and how they ended."""

    def __init__(self, *texts: str) -> None:
        self.ends: list[bool] = []
        params = hint_columns([(CHANNEL, text) for text in texts])
        self.hints = Hints(params, lambda began: self.ends.append(began is not None))


def _heard(ear: psycopg.Connection, count: int) -> list[str]:
    return [each.payload for each in ear.notifies(timeout=30, stop_after=count)]


async def test_they_leave_behind_a_transaction(session: Session, ear: psycopg.Connection) -> None:
    """Its rows are returned as ever."""
    sent = Sent("one", "two")
    assert (await session.transact(LOOK, sent.hints))["server_version"]
    assert (sent.ends, session.is_idle) == ([True], True)
    assert _heard(ear, 2) == ["one", "two"]


async def test_they_leave_behind_a_commit(session: Session, ear: psycopg.Connection) -> None:
    """Of a transaction of several round trips too."""
    sent = Sent("one")
    await session.begin(LOOK)
    assert (await session.commit(LOOK, sent.hints))["server_version"]
    assert (sent.ends, session.is_idle) == ([True], True)
    assert _heard(ear, 1) == ["one"]


async def test_what_they_are_refused_for_harms_no_transaction(
    session: Session, ear: psycopg.Connection, tables: Tables
) -> None:
    """It is committed, its rows are returned, and the session goes on."""
    sent = Sent("one", TOO_LONG)
    tables.execute("INSERT INTO progressor.namespaces (name, options) VALUES ('n', '{}')")
    rows = await session.transact({"make_rate": {"namespace": "n"}, **LOOK}, sent.hints)
    assert rows["server_version"]
    assert (sent.ends, session.is_idle) == ([False], True)
    after = Sent("two")
    assert (await session.transact(LOOK, after.hints))["server_version"]
    assert _heard(ear, 1) == ["two"]
    assert len(tables.execute("SELECT namespace_no FROM progressor.rates")) == 1


async def test_a_transaction_that_fails_is_the_error(session: Session) -> None:
    """Whatever becomes of the hints behind it: nobody may rely on them."""
    sent = Sent("one")
    refused: Transaction = {"settings": {**BOUNDED_TRANSACTION, "lock_timeout": "nonsense"}, **LOOK}
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        await session.transact(refused, sent.hints)
    assert session.is_idle
    assert (await session.transact(LOOK, Sent("two").hints))["server_version"]


async def test_a_connection_that_is_lost_amid_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed before them is returned as committed; the session is not used again."""
    read, count = session._read, 0

    async def losing() -> object:
        nonlocal count
        count += 1
        if count == 2:
            raise psycopg.OperationalError("the connection was lost")
        return await read()

    await session.transact(LOOK, Sent("first").hints)
    monkeypatch.setattr(session, "_read", losing)
    sent = Sent("one")
    assert (await session.transact(LOOK, sent.hints))["server_version"]
    assert (sent.ends, session.is_idle) == ([False], False)
