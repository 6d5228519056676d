"""Monitoring: which workers serve which namespaces, what waits there, and the server; also hints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from progressor.monitoring import (
    DatabaseFigures,
    LoadSample,
    NamespaceStatus,
    SlotFigures,
    StandbyFigures,
    TableFigures,
    Waiting,
)
from progressor.rights import check_patterns, fitting
from progressor.storage.params import hint_columns
from progressor.storage.postgres.arrays import bigints, microseconds, texts
from progressor.storage.postgres.server_identity import place_of
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.rows import record_of
from progressor.storage.statements import Params, Row, Transaction

# Tables, standbys and slots of a look at the database, each.
_MOST = 20
_LISTS = ("table_figures", "standby_figures", "slot_figures")


class LiveWorker(NamedTuple):
    """A worker whose heartbeat is fresh, and its free slots of a namespace at its last beat."""

    worker_id: int
    free_slots: int


class NamespaceRow(NamedTuple):
    """A namespace as the workers that serve it registered it."""

    name: str
    paused: bool
    options: Mapping[str, Any]
    schemas: Mapping[str, Any]
    updated_at: datetime


class ServedNamespaces(NamedTuple):
    """The number of live workers, the namespaces they serve, and the paused namespaces."""

    workers: int
    namespaces: tuple[str, ...]
    paused: tuple[str, ...]


class Backlog(NamedTuple):
    """The backlog of a namespace.

    `next_due` is the time until its next timer falls due, None if it has none; `rests` that until its rate
    lets the next step begin, `next_room` that until a rate of groups does; None: it may begin now.
    """

    calls: Waiting
    timers: Waiting
    next_due: timedelta | None
    paused: bool = False
    rests: timedelta | None = None
    next_room: timedelta | None = None


class NextTimers(NamedTuple):
    """The time at which the first timer of each namespace is due, None if it has none.

    `others` are namespaces where more than timers and time decide what runs next: `backlog` tells what.
    """

    due: Mapping[str, datetime | None]
    others: Sequence[str]
    has_messages: bool
    now: datetime | None

    @property
    def idle(self) -> dict[str, Backlog]:
        """The backlogs of the namespaces where nothing is due."""
        nothing, now = Waiting(0, timedelta()), self.now
        return {
            name: Backlog(nothing, nothing, None if due is None else due - now)
            for name, due in self.due.items()
            if now is not None and (due is None or due > now)
        }


class Overview(Transactions):
    """The rare statements that lock no process."""

    async def register_namespace(
        self,
        name: str,
        *,
        options: Mapping[str, Any],
        schemas: Mapping[str, Any],
        since: datetime | None = None,
    ) -> datetime | None:
        """Publish a namespace that a worker serves, and return when it did; an operator's pause stays.

        With `since`, when it last did, it does so as of then; None: another worker has published it later.
        """
        stated = {"options": json.dumps(options), "schemas": json.dumps(schemas)}
        rows = await self._rows("register_namespace", name=name, since=since, **stated)
        return rows[0]["updated_at"] if rows else None

    async def namespace(self, name: str) -> NamespaceRow | None:
        """Return a namespace by its name; None if no worker ever served it."""
        rows = await self._rows("namespace", name=name)
        return NamespaceRow(**rows[0]) if rows else None

    async def namespace_names(self) -> list[str]:
        """Return every namespace that any worker ever served."""
        return [row["name"] for row in await self._rows("namespace_names")]

    async def namespaces_fitting(self, patterns: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the namespaces that one of these patterns fits; None means any.

        InvalidRequest if a pattern is malformed.
        """
        if patterns is None:
            return None
        return fitting(check_patterns("namespaces", patterns), await self.namespace_names())

    async def served_namespaces(self, lease_age: timedelta) -> dict[str, int]:
        """Return the number of live workers of each namespace that is served."""
        rows = await self._rows("served_namespaces", lease_age=lease_age)
        return {row["name"]: row["workers"] for row in rows}

    async def live_workers(self, namespace: str, lease_age: timedelta) -> list[LiveWorker]:
        """Return the live workers that serve a namespace."""
        rows = await self._rows("live_workers", namespace=namespace, lease_age=lease_age)
        return [LiveWorker(**row) for row in rows]

    async def others_serving(
        self, namespace: str, function: str, *, worker_id: int, lease_age: timedelta
    ) -> list[LiveWorker]:
        """Return the live workers but this one that serve a function of a namespace."""
        about = {"namespace": namespace, "function": function}
        rows = await self._rows("others_serving", **about, worker_id=worker_id, lease_age=lease_age)
        return [LiveWorker(**row) for row in rows]

    async def goes_on(
        self,
        *,
        sender_no: int,
        task_id: int,
        namespace: str,
        process_id: str,
        idempotency_key: str,
        is_start: bool,
        is_same: bool = False,
    ) -> bool:
        """Return whether what the message of a step began is under way, or waits for a repair.

        With `is_same` a process that was started must be gone.
        """
        target = {"namespace": namespace, "process_id": process_id, "idempotency_key": idempotency_key}
        kind = {"is_start": is_start, "is_same": is_same}
        (row,) = await self._rows("goes_on", sender_no=sender_no, task_id=task_id, **target, **kind)
        return bool(row["goes_on"])

    async def longest_lease(self) -> timedelta | None:
        """Return the longest lease that any process keeps; None if there is none."""
        (row,) = await self._rows("longest_lease")
        longest: timedelta | None = row["lease_age"]
        return longest

    async def health(self, lease_age: timedelta) -> ServedNamespaces:
        """Return the number of live workers, the namespaces they serve, and the paused namespaces."""
        (row,) = await self._rows("health", lease_age=lease_age)
        return ServedNamespaces(row["workers"], tuple(row["namespaces"] or ()), tuple(row["paused"] or ()))

    async def backlog(self, namespace: str, *, most: int, now: datetime | None = None) -> Backlog:
        """Count the tasks that wait in a namespace, up to `most`."""
        (row,) = await self._rows("backlog", **backlog_params(namespace, most, now))
        return backlog_of(row)

    async def next_timers(self, namespaces: Sequence[str]) -> NextTimers:
        """Return when the first timer of each of these namespaces is due, in one look at all."""
        rows = await self._rows("next_timers", namespace=texts(namespaces), now=None)
        found = {row["name"]: row["due"] for row in rows if not row["has_more"]}
        # In the order of the namespaces: that in which a world begins what is due at one time.
        due = {name: found[name] for name in namespaces if name in found}
        others = [name for name in namespaces if name not in found]
        now = rows[0]["now"] if rows else None
        return NextTimers(due, others, not rows or rows[0]["has_messages"], now)

    async def note_samples(self, found: Sequence[NamespaceStatus]) -> None:
        """Note the load of these namespaces, of each that nobody has noted for this minute."""
        counts: dict[str, Sequence[int | None]] = {
            "broken": [each.broken for each in found],
            "waiting": [each.waiting.requests for each in found],
            "timers": [each.timers.tasks for each in found],
            "running": [each.running for each in found],
            "steps": [each.steps for each in found],
            "slots": [each.slots for each in found],
            "age": [microseconds(each.waiting.age) for each in found],
        }
        columns = {name: bigints(values) for name, values in counts.items()}
        await self._rows("note_samples", namespace=texts([each.name for each in found]), **columns)

    async def samples(self, namespaces: Sequence[str], *, within: timedelta) -> list[LoadSample]:
        """Return the load of these namespaces together, a sample for each minute, the oldest first."""
        rows = await self._rows("samples", namespaces=texts(namespaces), within=within)
        return [LoadSample(**row) for row in rows]

    async def oldest_snapshot(self) -> timedelta | None:
        """Return the age of the oldest transaction that holds up VACUUM.

        None if the role may not see it.
        """
        (row,) = await self._rows("oldest_snapshot")
        age_ms: float | None = row["age_ms"]
        return None if age_ms is None else timedelta(milliseconds=age_ms)

    async def database_figures(self) -> DatabaseFigures:
        """Return what PostgreSQL counts of the database; no table of the engine is read."""
        lists: Transaction = {name: {"limit": _MOST} for name in _LISTS}
        statements: Transaction = {"server_figures": {}, "oldest_snapshot": {}, **lists}
        found = await self._transact("database_figures", statements)
        return record_of(
            DatabaseFigures,
            found["server_figures"][0],
            oldest_snapshot_ms=found["oldest_snapshot"][0]["age_ms"],
            tables=tuple(record_of(TableFigures, row) for row in found["table_figures"]),
            standbys=tuple(record_of(StandbyFigures, row) for row in found["standby_figures"]),
            slots=tuple(record_of(SlotFigures, row) for row in found["slot_figures"]),
        )

    async def notify(self, hints: Sequence[tuple[str, str]]) -> None:
        """Send hints, each to a channel."""
        await self._rows("notify", **hint_columns(hints))

    async def server(self) -> dict[str, str]:
        """Return version and place of the server; of several in the DSN, that of the one reached last."""
        (row,) = await self._rows("server_version")
        place = place_of(self._connections.dsn)
        if "," in place["host"] and self._connections.reached is not None:
            host, port = self._connections.reached
            place |= {"host": host, "port": str(port)}
        return {"server_version": row["server_version"], **place}


def backlog_params(namespace: str, most: int, now: datetime | None) -> Params:
    """Return the parameters of `backlog`."""
    return {"namespace": namespace, "most": most, "after": 0, "now": now}


def backlog_of(row: Row) -> Backlog:
    """Return what waits in a namespace, as `backlog` found it."""
    moments = [row[each] for each in ("next_due", "rests_until", "next_room")]
    due, rests, room = (None if moment is None else moment - row["now"] for moment in moments)
    return Backlog(_waiting(row, "calls"), _waiting(row, "timers"), due, row["paused"], rests, room)


def _waiting(row: Row, kind: str) -> Waiting:
    return Waiting(row[f"{kind}_waiting"], age_of(row[f"{kind}_oldest"], row["now"]))


def age_of(oldest: datetime | None, now: datetime) -> timedelta:
    """Return the age of what waits longest; never negative, even if PostgreSQL's clock was set back."""
    return timedelta() if oldest is None else max(timedelta(), now - oldest)
