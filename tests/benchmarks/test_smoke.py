"""Each workload of the benchmark, tiny, through the real code: what it counts stands in the tables.

No timing is asserted. A workload raises Inconsistent itself when the tables disagree with its count.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import pytest

from benchmarks.contestants import ratio
from benchmarks.workloads import age, distance, limits, mailbox, memory, names, rows
from benchmarks.workloads.cases import GROUPS, WORKLOADS, all_cases
from benchmarks.workloads.names import STYLES
from progressor import Engine, Namespace, Process
from progressor.bench import cases, chain, databases, requests, samples, timers
from progressor.bench.flows import TIMERS, Count
from progressor.errors import InvalidRequest
from progressor.storage import parsed
from tests import postgres
from tests.docs.pages import ROOT
from tests.support import Tables

BRIEF = {"seconds": 0.2, "warmup": 0.05}
COUNT = 20
TINY = rows.Sizes(
    due=40,
    waiting=60,
    falling=10,
    rows=1000,
    history=20,
    in_flight=20,
    stored=30,
    window=20,
    mailbox=50,
    crowd=20,
    jittered=40,
    held=2000,
)
LOADS = rows.loads(TINY)


@pytest.mark.parametrize("processes", [1, 5])
async def test_chain_leaves_one_event_for_each_step(dsn: str, tables: Tables, processes: int) -> None:
    """And nothing in running when it is over."""
    figures = await chain.chain(dsn, processes=processes, **BRIEF)
    assert figures["count"] > 0
    assert figures["rate"] > 0
    # Only after the count: the worker has stopped, and no step is on its way.
    assert _value(tables, "SELECT count(*) FROM events") >= figures["count"]
    assert _value(tables, "SELECT count(*) FROM running") == 0


async def test_chain_goes_on_behind_a_history(dsn: str, tables: Tables) -> None:
    """The steps are counted on from the events that were there."""
    await age.age(dsn, processes=2, history=20, **BRIEF)
    assert _value(tables, "SELECT min(last_event_id) FROM processes") > 20


async def test_starts_are_answered(dsn: str, tables: Tables) -> None:
    """Each client's start is one running process, with its latencies."""
    figures = await requests.start(dsn, clients=3, **BRIEF)
    assert _value(tables, "SELECT count(*) FROM processes WHERE status = 'running'") >= figures["count"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]


@pytest.mark.parametrize("processes", [1, None])
async def test_calls_are_answered(dsn: str, tables: Tables, processes: int | None) -> None:
    """Each call leaves an event: on a process for each client, or all on one."""
    figures = await requests.call(dsn, clients=3, processes=processes, **BRIEF)
    assert _value(tables, "SELECT count(*) FROM events") >= figures["count"] > 0
    assert _value(tables, "SELECT count(*) FROM processes") == (processes or 3)


async def test_calls_from_another_process_are_answered(dsn: str) -> None:
    """The clients stand in an OS process of their own, away from the worker."""
    figures = await requests.call(dsn, clients=2, where="elsewhere", **BRIEF)
    assert figures["count"] > 0


async def test_distance_counts_round_trips(dsn: str) -> None:
    """A proxy delays each round trip and counts them."""
    figures = await distance.distance(dsn, what="call", round_trip_ms=1.0, seconds=0.5, warmup=0.2)
    assert figures["round_trips"] >= 1
    assert figures["count"] > 0


async def test_all_due_timers_fire(dsn: str, tables: Tables) -> None:
    """Each once, until the schedule is empty."""
    await timers.drain(dsn, due=TINY.due)
    assert _value(tables, "SELECT count(*) FROM events") == TINY.due
    assert _value(tables, "SELECT count(*) FROM schedule") == 0


@pytest.mark.parametrize("by", ["worker", "others"])
async def test_timers_fall_due_beside_those_that_wait(dsn: str, tables: Tables, by: str) -> None:
    """Those that fall due fire, whoever set them; those that wait stay."""
    LOADS["waiting"](databases.runner(dsn))
    figures = await timers.late(dsn, falling=TINY.falling, seconds=0.2, warmup=0.3, by=by)  # type: ignore[arg-type]
    assert figures["count"] == TINY.falling
    assert _value(tables, "SELECT count(*) FROM schedule") == TINY.waiting


