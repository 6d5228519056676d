"""What a run leaves behind: the clients' records on one side, the server's on the other."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.chaos.follower import Follower, Reading, Sight
from benchmarks.chaos.idler import Span
from benchmarks.chaos.journal import Record, read
from benchmarks.chaos.ledger import ACCOUNTS, PAPERS, RECEIPTS, STEADY
from benchmarks.chaos.limits import COOK_PROCESSES, COOKS, METER_PROCESSES, METERS, Crowds
from benchmarks.chaos.parts import Parts, Place, read_parts
from benchmarks.chaos.readers import Deliveries
from benchmarks.chaos.server import Server
from benchmarks.chaos.tallies import Projected, read_projected
from benchmarks.chaos.walks import ARCHIVED, SweptRows, read_swept
from progressor import Client, Event, HistoryRange, Process, ProcessNotFound, TaskStatus, TraceEntry


@dataclass
class Asked:
    """One request as its clients know it: asked once or again and again, by one process or successors."""

    key: str
    verb: str
    namespace: str
    process: str
    name: str | None
    args: Any
    answers: list[Any] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    accepted: bool = False
    # Its client was told that the process is there.
    exists: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether its client knows what became of it."""
        return bool(self.answers or self.refusals or self.accepted or self.exists)


class Clients:
    """All that the clients wrote down."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.asked: dict[str, Asked] = {}
        self.errands: dict[str, Record] = {}
        self.done: set[str] = set()
        self.counts: Counter[str] = Counter()
        # With the first event that was left then.
        self.unseen: list[tuple[str, Any, int]] = []
        self.skews: Counter[float] = Counter()
        records = [record for path in paths for record in read(path)]
        self.again = Counter(record["error"] for record in records if record["do"] == "again")
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        self.counts[record["do"]] += 1
        match record:
            case {"do": "errand", "id": identity}:
                self.errands[identity] = record
            case {"do": "done", "id": identity}:
                self.done.add(identity)
            case {"do": "ask", "key": key}:
                facts = {name: record[name] for name in ("verb", "namespace", "process", "name", "args")}
                self.asked[key] = Asked(key, **facts)
            case {"do": "answer", "key": key, "value": value}:
                self.asked[key].answers.append(value)
            case {"do": "rejected", "key": key, "reason": reason}:
                self.asked[key].refusals.append(reason)
            case {"do": "accepted" | "exists" as what, "key": key}:
                setattr(self.asked[key], what, True)
            case {"do": "error", "key": key, "error": error}:
                self.asked[key].errors.append(error)
            case {"do": "unseen", "key": key, "answer": answer, "first": first}:
                self.unseen.append((key, answer, first))
            case {"do": "born", "skew": skew}:
                self.skews[skew] += 1

    @property
    def accounts(self) -> list[str]:
        """Every account that was asked to be opened."""
        return sorted({a.process for a in self.asked.values() if a.namespace == ACCOUNTS})


@dataclass
class Account:
    """One account as the server knows it, with what walks have deleted of it."""

    process: Process[Any]
    trace: list[TraceEntry]
    history: list[Event]
    swept: SweptRows

    @property
    def name(self) -> str:
        """Its process id."""
        return self.process.process_id

    def tasks_of(self, key: str) -> list[TraceEntry]:
        """The tasks of this key: one, or others that were asked for after the ones before were deleted."""
        return [entry for entry in self.trace if entry.idempotency_key == key]

    def is_anew(self, key: str) -> bool:
        """Whether it was asked for again, each time after the last task of its key was deleted."""
        tasks = self.tasks_of(key)
        return len(tasks) > 1 and {entry.task_id for entry in tasks[:-1]} <= self.swept.task_ids

    def did(self, key: str) -> int:
        """How often what was asked under this key was done."""
        return sum(entry.status is TaskStatus.FINISHED for entry in self.tasks_of(key))


@dataclass
class Books:
    """Accounts, steady processes, the moments of all tables, and the rows of the bank's own table."""

    accounts: dict[str, Account]
    meters: dict[str, Account]
    cooks: dict[str, Account]
    crowds: Crowds
    papers: set[str]
    steady: list[Process[Any]]
    receipts_left: int
    moments: list[tuple[str, datetime | None, datetime | None]]
    tasks: list[tuple[str, datetime, datetime | None]]
    entries: Counter[tuple[str, str, int]]
    parts: Parts
    projected: Projected
    # What the readers of the feed saw: who tails it, and those of a durable subscription.
    readings: Sequence[Reading]
    sights: Sequence[Sight]
    deliveries: Deliveries
    # The transactions that were open and idle in another database meanwhile.
    idle: Sequence[Span]

    @property
    def fed(self) -> Iterable[Account]:
        """All whose namespace has a feed."""
        return chain(self.accounts.values(), self.meters.values(), self.cooks.values())


