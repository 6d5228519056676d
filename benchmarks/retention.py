"""`python -m benchmarks.retention beside` and `… year`: what retention costs, and whether tables stay flat.

`beside`: old tasks and events by the million, written by PostgreSQL itself, are deleted by a walker of its
own OS process, beside a full load of calls. The walker is on and off in turn, in windows of equal length:
short ones and many of them, because a machine that others share drifts by a tenth within a minute.
`year`: a year of constant load in simulated time, with walks each day, and the sizes of the tables.
Rule: a pair of windows is compared with itself, and what is told are medians, with those of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from benchmarks.over_http import cpu
from benchmarks.soak.samples import of_database
from progressor import Client, Engine, Retention
from progressor.bench import flows, rows
from progressor.bench.databases import runner
from progressor.bench.flows import Names
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window
from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.services.retention_sweeper import RetentionSweeper
from progressor.storage import SessionPool, Storage, migrations

_ROOT = Path(__file__).resolve().parents[1]
_OLD = "retention.old"
_DAY = timedelta(days=1)
# Of each old process.
_TASKS = 1000
_CLIENTS = 32
# Seconds, before each window.
_WARMUP = 0.5
_PATIENCE = timedelta(seconds=30)
# What tells the walker to walk, or to rest once its round has ended.
_GO, _REST = signal.SIGUSR1, signal.SIGUSR2
# Milliseconds; a session that waits for a lock for longer is a line in the log of the server.
_LONG_WAIT = 50
_WAITED = "still waiting for"
# A task and an event of each process at each number of a range, as time passes.
_ROWS = """
WITH task AS (
    INSERT INTO progressor.tasks (
        process_no, task_type, status, scheduled_time, running_time, finished_time, name, args,
        idempotency_key, request_hash, response, worker_id, lease
    )
    SELECT
        p.process_no, 'call', 'finished', at.t, at.t, at.t, 'add', '{}'::bytea,
        substr(md5(p.process_no || '/' || i), 1, 22), substr(sha256(i::text::bytea), 1, 12),
        '1'::bytea, 1, i
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i
    CROSS JOIN LATERAL (SELECT %(at)s::timestamptz + i * %(gap)s::interval AS t) AS at
    CROSS JOIN progressor.processes AS p
    JOIN progressor.namespaces AS n USING (namespace_no)
    WHERE n.name = %(namespace)s
    RETURNING process_no, task_id, finished_time, lease
)

INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT t.process_no, t.lease, t.task_id, t.finished_time, '{"name": "added"}', convert_to(%(pad)s, 'UTF8')
FROM task AS t
"""
_LAST_EVENT = """
UPDATE progressor.processes AS p SET last_event_id = %(last)s::bigint
FROM progressor.namespaces AS n WHERE n.namespace_no = p.namespace_no AND n.name = %(namespace)s
"""


@contextmanager
def server(**settings: str) -> Iterator[tuple[str, Path]]:
    """A PostgreSQL of its own: its DSN, and its folder."""
    with tempfile.TemporaryDirectory(prefix="prg-retention-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        folder, programs = Path(home) / "postgres", Settings().postgres_bin_dir
        embedded = EmbeddedPostgres(folder, bin_dir=programs, settings=settings)
        try:
            dsn = embedded.start()
            migrations.upgrade(dsn)
            yield dsn, Path(home)
        finally:
            embedded.stop()


def add_rows(dsn: str, first: int, last: int, *, at: datetime, gap: timedelta) -> None:
    """Add a task and an event to each old process, for each number of this range."""
    params = {"first": first, "last": last, "at": at, "gap": gap, "namespace": _OLD, "pad": flows.PAD}
    runner(dsn)(_ROWS, **params)
    runner(dsn)(_LAST_EVENT, last=last, namespace=_OLD)


# Beside a load.


async def beside(options: argparse.Namespace) -> None:
    """Measure calls with and without a walker, in pairs of windows, and tell the medians."""
    with server(log_lock_waits="on", deadlock_timeout=f"{_LONG_WAIT}ms") as (dsn, home):
        processes = max(1, options.tasks // _TASKS)
        load(dsn, processes)
        print(f"{processes * _TASKS:,} old tasks and as many events of {processes:,} processes", flush=True)
        found: dict[str, list[Figures]] = {"on": [], "off": []}
        async with (
            Engine(dsn, [flows.entity()], zombie_collector=False) as engine,
            walker(dsn, options.rate) as walking,
        ):
            await engine.client.set_retention(_OLD, Retention(tasks=30 * _DAY, events=10))
            for number in range(options.pairs):
                # Forth and back: what drifts counts for both.
                for state in ("on", "off") if number % 2 else ("off", "on"):
                    walking.send_signal(_GO if state == "on" else _REST)
                    figures = await window(engine, dsn, home, options, walking.pid)
                    found[state].append(figures)
                    print(f"{state}: {shown(figures)}", flush=True)
            if options.until_gone:
                walking.send_signal(_GO)
                await until_gone(engine, dsn, home, options, walking.pid)
    if options.pairs:
        tell(found)


async def until_gone(engine: Engine, dsn: str, home: Path, options: argparse.Namespace, pid: int) -> None:
    """Let the walker delete all that is left, beside the load; tell each window, and the whole."""
    clock, before, windows = asyncio.get_running_loop().time, await deleted(engine.client), list[Figures]()
    began = clock()
    while not windows or windows[-1]["deleted_a_second"]:
        figures = await window(engine, dsn, home, options, pid)
        print(f"{clock() - began:,.0f} s: {shown(figures)}", flush=True)
        windows.append(figures)
        ended, gone = clock(), await deleted(engine.client) - before
    # In the last window nothing was left.
    seconds = ended - began - (options.seconds + _WARMUP)
    print(f"\n{gone:,} rows deleted in {seconds:,.0f} s: {gone / seconds:,.0f} a second", flush=True)
    for name, text in _TOLD.items():
        found = [each.get(name, 0.0) for each in windows[:-1]]
        print(f"{text}: {statistics.median(found):,.1f} ({min(found):,.1f} to {max(found):,.1f})")


def load(dsn: str, processes: int) -> None:
    """Make old processes with a thousand tasks and events each."""
    run = runner(dsn)
    rows.add_processes(run, Names(_OLD, "old-"), processes)
    began, gap = datetime.now(UTC) - 400 * _DAY, timedelta(hours=1)
    step = max(1, 500_000 // processes)
    for first in range(1, _TASKS + 1, step):
        add_rows(dsn, first, min(_TASKS, first + step - 1), at=began, gap=gap)
    rows.settle(run)


async def window(engine: Engine, dsn: str, home: Path, options: argparse.Namespace, pid: int) -> Figures:
    """One window of calls: rate, latencies and CPU of a call; and what the walker of this pid did."""
    ids = [f"live-{number}" for number in range(_CLIENTS)]
    for each in ids:
        with contextlib.suppress(Exception):
            await engine.client.start(flows.ENTITY, each, {})

    async def act(number: int) -> None:
        await engine.client.call(flows.ENTITY, ids[number], "add", {})

    before, began, waits = await deleted(engine.client), cpu(pid), long_waits(home)
    figures = await ClosedLoop(_CLIENTS, act).run(Meter(dsn), Window(options.seconds, _WARMUP))
    seconds = options.seconds + _WARMUP
    figures["deleted_a_second"] = (await deleted(engine.client) - before) / seconds
    figures["walker_cpu_percent"] = 100 * (cpu(pid) - began) / seconds
    figures["waits_longer_than_50_ms"] = float(long_waits(home) - waits)
    return figures


async def deleted(client: Client) -> int:
    """The rows that the walk has deleted so far."""
    known = await client.retention(_OLD)
    return known.tasks_deleted + known.events_deleted


def long_waits(home: Path) -> int:
    """The lines of the server's log about long waits for locks."""
    logs = home.glob("postgres/**/log/*.log")
    return sum(log.read_text(errors="replace").count(_WAITED) for log in logs)