async def test_claims_take_what_is_due_and_nothing_else(dsn: str, tables: Tables) -> None:
    """What waits for a far day is still in the schedule."""
    LOADS["waiting"](databases.runner(dsn))
    await timers.claim(dsn, claims=3, limit=5)
    assert _value(tables, "SELECT count(*) FROM schedule") == TINY.waiting


async def test_memory_holds_all_processes_at_once(dsn: str) -> None:
    """The busy figure is of a worker with all steps in flight."""
    figures = await memory.memory(dsn, in_flight=TINY.in_flight, settle=0.01)
    assert figures["count"] == TINY.in_flight
    assert figures["busy_mb"] > 0


@pytest.mark.parametrize("style", STYLES)
async def test_calls_find_the_stored_processes(dsn: str, tables: Tables, style: str) -> None:
    """They are made beforehand, and none is made by a call."""
    figures = await names.call(dsn, clients=3, stored=TINY.stored, names=style, count=COUNT)
    assert figures["count"] >= COUNT
    assert _value(tables, "SELECT count(*) FROM processes") == TINY.stored
    # Their timers were blocked meanwhile, and are not any more.
    assert _value(tables, "SELECT count(*) FROM schedule WHERE claimable") == TINY.stored


@pytest.mark.parametrize("style", STYLES)
async def test_others_work_beside_the_stored_processes(dsn: str, tables: Tables, style: str) -> None:
    """The timers of the stored ones are left alone."""
    figures = await names.chain(dsn, processes=3, names=style, stored=TINY.stored, count=COUNT)
    assert figures["count"] >= COUNT
    assert _value(tables, "SELECT count(*) FROM schedule") == TINY.stored


async def test_starts_beside_the_stored_processes(dsn: str, tables: Tables) -> None:
    """What is started has names as long as what is stored."""
    figures = await names.start(dsn, clients=3, names="long", stored=TINY.stored, count=COUNT)
    assert figures["count"] >= COUNT
    assert _value(tables, "SELECT count(*) FROM processes WHERE length(process_id) <> 36") == 0


@pytest.mark.parametrize("style", STYLES)
async def test_timers_fire_after_some_have(dsn: str, tables: Tables, style: str) -> None:
    """Those of the warm-up are not measured, and fire too."""
    await names.drain(dsn, due=TINY.due, warmup=10, names=style)
    assert _value(tables, "SELECT count(*) FROM events") == TINY.due


async def test_stored_processes_are_as_large_as_started_ones(dsn: str, tables: Tables) -> None:
    """Rows that are written in bulk have the size of those that a start writes."""
    long = STYLES["long"]
    namespace = Namespace(long.namespace, state=Count)

    @namespace.init
    async def init(process: Process[Count], _args: dict[str, Any]) -> int:
        process.state = Count()
        process.set_timer(after=timedelta(days=30))
        return 0

    @namespace.timeout
    async def timeout(_process: Process[Count]) -> None:
        raise AssertionError("30 days are not over")

    async with Engine(dsn, [namespace]) as engine:
        await asyncio.gather(
            *(engine.client.start(long.namespace, f"{number:036}", {}) for number in range(10))
        )
    started = _sizes(tables)
    tables.execute("TRUNCATE processes, tasks, schedule")
    await asyncio.to_thread(rows.add_stored, databases.runner(dsn), long, 10)
    assert _sizes(tables) == started


async def test_nothing_tends_the_tables_of_a_measurement(dsn: str, tables: Tables) -> None:
    """No autovacuum comes in between, on any table."""
    await asyncio.to_thread(rows.unattended, databases.runner(dsn))
    tended = """
        SELECT count(*) FROM pg_class
        WHERE
            relkind = 'r' AND relnamespace = 'progressor'::regnamespace
            AND reloptions @> ARRAY['autovacuum_enabled=off'] IS NOT TRUE
    """
    assert _value(tables, tended) == 0


