"""jitter and groups: recurring timers of one nominal time, spread; claims beside groups that are full."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from progressor.bench import flows
from progressor.bench.chain import Inconsistent, check_counts
from progressor.bench.databases import run_sql, runner
from progressor.bench.flows import Names
from progressor.bench.measure import Figures, Meter, spread, until
from progressor.bench.rows import NAMESPACE, Run, add_processes, settle
from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.storage import ROOM, SessionPool, Storage
from progressor.timers.recurrence import Occurrence, Recurrence
from progressor.worker.bells import Bells
from progressor.worker.claims import Claims

GROUPED = "bench.grouped"

_DAY = timedelta(days=1)
# Parts of the jitter, compared by chi-squared: 29 degrees of freedom. One run in a thousand has more than
# 58.3, one in a billion more than 101.
_PARTS, _MOST_CHI2 = 30, 101.0
_AT_ONCE = 20_000

_TIMERS = """
WITH task AS (
    INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time, args)
    SELECT p.process_no, 'timeout', 'waiting', i.due, %(occurrence)s::bytea
    FROM unnest(%(ids)s::text[], %(due)s::timestamptz[]) AS i (process_id, due)
    JOIN progressor.processes AS p ON p.process_id = i.process_id
    JOIN progressor.namespaces AS n USING (namespace_no)
    WHERE n.name = %(namespace)s
    RETURNING process_no, task_id, task_type, scheduled_time
)

INSERT INTO progressor.schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT t.process_no, t.task_id, n.namespace_no, t.task_type, t.scheduled_time, TRUE
FROM task AS t, progressor.namespaces AS n
WHERE n.name = %(namespace)s
"""
_STEPS = """
WITH step AS (
    SELECT
        extract(epoch FROM t.running_time - t.scheduled_time)::float8 AS begun,
        extract(epoch FROM t.finished_time - t.scheduled_time)::float8 AS ended,
        extract(epoch FROM t.finished_time - %(nominal)s::timestamptz)::float8 AS took,
        floor(extract(epoch FROM t.scheduled_time - %(nominal)s::timestamptz) / %(part)s::float8) AS due_in,
        floor(extract(epoch FROM t.running_time - %(nominal)s::timestamptz) / %(part)s::float8) AS begun_in
    FROM progressor.namespaces AS n
    JOIN progressor.processes AS p USING (namespace_no)
    JOIN progressor.tasks AS t USING (process_no)
    WHERE n.name = %(namespace)s AND t.task_type = 'timeout' AND t.status = 'finished'
)

SELECT
    (SELECT percentile_disc(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY begun) FROM step) AS begun,
    (SELECT percentile_disc(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY ended) FROM step) AS ended,
    (SELECT max(took) FROM step) AS took,
    ARRAY(
        SELECT (SELECT count(*) FROM step AS s WHERE s.due_in = i)
        FROM generate_series(0, %(parts)s::int - 1) AS i
    ) AS due_in,
    ARRAY(
        SELECT (SELECT count(*) FROM step AS s WHERE s.begun_in = i)
        FROM generate_series(0, %(parts)s::int - 1) AS i
    ) AS begun_in
"""


async def jitter(dsn: str, *, timers: int, seconds: float) -> Figures:
    """Measure recurring timers of one nominal time whose jitter spreads them over so many seconds.

    p50 and p99 are the time from when each was due to the beginning of its step, `ended` to its save. The
    rate counts until the end of the last step: it is below `asked_rate` where the worker falls behind.
    `chi2` is of the times at which steps began, in thirty parts of the jitter. Inconsistent if they were
    not due evenly.
    """
    names, run, steps = Names(flows.TIMERS, f"jitter-{secrets.token_hex(4)}-"), runner(dsn), flows.Steps()
    await asyncio.to_thread(add_processes, run, names, timers)
    rule = Recurrence(_DAY, jitter=timedelta(seconds=seconds))
    # Ten thousand a second can be written, with room to spare.
    nominal = datetime.now(UTC) + timedelta(seconds=5 + timers / 10_000)
    await asyncio.to_thread(_set_jittered, run, names, timers, rule, nominal)
    await asyncio.to_thread(settle, run)
    if datetime.now(UTC) > nominal:
        raise Inconsistent(f"{timers} timers were not written before they were due")
    async with Engine(dsn, [flows.timers(steps)]) as engine:
        await until(lambda: steps.count == timers and not engine.busy)
    check_counts(dsn, flows.TIMERS, None, "timeout", steps=timers, events=timers)
    given = {"nominal": nominal, "part": seconds / _PARTS, "parts": _PARTS}
    (found,) = run_sql(dsn, _STEPS, namespace=flows.TIMERS, **given)
    if (due := _chi2(found["due_in"], timers)) > _MOST_CHI2:
        raise Inconsistent(f"{timers} timers were not due evenly: {found['due_in']}, chi-squared {due:.0f}")
    return {
        "count": float(timers),
        "rate": timers / found["took"],
        "asked_rate": timers / seconds,
        "jitter_s": seconds,
        "due_chi2": due,
        "chi2": _chi2(found["begun_in"], timers),
        **_percentiles(found["begun"]),
        **_percentiles(found["ended"], "ended_"),
    }


def _chi2(found: list[int], count: int) -> float:
    """Return how far these counts are from one and the same in each part."""
    expected = count / _PARTS
    return sum((each - expected) ** 2 for each in found) / expected


def _percentiles(seconds: list[float], name: str = "") -> Figures:
    return {f"{name}p50_ms": seconds[0] * 1e3, f"{name}p99_ms": seconds[1] * 1e3}


def _set_jittered(run: Run, names: Names, count: int, rule: Recurrence, nominal: datetime) -> None:
    occurrence = Occurrence(rule, nominal).as_bytes()
    ids = (names.process_id(number) for number in range(1, count + 1))
    while chunk := list(islice(ids, _AT_ONCE)):
        due = [rule.due(nominal, names.namespace, each, "") for each in chunk]
        run(_TIMERS, namespace=names.namespace, ids=chunk, due=due, occurrence=occurrence)


# Processes of groups with the limit 1, each full by one step, and a last group with room. On each process a
# call waits for room.
_HELD = """
WITH made AS (
    INSERT INTO progressor.groups (namespace_no, group_key, group_limit)
    SELECT n.namespace_no, g.group_key, g.group_limit
    FROM progressor.namespaces AS n
    CROSS JOIN (
        SELECT i, 'full-' || i AS group_key, 1 AS group_limit
        FROM generate_series(1, %(groups)s::bigint) AS i
        UNION ALL SELECT %(groups)s::bigint + 1, 'open', NULL
    ) AS g
    WHERE n.name = %(namespace)s
    ORDER BY g.i
    RETURNING group_no, group_key
),

