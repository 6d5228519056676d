"""Two clocks: the statements that tell the time, and which of both each of them takes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor import HandlerFailed, Namespace, Process, RetryPolicy, SetTimer
from progressor.storage.postgres.virtual_time import REAL_TIME
from progressor.storage.statements import STATEMENTS
from progressor.testing import BrokenInWorld, World
from tests.support import Tables

_FUNCTION = re.compile(
    r"\b(now|statement_timestamp|clock_timestamp|transaction_timestamp)\(\)|CURRENT_TIME"
)
_GIVEN = re.compile(
    r"coalesce\((?:e\.timestamp, )?%\(now\)s::timestamptz, (?:now|(?:statement|clock)_timestamp)\(\)\)"
)
_COMMENT = re.compile(r"--.*")

# The statements that read PostgreSQL's clock beside `now`, or without it, and what for.
REAL = {
    "all_workers": "the age of a heartbeat",
    "commit_slice": "when a checkpoint moved, for operators",
    "health": "whether a heartbeat is older than its lease",
    "heartbeat": "the heartbeat itself",
    "hold_slices": "whether a reader was seen within its lease",
    "known_namespaces": "whether a heartbeat is older than its lease",
    "known_subscriptions": "whether a reader was seen within its lease, and how old a row is",
    "left_in_namespace": "whether a worker is alive, or a namespace was registered within a lease",
    "live_workers": "whether a heartbeat is older than its lease",
    "move_subscription": "when a checkpoint moved, for operators",
    "note_failing": "since when something fails, for operators",
    "note_samples": "which minute of the real clock it is",
    "oldest_snapshot": "the age of a transaction of PostgreSQL",
    "one_life": "nothing: a row that is never committed",
    "others_serving": "whether a heartbeat is older than its lease",
    "register_namespace": "when a worker registered, for the lease of `retire`",
    "retire": "whether a worker is alive, or a namespace was registered within a lease",
    "samples": "how long ago a minute of the real clock was",
    "served_namespaces": "whether a heartbeat is older than its lease",
    "standstill": "whether a heartbeat is older than its lease",
}
# Those that go by hours of the caller's, which virtual sessions turn into a moment of their clock.
BY_AGO = {"broken_processes", "failed_timers", "audit", "audit_of_process"}


def _text(name: str) -> str:
    return _COMMENT.sub("", STATEMENTS[name])


def test_each_statement_that_tells_the_time_is_on_a_known_clock() -> None:
    """Due times come with `now`; all else is listed here, with what it is for."""
    bare = {name for name in STATEMENTS if _FUNCTION.search(_GIVEN.sub("", _text(name)))}
    assert bare - BY_AGO == set(REAL)
    assert {name for name in STATEMENTS if "%(ago)s" in _text(name)} == BY_AGO


def test_statements_on_the_real_clock_are_those_of_bulks_and_tokens() -> None:
    """All others that take `now` get it from the clock of their session."""
    taking = {name for name in STATEMENTS if "%(now)s" in _text(name)}
    assert taking >= REAL_TIME
    assert {name for name in taking if "bulk" in name or "token" in name} == set(REAL_TIME)


FUTURE = datetime(2824, 2, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)
# Columns of leases and heartbeats; all other moments in the tables are of the world.
OF_LEASES = {("workers", "seen_at"), ("workers", "started_at"), ("namespaces", "updated_at")}


@pytest.fixture
def busy() -> Namespace[Any]:
    """A namespace in which all that can happen to a process happens."""
    namespace: Namespace[Any] = Namespace("busy", retry_policy=RetryPolicy(max_attempts=2))

    @namespace.init
    async def begin(process: Process[Any], days: float) -> None:
        process.emit("begun")
        process.set_timer(after=days * DAY)

    @namespace.timeout
    async def fail(process: Process[Any]) -> None:
        raise RuntimeError("always")

    @namespace.call
    async def crash(process: Process[Any]) -> None:
        raise RuntimeError("asked for")

    @namespace.call
    async def note(process: Process[Any]) -> None:
        process.emit("noted")

    @namespace.repair
    async def fix(process: Process[Any]) -> None:
        process.set_timer(after=DAY)

    return namespace


async def test_every_moment_in_the_tables_is_of_the_world_but_those_of_leases(
    dsn: str, tables: Tables, busy: Namespace[Any]
) -> None:
    """Whichever statements wrote them: requests of each kind, retries, repairs, imports, removals."""
    began = datetime.now(UTC)
    async with World(dsn, [busy], now=FUTURE, fuse="never") as never:
        await _live(never, "never")
    async with World(dsn, [busy], now=FUTURE, fuse="always") as always:
        await _live(always, "always")
    columns = tables.execute(
        "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables "
        "USING (table_schema, table_name) WHERE table_schema = 'progressor' AND table_type = 'BASE TABLE' "
        "AND data_type = 'timestamp with time zone'"
    )
    places = {(each["table_name"], each["column_name"]) for each in columns}
    assert places > OF_LEASES
    seen = 0
    for table, column in places:
        query: Any = f"SELECT {column} AS at FROM progressor.{table} WHERE isfinite({column})"
        for row in tables.execute(query):
            seen += 1
            is_real = began - DAY < row["at"] < datetime.now(UTC) + DAY
            assert is_real is ((table, column) in OF_LEASES), (table, column, row["at"])
    assert seen > 100


async def _live(world: World, name: str) -> None:
    client = world.client
    for each in ("a", "b", "c", "gone"):
        await client.start("busy", f"{name}-{each}", 30)
    await client.call("busy", f"{name}-a", "note")
    await client.notify("busy", f"{name}-a", "note")
    await client.remove("busy", f"{name}-gone")
    for each in ("a", "b"):
        with pytest.raises(HandlerFailed):
            await client.call("busy", f"{name}-{each}", "crash")
    await client.repair("busy", f"{name}-a")
    await client.simple_repair("busy", f"{name}-b")
    put = SetTimer(after=2 * DAY)
    await client.put("busy", f"{name}-put", state={}, events=[{"n": 1}], action=put)
    await client.process("busy", f"{name}-c").set_timer(after=90 * DAY)
    with pytest.raises(BrokenInWorld, match="always"):
        await world.advance(40 * DAY)
    found = [await client.errors(namespace="busy", since=days * DAY) for days in (5, 60)]
    assert [bool(each) for each in found] == [False, True]
