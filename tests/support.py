"""What the tests build with: requests, decisions, steps; and what they look at: tables, invariants.

Rule: a test names only what it is about; everything else is a default in here.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from progressor.model import (
    Decision,
    Disposition,
    Event,
    ProcessStatus,
    Rejection,
    Reply,
    Snapshot,
    Task,
    TaskType,
)
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.postgres import watch
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.steps.fused import Fused
from progressor.storage.values import (
    Claimed,
    Continue,
    Evidence,
    LostLease,
    Postpone,
    Prepared,
    Request,
    Saved,
    Step,
    TaskRef,
    Zombie,
)
from progressor.timers import SetTimer, TimerChange, UnsetTimer, keeping
from progressor.timers.recurrence import as_begun

NS = "shop.order"
T0 = datetime(2040, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
WORKER = 1
OTHER_WORKER = 2
COLLECTOR = 9
LONG = timedelta(days=3650)
STEP_TIMEOUTS = {NS: 60 * SECOND}

_numbers = itertools.count(1)


def number() -> int:
    """A number never used before in this run: for leases and keys."""
    return next(_numbers) << 20


def request(
    process_id: str = "p1",
    task_type: TaskType = TaskType.CALL,
    *,
    key: str | None = None,
    worker_id: int | None = WORKER,
    namespace: str = NS,
    **fields: Any,
) -> Request:
    """A request of a caller with a free worker; worker_id=None: of one without."""
    lease = number()
    return Request(
        namespace=namespace,
        process_id=process_id,
        task_type=task_type,
        idempotency_key=key or f"key-{lease}",
        worker_id=worker_id,
        **{"request_hash": b"hash", "lease": lease, "args": b"args"} | fields,
    )


def init(process_id: str = "p1", **fields: Any) -> Request:
    return request(process_id, TaskType.INIT, **fields)


def repair(process_id: str = "p1", **fields: Any) -> Request:
    return request(process_id, TaskType.REPAIR, **fields)


# Decisions, named by what the handler did, or by what becomes of the timer.


def _success(disposition: Disposition, **fields: Any) -> Decision:
    defaults = {"reply": Reply(response=b"answer"), "status": ProcessStatus.RUNNING}
    return Decision(disposition, **defaults | fields)


def resume(**fields: Any) -> Decision:
    return _success(Disposition.RESUME, **fields)


def set_timer(
    after: timedelta | None = None,
    *,
    at: datetime | None = None,
    remove: bool = False,
    name: str = "",
    **fields: Any,
) -> Decision:
    return _success(Disposition.REPLACE, timer=SetTimer(at, after, remove, name), **fields)


def change_timers(*changes: TimerChange, **fields: Any) -> Decision:
    """The change of several timers."""
    return resume(changes=changes, **fields)


def cancel(name: str = "", **fields: Any) -> Decision:
    return _success(Disposition.CANCEL, timer=UnsetTimer(name), **fields)


def removed(**fields: Any) -> Decision:
    return _success(Disposition.REMOVE, **fields)


def fail(error: str = "ValueError: no") -> Decision:
    """The failure of anything but a timer."""
    return Decision(Disposition.BREAK, Reply(error=error), ProcessStatus.ERROR)


def fail_timer(timer: Task, error: str = "ValueError: no") -> Decision:
    """The last failure of a timer."""
    remove = timer.task_type is TaskType.REMOVE
    held = SetTimer(at=timer.scheduled_time, remove=remove, name=timer.name or "")
    return fail(error)._replace(timer=keeping(held, as_begun(timer.args)))


def fail_repair(error: str = "ValueError: no") -> Decision:
    return Decision(Disposition.HOLD, Reply(error=error))


def refuse_repair(reason: str = "not like that") -> Decision:
    return Decision(Disposition.HOLD, Reply(rejection=Rejection(reason)))


def retry(interval: timedelta = SECOND, error: str = "ValueError: no") -> Decision:
    return Decision(Disposition.RETRY, Reply(error=error), retry_interval=interval)


def refuse(reason: str = "too late", **details: Any) -> Decision:
    """A rejection of a call."""
    return Decision(Disposition.RESUME, Reply(rejection=Rejection(reason, details)))


def refuse_init(reason: str = "no such plan") -> Decision:
    return Decision(Disposition.REMOVE, Reply(rejection=Rejection(reason)))


def events(count: int) -> tuple[Event, ...]:
    return tuple(Event(b"payload", {"name": f"e{place}"}) for place in range(count))


class Held(NamedTuple):
    """A task that a worker holds, and its process as the worker knows it."""

    task: Task
    process: Snapshot

    @property
    def ref(self) -> TaskRef:
        return TaskRef.of(self.task, self.process)._replace(reply_to=None)

    def step(self, decision: Decision, *, keeps_slot: bool = True) -> Step:
        return Step(self.task, self.process, decision, keeps_slot, decision.size)

    def next(self, saved: Saved | LostLease, decision: Decision) -> Held:
        """The continuation, with the process as the worker keeps it in memory."""
        assert isinstance(saved, Saved)
        assert saved.continuation is not None, saved
        last = self.process.last_event_id + len(decision.events)
        return Held(saved.continuation, self.process._replace(last_event_id=last))


def held(result: Prepared | Claimed | None) -> Held:
    assert isinstance(result, Continue | Claimed), result
    return Held(result.task, result.process)


def postponed(result: Prepared) -> TaskRef:
    assert isinstance(result, Postpone), result
    return result.task


def hint_of(ref: TaskRef, reply_to: int | None = 61) -> TaskRef:
    """What is known of a task to those who only tell its caller."""
    return TaskRef(ref.namespace, ref.process_no, ref.task_id, reply_to)


async def prepare(storage: Storage, *requests: Request, now: datetime = T0) -> list[Prepared]:
    """Persist requests of one type."""
    match requests[0].task_type:
        case TaskType.INIT:
            return await storage.prepare_init(requests, now=now)
        case TaskType.REPAIR:
            return await storage.prepare_repair(requests, now=now)
        case _:
            return await storage.prepare_call(requests, now=now)


async def hold(storage: Storage, asked: Request, *, now: datetime = T0) -> Held:
    """Persist a request that runs at once."""
    (result,) = await prepare(storage, asked, now=now)
    return held(result)


async def wait(storage: Storage, asked: Request, *, now: datetime = T0) -> TaskRef:
    """Persist a request that waits."""
    (result,) = await prepare(storage, asked, now=now)
    return postponed(result)


async def save(
    storage: Storage,
    step: Held,
    decision: Decision,
    *,
    keeps_slot: bool = True,
    now: datetime = T0,
) -> Saved:
    (saved,) = await storage.save_result([step.step(decision, keeps_slot=keeps_slot)], now=now)
    assert isinstance(saved, Saved), saved
    return saved


async def start(
    storage: Storage, process_id: str = "p1", decision: Decision | None = None, **fields: Any
) -> None:
    """Make a process whose init ended with `decision`; it must leave nothing running."""
    first = await hold(storage, init(process_id, **fields))
    saved = await save(storage, first, decision or resume())
    assert saved.continuation is None


async def break_process(
    storage: Storage, process_id: str = "p1", *, by_timer: bool = False, timer: str = ""
) -> int:
    """Make a process and break it, by a call or by a timer of this name; the id of the task that did."""
    if by_timer:
        first = await hold(storage, init(process_id))
        decision = set_timer(timedelta(0), name=timer)
        broken = first.next(await save(storage, first, decision), decision)
        await save(storage, broken, fail_timer(broken.task))
    else:
        await start(storage, process_id)
        broken = await hold(storage, request(process_id))
        await save(storage, broken, fail())
    return broken.task.task_id


async def break_init(storage: Storage, process_id: str = "p1", **of_request: Any) -> int:
    """Start a process whose init fails; the id of that task."""
    broken = await hold(storage, init(process_id, **of_request))
    await save(storage, broken, fail())
    return broken.task.task_id


async def claim_calls(
    storage: Storage, limit: int = 100, *, now: datetime = T0, worker_id: int = WORKER
) -> list[Held]:
    found = await storage.search("calls", NS, limit, worker_id=worker_id, lease=number(), now=now)
    return [held(each) for each in found]


async def claim_timers(
    storage: Storage, limit: int = 100, *, now: datetime = T0, worker_id: int = WORKER
) -> list[Held]:
    found = await storage.search("timers", NS, limit, worker_id=worker_id, lease=number(), now=now)
    return [held(each) for each in found]


def evidence(at: datetime, *, since: datetime = T0 - LONG, beats: int = 1) -> Evidence:
    """What the collector of `Tables.set_collector` has seen by `at`: for years writes got through."""
    return Evidence(COLLECTOR, beats, since, at, "")


async def collect(
    storage: Storage,
    at: datetime,
    *,
    lease_age: timedelta = SECOND,
    grace: timedelta = SECOND,
    limit: int = 1000,
) -> list[Zombie]:
    """Judge as of a moment, and write that it was then."""
    return await storage.collect_zombies(
        evidence(at), lease_age=lease_age, grace=grace, limit=limit, now=at
    )


async def nothing() -> None:
    """What happens by default between a lost answer and the second try."""


class LossyConnections(SessionPool):
    """Loses a connection after the server committed (`late`), or before it got anything (`early`).

    The first so many are `spared`. `meanwhile` happens between the loss and the second try.
    """

    early = late = spared = 0
    meanwhile: Callable[[], Awaitable[object]] = staticmethod(nothing)

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        async with super().acquire() as session:
            if self.spared:
                self.spared -= 1
                yield session
                return
            if self.early:
                self.early -= 1
                raise psycopg.OperationalError("the connection was lost")
            yield session
            if self.late:
                self.late -= 1
                await self.meanwhile()
                raise psycopg.OperationalError("the connection was lost at COMMIT")


def lack_descriptors(monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[bool]:
    """Have so many sessions find no descriptor for their sockets; the list is empty once they have."""
    lacking = [True] * times

    class Descriptors:
        @staticmethod
        def dup(descriptor: int) -> int:
            if lacking:
                lacking.pop()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return os.dup(descriptor)

    monkeypatch.setattr(watch, "os", Descriptors)
    return lacking


async def eventually(condition: Callable[[], Any], text: str) -> None:
    """Poll until something can be observed that no signal announces. It need not last."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, text
        await asyncio.sleep(0.01)