process AS (
    INSERT INTO progressor.processes (
        namespace_no, process_id, status, status_changed_at, created_at, birth, group_no
    )
    SELECT
        n.namespace_no, m.group_key || '-' || i, 'running', now(), now(),
        (random() * 2 ^ 62)::bigint, m.group_no
    FROM made AS m
    JOIN progressor.namespaces AS n ON n.name = %(namespace)s
    CROSS JOIN LATERAL generate_series(
        0,
        CASE m.group_key
            WHEN 'open' THEN %(open)s::bigint - 1 ELSE %(held)s::bigint / %(groups)s::bigint
        END
    ) AS i
    RETURNING process_no, namespace_no, process_id, group_no
),

task AS (
    INSERT INTO progressor.tasks (process_no, task_type, status, scheduled_time, name)
    SELECT
        p.process_no, 'call',
        (
            CASE WHEN p.process_id LIKE 'full-%%-0' THEN 'running' ELSE 'waiting' END
        )::progressor.task_status,
        now(), 'add'
    FROM process AS p
    RETURNING process_no, task_id, task_type, status, scheduled_time
),

filled AS (
    INSERT INTO progressor.running (
        process_no, task_id, task_type, worker_id, lease, running_time, group_no
    )
    SELECT t.process_no, t.task_id, t.task_type, 7, 7, now(), p.group_no
    FROM task AS t JOIN process AS p USING (process_no)
    WHERE t.status = 'running'
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable, held_time, group_no
)
SELECT
    t.process_no, t.task_id, p.namespace_no, t.task_type, t.scheduled_time, FALSE, t.scheduled_time,
    p.group_no
FROM task AS t JOIN process AS p USING (process_no)
WHERE t.status = 'waiting'
"""


class _Nobody:
    """No function is left to others."""

    def left(self) -> tuple[()]:
        return ()


async def full_groups(dsn: str, *, held: int, groups: int, claims: int, limit: int = 10) -> Figures:
    """Measure claims of so many requests of a group with room, beside full groups in which others wait.

    p50, p99 and CPU are of claims that take requests, which in many groups go on with a turn; `turn` is of
    each claim of a turn that finds nothing, and `turn_claims` how many these are; `freed` is of one claim
    where a step has ended in a full group.
    """
    run = runner(dsn)
    run(NAMESPACE, name=GROUPED)
    sizes = {"groups": groups, "held": held, "open": limit * claims}
    await asyncio.to_thread(run, _HELD, namespace=GROUPED, **sizes)
    await asyncio.to_thread(settle, run)
    (last,) = run_sql(dsn, "SELECT max(group_no) AS group_no FROM progressor.groups")
    connections = SessionPool(dsn, limit=1)
    claiming = _Claiming(Storage(connections, patience=timedelta(seconds=30)), limit)
    try:
        async with Meter(dsn) as meter:
            taking = [await claiming.where_ended(last["group_no"]) for _ in range(claims)]
        if claiming.found != limit * claims:
            raise Inconsistent(f"{limit * claims} requests should have been claimed, {claiming.found} were")
        turn = await claiming.turn()
        freed = [await claiming.where_ended(last["group_no"] - 1) for _ in range(claims)]
    finally:
        await connections.close()
        run_sql(dsn, "DELETE FROM progressor.running")
    cost = meter.per(claims)
    return {
        **{name: cost[name] for name in ("count", "client_cpu_us", "server_cpu_us") if name in cost},
        **spread(sorted(taking)),
        "turn_claims": float(len(turn)),
        **spread(sorted(turn), "turn_"),
        **spread(sorted(freed), "freed_"),
    }


class _Claiming:
    """The claims of a pool, without its slots: it hears its own bells."""

    def __init__(self, storage: Storage, limit: int) -> None:
        self._limit = limit
        self.found = 0
        foreign: Any = _Nobody()
        namespace: Namespace[Any] = Namespace(GROUPED, group=str)
        self._bells = Bells(timedelta(hours=1))
        self._claims = Claims(namespace, storage, foreign, self._bells, worker_id=1)

    async def _claim(self) -> float:
        self._bells.rung.clear()
        began = time.perf_counter()
        self.found += len(await self._claims.search("calls", self._limit, ROOM))
        return time.perf_counter() - began

    async def where_ended(self, group_no: int) -> float:
        """Claim once, as after the end of a step in this group; return the seconds."""
        self._claims.leave(group_no)
        return await self._claim()

    async def turn(self) -> list[float]:
        """Claim until all groups were looked at; return the seconds of each claim."""
        self._claims.look_around()
        took = [await self._claim()]
        while self._bells.rung:
            took.append(await self._claim())
        return took
