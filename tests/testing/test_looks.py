"""What the commit of a world's step sees of the timers: the next look is answered by it, if it holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from progressor import Namespace, Process
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.virtual_time import WorldLook
from progressor.testing import World
from tests.support import Tables

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ASKED = {"namespace": "a"}
ASKING, COMMIT = {"next_timers": ASKED}, {"save_lite": {}, "commit": {}}
SEEN: Any = [{"name": "a"}]


@pytest.fixture
def look() -> WorldLook:
    """The look of a world that has looked once."""
    look = WorldLook()
    assert look.known(ASKING) is None
    return look


def commit(look: WorldLook) -> None:
    with look.sending() as saw:
        saw({"save_lite": [], "next_timers": SEEN, "commit": []})


def test_a_commit_looks_behind_what_it_saves(look: WorldLook) -> None:
    """As the last look did; without one, and within a transaction, nothing is added."""
    assert [*look.beside(COMMIT)] == ["save_lite", "next_timers", "commit"]
    assert look.beside(COMMIT)["next_timers"] is ASKED
    assert look.beside({"begin": {}}) == {"begin": {}}
    assert look.beside({"commit": {}}) == {"commit": {}}
    assert WorldLook().beside(COMMIT) is COMMIT


def test_what_a_commit_saw_answers_one_look(look: WorldLook) -> None:
    """The next look asks again, and so does one for other namespaces."""
    commit(look)
    assert look.known({"begin": {}}) is None
    assert look.known(ASKING) == {"next_timers": SEEN}
    assert look.known(ASKING) is None
    commit(look)
    assert look.known({"next_timers": {"namespace": "b"}}) is None


def test_whatever_is_sent_after_it_makes_it_old(look: WorldLook) -> None:
    """By any session, and even if it fails."""
    commit(look)
    with pytest.raises(ConnectionError), look.sending():
        raise ConnectionError
    assert look.known(ASKING) is None
    commit(look)
    look.forget()
    assert look.known(ASKING) is None


def test_a_commit_beside_another_transaction_proves_nothing(look: WorldLook) -> None:
    """Either may not have seen the other, whichever began and ended first."""
    with look.sending():
        commit(look)
    assert look.known(ASKING) is None
    with look.sending() as saw:
        with look.sending():
            pass
        saw({"next_timers": SEEN})
    assert look.known(ASKING) is None


def daily() -> tuple[Namespace[int], list[datetime]]:
    namespace, fired = Namespace("days", state=int), list[datetime]()

    @namespace.init
    async def begin(process: Process[int]) -> None:
        process.set_timer(every=DAY)

    @namespace.timeout(fused=True)
    async def fire(process: Process[int]) -> None:
        fired.append(process.now)

    return namespace, fired


async def test_a_timer_costs_two_round_trips(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is claimed, and it is saved together with the look at what is due next."""
    namespace, fired = daily()
    trips: list[list[str]] = []
    send = Session._send

    async def noted(session: Session, statements: Any, hints: Any = None) -> Any:
        trips.append([*statements])
        return await send(session, statements, hints)

    monkeypatch.setattr(Session, "_send", noted)
    async with World(dsn, [namespace], now=BEGIN) as world:
        await world.client.start("days", "p")
        await world.advance(2 * DAY)
        trips.clear()
        await world.advance(30 * DAY)
    assert len(fired) == 32
    assert trips.count(["begin", "one_claim", "search_timers"]) == 30
    assert trips.count(["save_lite", "next_timers", "commit"]) == 30
    # The first look, and those beside which the retention walk was under way.
    assert trips.count(["next_timers"]) < 5


async def test_what_a_test_writes_between_two_advances_is_seen(dsn: str, tables: Tables) -> None:
    """By a connection of its own, after the last commit has looked."""
    namespace, fired = daily()
    async with World(dsn, [namespace], now=BEGIN) as world:
        await world.client.start("days", "p")
        await world.advance(2 * DAY)
        await world.client.start("days", "q")
        tables.execute("UPDATE namespaces SET paused = TRUE")
        await world.advance(DAY)
        assert len(fired) == 2
        tables.execute("UPDATE namespaces SET paused = FALSE")
        await world.settle()
        assert len(fired) == 4


async def test_a_step_that_is_saved_on_a_connection_of_its_own(dsn: str) -> None:
    """What others saw while it was under way lacks its timer, which comes all the same."""
    namespace, fired = Namespace("hours", state=int), list[str]()

    @namespace.init
    async def begin(process: Process[int]) -> None:
        process.set_timer(after=timedelta(hours=1))

    @namespace.call
    async def bump(process: Process[int]) -> None:
        process.state = (process.state or 0) + 1

    @namespace.timeout
    async def fire(process: Process[int], *, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT 1")
        await world.client.call(bump, "counted")
        fired.append(f"{process.now:%H}")
        process.set_timer(after=timedelta(hours=1))

    async with World(dsn, [namespace], now=BEGIN) as world:
        await world.client.start("hours", "counted")
        await world.client.unset_timer("hours", "counted")
        await world.client.call(bump, "counted")
        await world.client.start("hours", "p")
        await world.advance(timedelta(hours=6))
        assert fired == ["01", "02", "03", "04", "05", "06"]
        assert (await world.client.get("hours", "counted")).state == 7