Row = dict[str, Any]

# The rows of a process by its name, in a statement that is given it twice.
_OF: LiteralString = """
process_no IN (
    SELECT process_no FROM processes WHERE process_id = %s
    UNION ALL SELECT process_no FROM removed_processes WHERE process_id = %s
)
"""
_STATUS: LiteralString = """
CASE
    WHEN s.task_type IN ('timeout', 'remove') AND NOT s.claimable THEN CASE
        WHEN EXISTS (SELECT FROM processes AS p WHERE p.process_no = s.process_no AND p.status = 'error')
            THEN 'held'
        ELSE 'blocked'
    END
    WHEN s.task_id IS NOT NULL THEN 'waiting'
END
"""


Mark = dict[str, tuple[int, bool]]
_SEQUENCES: dict[str, LiteralString] = {
    "process_no": "processes_process_no_seq",
    "task_id": "tasks_task_id_seq",
    "bulk_id": "bulks_bulk_id_seq",
}
_NUMBERED: dict[str, tuple[LiteralString, ...]] = {
    "process_no": ("processes", "removed_processes"),
    "task_id": ("tasks", "schedule", "running", "events"),
    "bulk_id": ("bulks",),
}


class Tables:
    """The rows of one process, table by table."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        connection.execute("SET search_path = progressor")
        self._cursor = connection.cursor(row_factory=dict_row)

    def execute(self, sql: LiteralString, *params: Any) -> list[Row]:
        self._cursor.execute(sql, params)
        return self._cursor.fetchall() if self._cursor.description else []

    def waiting(self) -> list[Row]:
        """The transactions on this database that wait for locks."""
        # Within a transaction of the test's own the activity is else as it was when it first looked.
        self.execute("SELECT pg_stat_clear_snapshot()")
        return self.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )

    def in_transaction(self) -> list[Row]:
        """Transactions of others on this database, also those that are rolled back: they hold locks yet."""
        self.execute("SELECT pg_stat_clear_snapshot()")
        return self.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL"
        )

    def process(self, process_id: str = "p1") -> Row | None:
        found = self.execute("SELECT * FROM processes WHERE process_id = %s", process_id)
        return found[0] if found else None

    def running(self, process_id: str = "p1") -> Row | None:
        found = self.execute(f"SELECT * FROM running WHERE {_OF}", process_id, process_id)
        return found[0] if found else None

    def schedule(self, process_id: str = "p1") -> list[Row]:
        """With the status of each: a timer that is not claimable is blocked, or held."""
        return self.execute(
            f"SELECT *, {_STATUS} AS status FROM schedule AS s WHERE {_OF} ORDER BY task_id",
            process_id,
            process_id,
        )

    def tasks(self, process_id: str = "p1") -> list[Row]:
        """Of all lives of the process."""
        return self.execute(f"SELECT * FROM tasks WHERE {_OF} ORDER BY task_id", process_id, process_id)

    def task(self, task_id: int) -> Row | None:
        found = self.execute("SELECT * FROM tasks WHERE task_id = %s", task_id)
        return found[0] if found else None

    def events(self, process_id: str = "p1") -> list[Row]:
        return self.execute(f"SELECT * FROM events WHERE {_OF} ORDER BY event_id", process_id, process_id)

    def outline(self, process_id: str = "p1") -> list[tuple[str, str]]:
        """Type and status of every task of a process, in order; `blocked` and `held` as people see it."""
        rows = self.execute(
            f"""
            SELECT t.task_type, coalesce({_STATUS}, t.status::text) AS status
            FROM tasks AS t LEFT JOIN schedule AS s USING (process_no, task_id)
            WHERE {_OF} ORDER BY t.task_id
            """,
            process_id,
            process_id,
        )
        return [(row["task_type"], row["status"]) for row in rows]

    def everything(self) -> dict[str, list[Row]]:
        """All that the engine wrote, to be compared with what it is later."""
        return {
            "processes": self.execute("SELECT * FROM processes ORDER BY process_no"),
            "removed": self.execute("SELECT * FROM removed_processes ORDER BY process_no"),
            "kept": self.execute("SELECT * FROM kept_answers ORDER BY process_no, task_id"),
            "tasks": self.execute("SELECT * FROM tasks ORDER BY process_no, task_id"),
            "running": self.execute("SELECT * FROM running ORDER BY process_no"),
            "schedule": self.execute("SELECT * FROM schedule ORDER BY process_no, task_id"),
            "events": self.execute("SELECT * FROM events ORDER BY process_no, event_id"),
        }

    def mark(self) -> Mark:
        """Where the tables stand, to fall back to."""
        ends = {
            name: self.execute(f"SELECT last_value, is_called FROM {sequence}")[0]
            for name, sequence in _SEQUENCES.items()
        }
        return {name: (row["last_value"], row["is_called"]) for name, row in ends.items()}

    def fall_back(self, mark: Mark) -> None:
        """Lose what was added since, as a standby does that lagged: its numbers are handed out again."""
        for name, (last, is_called) in mark.items():
            self.execute("SELECT setval(%s::regclass, %s, %s)", _SEQUENCES[name], last, is_called)
            for table in _NUMBERED[name]:
                lost = last if is_called else last - 1
                self.execute(f"DELETE FROM {table} WHERE {name} > %s", lost)
        self.execute(
            "UPDATE processes AS p SET last_event_id = "
            "(SELECT count(*) FROM events AS e WHERE e.process_no = p.process_no)"
        )

    def set_namespace(
        self,
        name: str = NS,
        *,
        on_zombie: str = "error",
        zombie_attempts: int = 3,
        max_attempts: int | None = 10,
        step_timeout: float = 60,
        paused: bool = False,
        feed: bool = False,
    ) -> None:
        """As a worker registers it."""
        options = {
            "feed": feed,
            "on_zombie": on_zombie,
            "zombie_attempts": zombie_attempts,
            "step_timeout": step_timeout,
            "retry_policy": {"max_attempts": max_attempts},
        }
        self.execute(
            """
            INSERT INTO namespaces (name, options, paused) VALUES (%s, %s, %s)
            ON CONFLICT (name) DO UPDATE SET options = excluded.options, paused = excluded.paused
            """,
            name,
            psycopg.types.json.Jsonb(options),
            paused,
        )

    def set_worker(
        self,
        worker_id: int = WORKER,
        *,
        seen_at: datetime = T0,
        step_timeouts: Mapping[str, timedelta] = STEP_TIMEOUTS,
        lease_age: timedelta = MICROSECOND,
    ) -> None:
        """As its heartbeat writes it."""
        self.execute(
            """
            INSERT INTO workers (worker_id, host, namespaces, step_timeouts, lease_age, seen_at)
            VALUES (%s, 'host', %s, %s, %s, %s)
            ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at, beats = workers.beats + 1
            """,
            worker_id,
            list(step_timeouts),
            list(step_timeouts.values()),
            lease_age,
            seen_at,
        )

    @contextmanager
    def damaged(self, table: LiteralString) -> Iterator[None]:
        """What is written to this table meanwhile, and is so large that it stands aside, is lost."""
        ((toast,),) = self.connection.execute(
            "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = %s::regclass", (table,)
        ).fetchall()
        chunks = sql.SQL(toast)
        self.connection.execute(sql.SQL("CREATE TEMP TABLE known AS SELECT * FROM {}").format(chunks))
        yield
        # Nobody may, but in an ordinary table; and rows that are deleted are read until they are vacuumed.
        kind = "UPDATE pg_class SET relkind = %s WHERE oid = %s::regclass"
        self.connection.execute("SET allow_system_table_mods = on")
        self.connection.execute(kind, ("r", toast))
        self.connection.execute(sql.SQL("TRUNCATE {}").format(chunks))
        self.connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM known").format(chunks))
        self.connection.execute(kind, ("t", toast))
        self.connection.execute("DROP TABLE known")

    def set_collector(self) -> None:
        """As a collector's own heartbeat writes it: without it nobody is judged."""
        self.set_worker(COLLECTOR, seen_at=T0 + LONG, step_timeouts={})


