"""A projection: a row for each event, and the tally of each process, in tables of the bank.

Rule: nothing in the tables keeps a row from being there twice; the check does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from benchmarks.chaos.follower import Name, Told
from benchmarks.chaos.ledger import POLICY
from benchmarks.chaos.readers import FED
from benchmarks.chaos.server import Server
from progressor import FeedEvent, Projection

PROJECTION = "chaos.tallies"

_ENTER = """
INSERT INTO bank.projected (namespace, process_id, event_id, task_id, payload, is_deleted)
VALUES (%s, %s, %s, %s, %s, %s)
"""
_ADD = """
INSERT INTO bank.tallies AS t (namespace, process_id, events, amount) VALUES (%s, %s, 1, %s)
ON CONFLICT (namespace, process_id) DO UPDATE SET events = t.events + 1, amount = t.amount + excluded.amount
"""
_PROJECTED = """
SELECT namespace, process_id, event_id, task_id, payload, is_deleted FROM bank.projected ORDER BY no
"""
_TALLIES = "SELECT namespace, process_id, events, amount FROM bank.tallies"


def tallies() -> Projection:
    """Return the projection that the engines run, one at a time."""
    projection = Projection(PROJECTION, retries=POLICY)

    async def enter(event: FeedEvent, connection: AsyncConnection) -> None:
        told = Told.of(event)
        await connection.execute(_ENTER, told._replace(payload=Jsonb(told.payload)))
        await connection.execute(_ADD, (*told.name, amount_of(told.payload)))

    for namespace in FED:
        projection.on(namespace)(enter)

    @projection.clear
    async def clear(connection: AsyncConnection) -> None:
        await connection.execute("DELETE FROM bank.projected")
        await connection.execute("DELETE FROM bank.tallies")

    return projection


def amount_of(payload: Any) -> int:
    """Return by how much an event changes the tally of its process."""
    return int((payload or {}).get("amount", 0))


class Tally(NamedTuple):
    """The events of a process, counted, and the sum of their amounts."""

    events: int = 0
    amount: int = 0


@dataclass
class Projected:
    """The rows of the projection, by process in the order in which they were written, and its tallies."""

    rows: dict[Name, list[Told]] = field(default_factory=dict)
    tallies: dict[Name, Tally] = field(default_factory=dict)


def read_projected(server: Server) -> Projected:
    """Read the tables."""
    rows: defaultdict[Name, list[Told]] = defaultdict(list)
    for row in server.query(_PROJECTED):
        told = Told(*row)
        rows[told.name].append(told)
    found = {(namespace, name): Tally(*row) for namespace, name, *row in server.query(_TALLIES)}
    return Projected(dict(rows), found)
