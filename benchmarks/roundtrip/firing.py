"""The target at work: keys get their stored answers, and timers fire once each, where they should.

Rule: what is due is known from the source, which nobody has touched since it was exported.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from benchmarks.roundtrip.filling import Asked, outcome
from benchmarks.roundtrip.service import MONTH, NAMESPACE
from progressor import Client

_OF = """
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE n.name = %s
"""
_TIMERS = """
SELECT p.process_id, x.timer, x.scheduled_time, x.task_type = 'remove', p.detail IS NOT NULL
FROM progressor.schedule AS x {of} AND x.task_type IN ('timeout', 'remove')
"""
_STEPS = """
SELECT p.process_id, coalesce(x.name, ''), x.scheduled_time, x.running_time
FROM progressor.tasks AS x {of} AND x.task_type = 'timeout' AND x.status = 'finished'
"""
_FIRED = """
SELECT p.process_id, x.data ->> 'timer', (x.data ->> 'due')::timestamptz, x.timestamp
FROM (
    SELECT e.process_no, e.timestamp, convert_from(e.payload, 'UTF8')::jsonb AS data
    FROM progressor.events AS e
    WHERE e.metadata ->> 'name' = 'fired'
) AS x {of}
"""
_NOTED = """
SELECT p.process_id, array_agg(convert_from(x.payload, 'UTF8')::jsonb ->> 'text' ORDER BY x.event_id)
FROM progressor.events AS x {of} AND x.metadata ->> 'name' = 'noted'
GROUP BY p.process_id
"""
# In one snapshot, or a step might be missed on its way from one table to the other.
_UNDER_WAY = """
SELECT
    now() <= %s
    OR EXISTS (
        SELECT FROM progressor.schedule AS x {of} AND p.detail IS NULL AND x.scheduled_time <= %s
    )
    OR EXISTS (SELECT FROM progressor.running)