def left(tables: Tables, process_id: str) -> dict[str, list[Row]]:
    """All that the tables have of a process, but for numbers, keys and leases."""
    numbers = {
        row["process_no"]
        for row in tables.execute("SELECT process_no, process_id FROM processes")
        if row["process_id"] == process_id
    }
    numbers |= {
        row["process_no"]
        for row in tables.execute("SELECT * FROM removed_processes")
        if row["process_id"] == process_id
    }
    places = {
        task: place
        for place, task in enumerate(
            sorted(
                row["task_id"]
                for row in tables.execute("SELECT process_no, task_id FROM tasks")
                if row["process_no"] in numbers
            )
        )
    }
    own = ("process_no", "process_id", "idempotency_key", "lease", "birth")
    return {
        table: [
            {
                name: places.get(value) if name in ("task_id", "corrupted_by") else value
                for name, value in row.items()
                if name not in own
            }
            for row in rows
            if row["process_no"] in numbers
        ]
        for table, rows in tables.everything().items()
    }


async def age(dsn: str, by: timedelta) -> None:
    """Make all that has ended so much older, and the marks by which walks tell what is young."""

    def make_older() -> None:
        with psycopg.connect(dsn) as own:
            # A walk of an engine that runs here may have made a mark that is not committed yet.
            own.execute("LOCK TABLE progressor.task_marks IN SHARE ROW EXCLUSIVE MODE")
            own.execute("UPDATE progressor.task_marks SET marked_at = marked_at - %s", [by])
            own.execute("UPDATE progressor.tasks SET finished_time = finished_time - %s", [by])
            own.execute("UPDATE progressor.events SET timestamp = timestamp - %s", [by])

    await asyncio.to_thread(make_older)


def check_invariants(dsn: str) -> None:
    """Whatever happened, these hold in between any two transactions."""
    broken = {each.name: each.findings for each in examine(dsn).invariants if not each.holds}
    assert not broken, broken


def ids(results: Sequence[Held]) -> list[int]:
    return [each.task.task_id for each in results]


async def fuse(
    storage: Storage,
    requests: Sequence[Request],
    run: Callable[[Sequence[Claimed]], Awaitable[Sequence[Decision | None]]],
    *,
    now: datetime | None = None,
) -> list[Fused]:
    """Accept requests, have `run` decide on those that may run, and save that, in one transaction."""
    opened = storage.fused_init if requests[0].task_type is TaskType.INIT else storage.fused_call
    async with opened(requests, now=now) as flight:
        decisions = await run(flight.held) if flight.held else ()
        return await flight.commit(decisions)


class NoConnections:
    """Stands where StepConnections would, for handlers that run no SQL of their own."""

    lent = 0

    def close(self) -> None:
        return


class NoForeignFunctions:
    """Stands where ForeignFunctions would, for a worker that is alone."""

    def left(self) -> tuple[str, ...]:
        return ()

    async def leave(self, _task: Any) -> None:
        return


NO_FOREIGN: Any = NoForeignFunctions()
