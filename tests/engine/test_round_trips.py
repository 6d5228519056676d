"""What a call costs: its messages to PostgreSQL, each of which is a round trip.

Rule: these are the tables of docs/explanation/where-the-time-goes.md: who changes one changes both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Engine, Namespace, Process
from progressor.handlers import handler_profile
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from tests.support import NS, eventually

CALLS = 3
HOUR = timedelta(hours=1)
# Nothing is sent because time has passed.
RARE = {"lease_age": 3 * HOUR, "reply_poll_interval": HOUR}
# At most once in two seconds, whoever asks.
KEPT = ("live_workers",)

FUSED = [("begin", "lock_one_by_name", "fused_look"), ("fused_save_timeless", "commit")]
ORDINARY = [("lock_one_by_name", "prepare_call"), ("lock", "save_result_timeless")]
# Behind the sync of a transaction leaves another one, with the hints.
FUSED_ELSEWHERE = [
    ("lock_one_by_name", "prepare_call", "notify"),
    ("begin", "one_claim", "search_calls"),
    ("save_result_timeless", "commit", "notify"),
    ("replies",),
]
ELSEWHERE = [
    ("lock_one_by_name", "prepare_call", "notify"),
    ("one_claim", "search_calls"),
    ("lock", "save_result_timeless", "notify"),
    ("replies",),
]
FUSED_TIMER = [("begin", "one_claim", "search_timers"), ("save_lite", "commit")]
TIMER = [("one_claim", "search_timers"), ("lock", "save_lite")]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What sessions sent, message by message."""
    found: list[tuple[str, ...]] = []
    send = Session._send

    async def noted(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
        if tuple(statements) != KEPT:
            found.append((*statements, *(() if hints is None else ("notify",))))
        return await send(session, statements, hints)

    monkeypatch.setattr(Session, "_send", noted)
    return found


@pytest.fixture
async def engine(
    dsn: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    """One whose services make no rounds meanwhile, and whose handlers count as quick."""
    monkeypatch.setattr(handler_profile, "MOST_COMPUTED", 3600.0)
    ns = Namespace(NS)

    @ns.init
    async def begin(process: Process[Any]) -> None:
        process.state = 0

    @ns.call
    async def add(process: Process[Any]) -> int:
        process.state += 1
        return int(process.state)

    @ns.call
    async def fire_soon(process: Process[Any]) -> None:
        process.set_timer(after=timedelta(milliseconds=1))

    @ns.timeout
    async def fire(process: Process[Any]) -> None:
        process.state += 1

    options: dict[str, Any] = {"scan_interval": HOUR, "zombie_collector": False, "scanner": False}
    async with Engine(dsn, [ns], fuse=request.param, **options, **RARE) as engine:
        await engine.client.start(NS, "p1")
        await engine.client.call(NS, "p1", "add")
        await eventually(lambda: engine.pools[NS].is_idle, "nothing is under way")
        yield engine


async def _call(client: Client, messages: list[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    found = []
    for _ in range(CALLS):
        messages.clear()
        await client.call(NS, "p1", "add")
        found.append(list(messages))
    return found


@pytest.mark.parametrize(
    ("engine", "expected"), [("learned", FUSED), ("never", ORDINARY)], indirect=["engine"]
)
async def test_a_call_of_the_workers_own_process(
    engine: Engine, messages: list[tuple[str, ...]], expected: list[tuple[str, ...]]
) -> None:
    """One transaction of two round trips, or two of one each."""
    assert await _call(engine.client, messages) == [expected] * CALLS


@pytest.mark.parametrize(
    ("engine", "expected"), [("learned", FUSED_ELSEWHERE), ("never", ELSEWHERE)], indirect=["engine"]
)
async def test_a_call_of_another_process(
    engine: Engine, dsn: str, messages: list[tuple[str, ...]], expected: list[tuple[str, ...]]
) -> None:
    """Two more: the claim, and the reading of the answer; the hints leave behind what they are about."""
    async with Client(dsn, **RARE) as client:
        await client.call(NS, "p1", "add")
        assert await _call(client, messages) == [expected] * CALLS


@pytest.mark.parametrize(
    ("engine", "expected"), [("learned", FUSED_TIMER), ("never", TIMER)], indirect=["engine"]
)
async def test_a_timer(
    engine: Engine, messages: list[tuple[str, ...]], expected: list[tuple[str, ...]]
) -> None:
    """One transaction of two round trips, or two of one each."""
    found: list[list[tuple[str, ...]]] = []
    for count in range(2, CALLS + 4):
        before = engine.performed
        await engine.client.call(NS, "p1", "fire_soon")
        messages.clear()
        await eventually(lambda before=before: engine.performed == before + 2, "it fires")  # type: ignore[misc]
        await eventually(lambda: engine.pools[NS].is_idle, "nothing is under way")
        found.append([each for each in messages if each != ("one_claim", "search_calls")])
        assert (await engine.client.get(NS, "p1")).state == count
    # The first shows that the function waits for nothing, the claim of the second that fusing pays.
    assert found[2:] == [expected] * CALLS