async def test_others_are_called_beside_a_long_mailbox(dsn: str, tables: Tables) -> None:
    """The calls that wait on one process are there while others are answered."""
    figures = await mailbox.beside(dsn, waiting=TINY.mailbox, processes=3, **BRIEF)
    assert figures["beside_rate"] > 0
    assert _value(tables, "SELECT count(*) FROM tasks WHERE task_type = 'call'") > TINY.mailbox


async def test_a_mailbox_is_worked_off(dsn: str, tables: Tables) -> None:
    """To its end, if there is time."""
    figures = await mailbox.emptied(dsn, waiting=TINY.mailbox)
    assert figures["drained"] > 0
    assert _value(tables, "SELECT count(*) FROM schedule") == 0


async def test_a_mailbox_is_too_long_for_the_time(dsn: str, tables: Tables) -> None:
    """Then the measurement ends with what is left still waiting."""
    await mailbox.emptied(dsn, waiting=2000, most=0.1)
    assert _value(tables, "SELECT count(*) FROM schedule") > 0


async def test_a_crowd_is_answered(dsn: str, tables: Tables) -> None:
    """All that one client asks for at once, and nothing fails."""
    figures = await mailbox.crowd(dsn, processes=TINY.crowd)
    assert figures["starts_failed"] == figures["calls_failed"] == 0
    assert _value(tables, "SELECT count(*) FROM processes") == TINY.crowd