@asynccontextmanager
async def walker(dsn: str, rate: float) -> AsyncIterator[Process]:
    """A walker in an OS process of its own, which rests until it gets the signal to go."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.retention", "walk", dsn, str(rate)),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        if not await process.stdout.readline():
            raise RuntimeError("the walker did not start")
        yield process
    finally:
        process.kill()
        await process.wait()


async def walk(dsn: str, rate: float) -> None:
    """Be the walker, until killed."""
    going, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(_GO, going.set)
    loop.add_signal_handler(_REST, going.clear)
    pool = SessionPool(dsn, limit=2)
    sweeper = RetentionSweeper(Storage(pool, patience=_PATIENCE), rate=rate, interval=_PATIENCE)
    print("ready", flush=True)
    while True:
        await going.wait()
        due_in = await sweeper.run_once()
        await asyncio.sleep(1.0 if due_in is None else max(0.0, due_in.total_seconds()))


_TOLD = {
    "rate": "calls a second",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "client_cpu_us": "CPU of the engine for a call, µs",
    "server_cpu_us": "CPU of PostgreSQL for a call, the walk included, µs",
    "deleted_a_second": "rows deleted a second",
    "walker_cpu_percent": "CPU of the walker, % of a core",
    "waits_longer_than_50_ms": "waits for a lock, longer than 50 ms",
}


def shown(figures: Figures) -> str:
    """One window on one line."""
    return ", ".join(f"{text} {figures.get(name, 0):,.1f}" for name, text in _TOLD.items())


def tell(found: Mapping[str, Sequence[Figures]]) -> None:
    """Print the medians of both, and the median of the ratios of the pairs."""
    print(f"\n| medians of {len(found['on'])} pairs | walker on | off | ratio |\n|---|--:|--:|--:|")
    for name, text in _TOLD.items():
        on, off = ([each.get(name, 0.0) for each in found[state]] for state in ("on", "off"))
        ratios = [a / b for a, b in zip(on, off, strict=True) if b]
        ratio = f"{statistics.median(ratios):.3f}" if len(ratios) == len(on) else ""
        print(f"| {text} | {statistics.median(on):,.1f} | {statistics.median(off):,.1f} | {ratio} |")


# A year.

_SHOWN = (30, 60, 120, 180, 240, 300, 365)
_PROCESSES, _A_DAY = 200, 25
_SIZES = ("tasks table, MiB", "tasks indexes, MiB", "events table, MiB", "events indexes, MiB")


async def year(options: argparse.Namespace) -> bool:
    """Simulate a year; print the sizes of the tables, and return whether they were flat in its last third.

    Tasks are kept for 30 days, events for 60. With `--vacuum-days` VACUUM comes then alone.
    """
    daemon = "on" if options.vacuum_days is None else "off"
    # A day passes in a part of a second, so the daemon looks as often as it can.
    with server(autovacuum=daemon, autovacuum_naptime="1s", synchronous_commit="off") as (dsn, _):
        print(f"{psycopg.connect(dsn).info.server_version // 10_000}, autovacuum {daemon}", flush=True)
        pool = SessionPool(dsn, limit=2)
        try:
            sizes = await _days(dsn, Storage(pool, patience=_PATIENCE), options)
        finally:
            await pool.close()
    if options.days < max(_SHOWN):
        return True
    flat = all(sizes[365][name] <= 1.1 * sizes[240][name] + 1 for name in _SIZES)
    print("flat from day 240 on" if flat else "NOT flat from day 240 on")
    return flat


async def _days(dsn: str, storage: Storage, options: argparse.Namespace) -> dict[int, Mapping[str, float]]:
    """Each day: its tasks and events come, a walk goes; and the sizes are looked at now and then."""
    rows.add_processes(runner(dsn), Names(_OLD, "year-"), _PROCESSES)
    began, sizes = datetime.now(UTC) - 400 * _DAY, {}
    kept = Retention(tasks=30 * _DAY, events=60 * _DAY)
    print("| day | " + " | ".join((*_SIZES, "live tasks", "dead tasks")) + " |", flush=True)
    for day in range(1, options.days + 1):
        today = began + day * _DAY
        await asyncio.sleep(options.pause)
        first = (day - 1) * _A_DAY + 1
        await asyncio.to_thread(add_rows, dsn, first, day * _A_DAY, at=began, gap=_DAY / _A_DAY)
        if day == 1:
            await storage.set_retention(_OLD, kept, now=today)
        await storage.begin_sweep(_OLD, now=today)
        while (swept := await storage.sweep(rate=1e6, namespace=_OLD, now=today)) and not swept.is_over:
            today += timedelta(seconds=1)
        if options.vacuum_days and day % options.vacuum_days == 0:
            await asyncio.to_thread(runner(dsn), "VACUUM progressor.tasks, progressor.events")
        if day in (*_SHOWN, options.days):
            sizes[day] = _sizes(dsn)
            print(
                f"| {day} | " + " | ".join(f"{each:,.0f}" for each in sizes[day].values()) + " |",
                flush=True,
            )
    return sizes


def _sizes(dsn: str) -> Mapping[str, float]:
    with psycopg.connect(dsn) as connection:
        sample = of_database(connection)
    return {name: sample[name] for name in (*_SIZES, "tasks live rows", "tasks dead rows")}


def main() -> int:
    """Read the command line, and run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retention", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    near = commands.add_parser("beside", help="a walker beside a load of calls")
    near.add_argument("--tasks", type=int, default=10_000_000, help="old tasks, and as many events")
    near.add_argument("--rate", type=float, default=1000.0, help="rows that the walker deletes a second")
    near.add_argument("--pairs", type=int, default=60, help="pairs of windows, on and off")
    near.add_argument("--seconds", type=float, default=3.0, help="of a window")
    near.add_argument("--until-gone", action="store_true", help="then delete all, in one run")
    whole = commands.add_parser("year", help="a year in simulated time")
    whole.add_argument("--days", type=int, default=365)
    whole.add_argument("--pause", type=float, default=0.2, help="seconds between two days, for autovacuum")
    whole.add_argument(
        "--vacuum-days", type=int, help="no autovacuum: VACUUM every so many days, as if it lagged"
    )
    walker = commands.add_parser("walk", help="the walker of `beside`")
    walker.add_argument("dsn")
    walker.add_argument("rate", type=float)
    options = parser.parse_args()
    match options.command:
        case "beside":
            asyncio.run(beside(options))
        case "year":
            return 0 if asyncio.run(year(options)) else 1
        case _:
            asyncio.run(walk(options.dsn, options.rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