_MOMENTS = """
SELECT 'processes.created_at', min(created_at), max(created_at) FROM progressor.processes
UNION ALL SELECT 'tasks.running_time', min(running_time), max(running_time) FROM progressor.tasks
UNION ALL SELECT 'tasks.finished_time', min(finished_time), max(finished_time) FROM progressor.tasks
UNION ALL SELECT 'tasks.scheduled_time', min(scheduled_time), max(scheduled_time) FROM progressor.tasks
UNION ALL SELECT 'events.timestamp', min(timestamp), max(timestamp) FROM progressor.events
UNION ALL SELECT 'workers.seen_at', min(seen_at), max(seen_at) FROM progressor.workers
"""
_PAPERS = """
SELECT p.process_id FROM progressor.processes AS p
JOIN progressor.namespaces AS n USING (namespace_no) WHERE n.name = %s
"""
_TASKS = """
SELECT task_type, scheduled_time, finished_time FROM progressor.tasks
UNION ALL
SELECT task_type, scheduled_time, finished_time FROM bank.swept_tasks
"""
_ENTRIES = "SELECT account, nonce, amount FROM bank.entries"


async def read_books(
    client: Client,
    server: Server,
    place: Place,
    accounts: Iterable[str],
    crowds: Crowds,
    follower: Follower,
    deliveries: Deliveries,
    idle: Sequence[Span],
) -> Books:
    """Read everything through the public client; moments, tasks and the bank's own rows by SQL."""
    left = await client.search(namespace=RECEIPTS, limit=1000)
    steady = await client.search(namespace=STEADY)
    papers = {name for (name,) in server.query(_PAPERS, PAPERS)}
    swept = read_swept(server)
    books = Books(
        await _read(client, ACCOUNTS, accounts, swept),
        await _read(client, METERS, METER_PROCESSES, swept),
        await _read(client, COOKS, COOK_PROCESSES, swept),
        crowds,
        papers,
        steady.items,
        len(left.items),
        server.query(_MOMENTS),
        server.query(_TASKS),
        Counter(server.query(_ENTRIES)),
        read_parts(server, place.path),
        read_projected(server),
        follower.readings,
        follower.sights,
        deliveries,
        idle,
    )
    await follower.caught_up(
        {(each.process.namespace, each.name): each.process.last_event_id for each in books.fed}
    )
    return books


async def _read(
    client: Client, namespace: str, names: Iterable[str], swept: Mapping[tuple[str, str], SweptRows]
) -> dict[str, Account]:
    found: dict[str, Account] = {}
    for name in names:
        with contextlib.suppress(ProcessNotFound):
            # A check asks where it has gone.
            process = await client.get(namespace, name, range=HistoryRange())
            gone = swept.get((namespace, name), SweptRows())
            trace = [*gone.tasks, *await client.trace(namespace, name)]
            # Where there is an archive, the client has read what was deleted.
            history = [*([] if namespace in ARCHIVED else gone.events), *process.history]
            found[name] = Account(
                process,
                sorted(trace, key=lambda entry: entry.task_id),
                sorted(history, key=lambda event: event.event_id or 0),
                gone,
            )
    return found


def by_key(account: Account) -> dict[str, list[Any]]:
    """The events of an account by the key of the request that made them."""
    made: defaultdict[str, list[Any]] = defaultdict(list)
    for event in account.history:
        if event.payload["key"] is not None:
            made[event.payload["key"]].append(event)
    return made


def came(account: Account) -> list[datetime]:
    """The nominal times of the steps of a recurring timer, in the order of its history."""
    events = (event for event in account.history if event.name == "came")
    return [datetime.fromisoformat(event.payload["nominal"]) for event in events]