async def test_jittered_timers_fire(dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and its rule sets it again for the next day."""
    monkeypatch.setattr(limits, "_AT_ONCE", 15)
    figures = await limits.jitter(dsn, timers=TINY.jittered, seconds=0.5)
    assert figures["count"] == TINY.jittered
    assert _value(tables, "SELECT count(*) FROM schedule WHERE scheduled_time > now() + '20 hours'") == 40


@pytest.mark.parametrize("groups", [1, 200])
async def test_claims_beside_full_groups(dsn: str, tables: Tables, groups: int) -> None:
    """What waits in full ones is left, and what waits in the other one is taken."""
    figures = await limits.full_groups(dsn, held=TINY.held, groups=groups, claims=5, limit=3)
    assert figures["turn_claims"] == (1 if groups == 1 else 6)
    assert _value(tables, "SELECT count(*) FROM schedule") == TINY.held


def test_big_tables_are_what_steps_would_have_written(dsn: str, tables: Tables) -> None:
    """As many tasks as events, a hundred of them a process."""
    LOADS["aged"](databases.runner(dsn))
    assert _value(tables, "SELECT count(*) FROM events") == TINY.rows
    assert _value(tables, "SELECT count(*) FROM tasks") == TINY.rows
    assert _value(tables, "SELECT count(*) FROM processes") == TINY.rows / 100


async def test_a_miscount_is_an_error(dsn: str) -> None:
    """A figure that the tables do not bear out is none."""
    with pytest.raises(chain.Inconsistent):
        chain.check_counts(dsn, TIMERS, ["nobody"], "timeout", steps=1, events=1)


def test_cases_have_names_of_their_own_and_workloads_that_exist() -> None:
    """Those of the package come first, and need nothing of the repository."""
    found = list(all_cases(rows.Sizes(), seconds=1))
    assert len({case.key for case in found}) == len(found)
    assert {case.group for case in found} == set(GROUPS)
    own = list(cases.own_cases(rows.Sizes(), seconds=1))
    assert found[: len(own)] == own
    assert {case.workload for case in own} == set(cases.WORKLOADS)
    assert {case.group for case in own} == set(cases.GROUPS)
    assert {case.workload for case in found[len(own) :]} == set(WORKLOADS)


@pytest.fixture(scope="module")
def durable() -> Iterator[str]:
    """The DSN of a server as it is to be measured: its commits reach the disk."""
    if url := os.environ.get("PROGRESSOR_TEST_DATABASE_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="prg-bench-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        with postgres.embedded(Path(home) / "postgres") as dsn:
            yield dsn


def test_a_run_measures_in_child_processes_and_drops_its_databases(durable: str) -> None:
    """A case that cannot be measured says so, and the others go on."""
    before = _databases(durable)
    bench = databases.Server(durable, LOADS)
    bench.require_durable()
    measured = ("chain-1", "timers-claim-waiting", "memory")
    chosen = [
        *(case for case in all_cases(TINY, seconds=0.2) if case.name in measured),
        cases.BenchCase("chain", "chain-1", "nothing", contestant="nobody"),
    ]
    ended: list[str] = []
    try:
        results = samples.run(
            bench, chosen, repeats=1, began=lambda _: None, ended=lambda case, _: ended.append(case.key)
        )
    finally:
        bench.close()
    assert ended == [case.key for case in chosen]
    assert "rate" in results.median("chain-1 progressor")
    assert set(results.failures) == {"chain-1 nobody"}
    assert ratio(results, ("chain-1", "rate", "progressor"), ("chain-1", "rate", "progressor")) == 1
    assert results.as_json()["facts"]["fsync"] == "on"
    assert _databases(durable) == before


def test_a_server_that_is_not_durable_is_refused(durable: str) -> None:
    """By the name of the setting."""
    bench = databases.Server(durable, LOADS)
    with bench.database("empty") as dsn:
        databases.run_sql(dsn, f"ALTER DATABASE {parsed(dsn)['dbname']} SET synchronous_commit = off")
        with pytest.raises(InvalidRequest) as caught:
            databases.Server(dsn, LOADS).require_durable()
    assert caught.value.field == "synchronous_commit"


def test_smaller_sizes_are_smaller() -> None:
    """Each of them, for a quick look."""
    assert all(
        small < big for small, big in zip(astuple(rows.Sizes().quick()), astuple(rows.Sizes()), strict=True)
    )


def _value(tables: Tables, statement: LiteralString) -> Any:
    (row,) = tables.execute(statement)
    (value,) = row.values()
    return value


def _sizes(tables: Tables) -> list[Any]:
    """Of one row each."""
    return tables.execute("""
        SELECT 'process' AS what, pg_column_size(p.*) AS bytes FROM processes AS p
        UNION SELECT task_type::text, pg_column_size(t.*) FROM tasks AS t
        UNION SELECT 'timer', pg_column_size(s.*) FROM schedule AS s
        ORDER BY what
    """)


def _databases(server: str) -> set[str]:
    names = databases.run_sql(server, "SELECT datname FROM pg_database")
    return {row["datname"] for row in names if row["datname"].startswith("progressor_bench_")}


def test_what_the_api_adds(dsn: str) -> None:
    """A worker, an API and callers, tiny: each way is asked, and each figure told."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.over_http", "--calls", "20", "--warm-up", "1"],
        cwd=ROOT,
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == [
        "client, p50",
        "socket, p50",
        "HttpClient, p50",
        "socket, added p50",
        "HttpClient, added p50",
        "CPU of the API for a call, 1 at once",
        "CPU of the API for a call, 16 at once",
        *(
            f"{way}, 32 at once, {figure}"
            for way in ("sockets", "HttpClient", "client")
            for figure in ("a call", "times that of sockets")
        ),
    ]


def test_an_api_with_and_without_handlers(dsn: str) -> None:
    """One with a worker beside it, one that runs them, two of these, tiny: each figure of each."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.engine_in_api"),
            *("--rounds", "2", "--calls", "16", "--warm-up", "8"),
        ],
        cwd=ROOT,
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    _, *lines = ran.stdout.splitlines()
    told = dict(line.split(": ") for line in lines)
    uses = [f"CPU of {whose} for a call" for whose in ("the side", "PostgreSQL", "both")]
    assert list(told) == [
        *(f"1 connection, {figure}" for figure in ("p50", *uses)),
        *(f"32 connections, {figure}" for figure in ("calls a second", "p50", "p99", *uses)),
    ]
    figure = r"[\d.]+ \(x [\d.]+\)"
    assert all(re.fullmatch(", ".join([figure] * 3), each) for each in told.values()), told