"""
_TASKS = "SELECT count(*) FROM progressor.tasks AS x {of}"
_NAMES = "SELECT p.process_id FROM progressor.processes AS x {of}"
_BROKEN = "SELECT p.process_id FROM progressor.processes AS x {of} AND p.detail IS NOT NULL"
_IN_ORDER = ["waits 0", "waits 1", "waits 2"]
_AT_ONCE, _LOOK_SECONDS, _SOON = 32, 0.2, timedelta(hours=1)

Place = tuple[str, str]
"""A timer by its process and its name."""


class SetTimers(NamedTuple):
    """The timers of a database, by process and name: when each is due."""

    plain: dict[Place, datetime]
    removing: dict[Place, datetime]
    held: dict[Place, datetime]


class Fired(NamedTuple):
    """Counts of timers: those that fired, of these those that passed before that, and those left."""

    fired: int
    passed_before: int
    standing: int
    held: int


class Firing:
    """The checks of the target, one after the other; each difference is a line of `findings`.

    A worker runs while `wait` waits, and none while anything is checked.
    """

    def __init__(self, source: str, target: str) -> None:
        self._source = psycopg.connect(source, autocommit=True)
        self._target = psycopg.connect(target, autocommit=True)
        self._set = self._timers(self._source)
        self._began = self._until = self._now()
        # What fired in the source, before it was paused, is a part of the histories that were imported.
        self._before = {each: Counter(_all(self._source, each)) for each in (_FIRED, _STEPS)}
        self._broken = {str(name) for (name,) in self._rows(_BROKEN)}
        self.findings: list[str] = []

    def close(self) -> None:
        """Close the connections."""
        self._source.close()
        self._target.close()

    async def repeat(self, client: Client, answers: Iterable[Asked]) -> int:
        """Ask again under the same keys, while no worker runs: stored answers, and not one task more."""
        before, left, count = self._query(_TASKS), iter(answers), 0

        async def walk() -> None:
            nonlocal count
            for asked in left:
                count += 1
                got = await outcome(_again(client, asked))
                if repr(got) != repr(asked.answer):
                    self.findings.append(f"{asked.process_id}, key {asked.key}: {got}, not {asked.answer}")

        await asyncio.gather(*(walk() for _ in range(_AT_ONCE)))
        if (after := self._query(_TASKS)) != before:
            self.findings.append(f"repeated requests made tasks: {after} of {before}")
        return count

    async def wait(self, window: timedelta) -> None:
        """Wait until all that falls due in this time is done; it begins no sooner than the first is due."""
        self._began = self._now()
        first = min(self._set.plain.values(), default=self._began)
        await self._until_done(max(self._began, first) + window)

    def check(self) -> Fired:
        """Check what fired and what stands."""
        fired = {row[:2] for row in self._new(_FIRED)}
        # What falls due as the worker ends is fired or stands.
        due = {p: at for p, at in self._set.plain.items() if at <= self._until or p in fired}
        stands = {p: at for p, at in self._set.plain.items() if p not in due}
        self._check_fired(due)
        again = {p: at + MONTH for p, at in due.items() if p[1] == "report"}
        self._check_set(stands | again)
        self._check_removed()
        self._check_mailboxes()
        passed = sum(at <= self._began for at in due.values())
        return Fired(len(due), passed, len(stands), len(self._set.held))

    async def repair(self, client: Client) -> int:
        """Repair what is broken, and wait until what was held has fired if its time has passed."""
        left = iter(self._broken)

        async def walk() -> None:
            for name in left:
                await client.repair(NAMESPACE, name)

        await asyncio.gather(*(walk() for _ in range(_AT_ONCE)))
        soon = self._now() + _SOON
        await self._until_done(max([self._now(), *(at for at in self._set.held.values() if at < soon)]))
        return len(self._broken)

    def check_repaired(self) -> None:
        """Check that what was held came back at its time, or at once if that had passed."""
        due = {p: at for p, at in self._set.held.items() if at <= self._until}
        fired = Counter(row[:2] for row in self._new(_FIRED) if row[0] in self._broken)
        self._differ("fired after the repair", Counter(due.keys()), fired)
        stands = {p: at for p, at in self._set.held.items() if p not in due}
        found = self._timers(self._target).plain
        self._differ(
            "set after the repair", stands, {p: at for p, at in found.items() if p[0] in self._broken}
        )

    def _check_fired(self, due: Mapping[Place, datetime]) -> None:
        """Note timers that fired never, twice or too early, by their events and by their steps."""
        wanted = Counter((*place, at) for place, at in due.items())
        for what, statement in (("event", _FIRED), ("step", _STEPS)):
            rows = self._new(statement)
            self._differ(f"{what} of a timer", wanted, Counter(row[:3] for row in rows))
            self.findings += [
                f"{what} of {name}, timer {timer}: at {then}, and it was due at {at}"
                for name, timer, at, then in rows
                if then < at
            ]

    def _check_set(self, plain: Mapping[Place, datetime]) -> None:
        """Note timers that are set or held in another way than they should."""
        timers = self._timers(self._target)
        self._differ("timer that is set", plain, timers.plain)
        self._differ("timer that is held", self._set.held, timers.held)

    def _check_removed(self) -> None:
        """Note processes that are gone or there against their timers."""
        names = {str(name) for (name,) in self._rows(_NAMES)}
        due = {name: at for (name, _), at in self._set.removing.items()}
        before = {str(name) for (name,) in _all(self._source, _NAMES)}
        now = self._now()
        for name in sorted(before - names):
            if name not in due or due[name] > now:
                self.findings.append(f"{name}: is not there")
        for name in sorted(names & due.keys()):
            if due[name] <= self._until:
                self.findings.append(f"{name}: was to be removed by its timer")

    def _check_mailboxes(self) -> None:
        """Note notices that came out of their order."""
        waited = self._rows(_NOTED)
        self.findings += [f"{name}: {texts} came" for name, texts in waited if texts != _IN_ORDER]

    def _differ(self, what: str, wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> None:
        """Note each entry that is another one."""
        for each in sorted(wanted.keys() | found.keys()):
            if wanted.get(each) != found.get(each):
                self.findings.append(f"{what}, {each}: {found.get(each)} in place of {wanted.get(each)}")

    async def _until_done(self, until: datetime) -> None:
        """Wait until this time is over, and nothing that was due by then is left."""
        self._until = until
        # Nobody would set an event: what is waited for is in a database.
        while await asyncio.to_thread(self._is_left, until):  # noqa: ASYNC110 - as said
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_left(self, until: datetime) -> bool:
        ((left,),) = self._target.execute(
            _UNDER_WAY.format(of=_OF).encode(), [until, NAMESPACE, until]
        ).fetchall()
        return bool(left)

    def _timers(self, database: psycopg.Connection) -> SetTimers:
        """Return the timers of a side."""
        found = SetTimers({}, {}, {})
        for name, timer, due, removes, is_held in _all(database, _TIMERS):
            kind = found.held if is_held else found.removing if removes else found.plain
            kind[name, timer] = due
        return found

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what a statement finds in the target."""
        return _all(self._target, statement)

    def _new(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what is not in the source."""
        return list((Counter(self._rows(statement)) - self._before[statement]).elements())

    def _query(self, statement: str) -> int:
        """Return the number that a statement finds in the target."""
        return int(self._rows(statement)[0][0])

    def _now(self) -> datetime:
        """Return the time of the target's clock."""
        ((now,),) = self._target.execute("SELECT now()").fetchall()
        return now  # type: ignore[no-any-return]  # of a row


def _all(database: psycopg.Connection, statement: str) -> list[tuple[Any, ...]]:
    """Return what a statement finds of the namespace."""
    return database.execute(statement.format(of=_OF).encode(), [NAMESPACE]).fetchall()


def _again(client: Client, asked: Asked) -> Awaitable[Any]:
    """Ask what was asked, under its key."""
    if asked.name is None:
        return client.start(NAMESPACE, asked.process_id, asked.args, idempotency_key=asked.key)
    return client.call(NAMESPACE, asked.process_id, asked.name, asked.args, idempotency_key=asked.key)
