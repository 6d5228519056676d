"""What concerns no process: who serves what, what waits there, which server it is; and hints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from progressor.monitoring import Waiting
from progressor.rights import check_patterns, fitting
from progressor.storage.postgres.arrays import texts
from progressor.storage.postgres.server_identity import place_of
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.statements import Row


class LiveWorker(NamedTuple):
    """A worker whose heartbeat is fresh, and how many slots of a namespace it said are free."""

    worker_id: int
    free_slots: int


class NamespaceRow(NamedTuple):
    """A namespace as the workers that serve it registered it."""

    name: str
    paused: bool
    options: Mapping[str, Any]
    schemas: Mapping[str, Any]


class ServedNamespaces(NamedTuple):
    """How many workers live, what they serve, and which namespaces are paused."""

    workers: int
    namespaces: tuple[str, ...]
    paused: tuple[str, ...]


class Backlog(NamedTuple):
    """What waits in a namespace; in how long the next timer falls due, None if there is no other."""

    calls: Waiting
    timers: Waiting
    next_due: timedelta | None
    paused: bool = False


class Overview(Transactions):
    """Statements that lock no process and are asked rarely."""

    async def register_namespace(
        self, name: str, *, options: Mapping[str, Any], schemas: Mapping[str, Any]
    ) -> None:
        """A worker says what it serves; an operator's pause stays."""
        await self._rows(
            "register_namespace", name=name, options=json.dumps(options), schemas=json.dumps(schemas)
        )

    async def namespace(self, name: str) -> NamespaceRow | None:
        """A namespace by its name; None if no worker ever served it."""
        rows = await self._rows("namespace", name=name)
        return NamespaceRow(**rows[0]) if rows else None

    async def namespace_names(self) -> list[str]:
        """Every namespace that any worker ever served."""
        return [row["name"] for row in await self._rows("namespace_names")]

    async def namespaces_fitting(self, patterns: Sequence[str] | None) -> tuple[str, ...] | None:
        """Those of them that a pattern fits; None: any. InvalidRequest, if one is no pattern."""
        if patterns is None:
            return None
        return fitting(check_patterns("namespaces", patterns), await self.namespace_names())

    async def served_namespaces(self, lease_age: timedelta) -> dict[str, int]:
        """How many live workers serve each namespace that is served."""
        rows = await self._rows("served_namespaces", lease_age=lease_age)
        return {row["name"]: row["workers"] for row in rows}

    async def live_workers(self, namespace: str, lease_age: timedelta) -> list[LiveWorker]:
        """Who serves a namespace."""
        rows = await self._rows("live_workers", namespace=namespace, lease_age=lease_age)
        return [LiveWorker(**row) for row in rows]

    async def longest_lease(self) -> timedelta | None:
        """The longest lease that any process keeps; None if there is none."""
        (row,) = await self._rows("longest_lease")
        longest: timedelta | None = row["lease_age"]
        return longest

    async def health(self, lease_age: timedelta) -> ServedNamespaces:
        """How many workers live, what they serve, and which namespaces are paused."""
        (row,) = await self._rows("health", lease_age=lease_age)
        return ServedNamespaces(row["workers"], tuple(row["namespaces"] or ()), tuple(row["paused"] or ()))

    async def backlog(self, namespace: str, *, most: int, now: datetime | None = None) -> Backlog:
        """What waits in a namespace, counted up to `most`."""
        (row,) = await self._rows("backlog", namespace=namespace, most=most, now=now)
        next_due: datetime | None = row["next_due"]
        return Backlog(
            _waiting(row, "calls"),
            _waiting(row, "timers"),
            None if next_due is None else next_due - row["now"],
            row["paused"],
        )

    async def oldest_snapshot(self) -> timedelta | None:
        """The age of the oldest transaction that holds up the clearing of rows; None if nobody may know."""
        (row,) = await self._rows("oldest_snapshot")
        age_ms: float | None = row["age_ms"]
        return None if age_ms is None else timedelta(milliseconds=age_ms)

    async def notify(self, hints: Sequence[tuple[str, str]]) -> None:
        """Send hints, each to a channel."""
        await self._rows(
            "notify",
            channel=texts([channel for channel, _ in hints]),
            payload=texts([payload for _, payload in hints]),
        )

    async def server(self) -> dict[str, str]:
        """Version and place of the server; of several in the DSN of the one that was reached."""
        (row,) = await self._rows("server_version")
        place = place_of(self._connections.dsn)
        if "," in place["host"] and self._connections.reached is not None:
            host, port = self._connections.reached
            place |= {"host": host, "port": str(port)}
        return {"server_version": row["server_version"], **place}


def _waiting(row: Row, kind: str) -> Waiting:
    oldest: datetime | None = row[f"{kind}_oldest"]
    # A clock that was set back makes nothing younger than new.
    age = timedelta() if oldest is None else max(timedelta(), row["now"] - oldest)
    return Waiting(row[f"{kind}_waiting"], age)
