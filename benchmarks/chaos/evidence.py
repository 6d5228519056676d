"""What a run leaves behind: the clients' records on one side, the server's on the other."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.chaos.journal import Record, read
from benchmarks.chaos.ledger import ACCOUNTS, PAPERS, RECEIPTS, STEADY
from benchmarks.chaos.limits import COOK_PROCESSES, COOKS, METER_PROCESSES, METERS, Crowds
from benchmarks.chaos.server import Server
from progressor import Client, HistoryRange, Process, ProcessNotFound, TaskStatus, TraceEntry


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

    @property
    def is_answered(self) -> bool:
        """Whether its client knows what became of it."""
        return bool(self.answers or self.refusals or self.accepted)


class Clients:
    """All that the clients wrote down."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.asked: dict[str, Asked] = {}
        self.errands: dict[str, Record] = {}
        self.done: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.unseen: list[tuple[str, Any]] = []
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
            case {"do": "accepted", "key": key}:
                self.asked[key].accepted = True
            case {"do": "error", "key": key, "error": error}:
                self.asked[key].errors.append(error)
            case {"do": "unseen", "key": key, "answer": answer}:
                self.unseen.append((key, answer))
            case {"do": "born", "skew": skew}:
                self.skews[skew] += 1

    @property
    def accounts(self) -> list[str]:
        """Every account that was asked to be opened."""
        return sorted({a.process for a in self.asked.values() if a.namespace == ACCOUNTS})


@dataclass
class Account:
    """One account as the server knows it."""

    process: Process[Any]
    trace: list[TraceEntry]

    @property
    def name(self) -> str:
        """Its process id."""
        return self.process.process_id

    def did(self, key: str) -> bool:
        """Whether what was asked under this key was done."""
        finished = (each for each in self.trace if each.status is TaskStatus.FINISHED)
        return any(entry.idempotency_key == key for entry in finished)


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
_TASKS = "SELECT task_type, scheduled_time, finished_time FROM progressor.tasks"
_ENTRIES = "SELECT account, nonce, amount FROM bank.entries"


async def read_books(client: Client, server: Server, accounts: Iterable[str], crowds: Crowds) -> Books:
    """Read everything through the public client; moments, tasks and the bank's own rows by SQL."""
    left = await client.search(namespace=RECEIPTS, limit=1000)
    steady = await client.search(namespace=STEADY)
    papers = {name for (name,) in server.query(_PAPERS, PAPERS)}
    return Books(
        await _read(client, ACCOUNTS, accounts),
        await _read(client, METERS, METER_PROCESSES),
        await _read(client, COOKS, COOK_PROCESSES),
        crowds,
        papers,
        steady.items,
        len(left.items),
        server.query(_MOMENTS),
        server.query(_TASKS),
        Counter(server.query(_ENTRIES)),
    )


async def _read(client: Client, namespace: str, names: Iterable[str]) -> dict[str, Account]:
    found: dict[str, Account] = {}
    for name in names:
        with contextlib.suppress(ProcessNotFound):
            # A check asks where it has gone.
            process = await client.get(namespace, name, range=HistoryRange())
            found[name] = Account(process, await client.trace(namespace, name))
    return found


def by_key(account: Account) -> dict[str, list[Any]]:
    """The events of an account by the key of the request that made them."""
    made: defaultdict[str, list[Any]] = defaultdict(list)
    for event in account.process.history:
        if event.payload["key"] is not None:
            made[event.payload["key"]].append(event)
    return made


def came(account: Account) -> list[datetime]:
    """The nominal times of the steps of a recurring timer, in the order of its history."""
    events = (event for event in account.process.history if event.name == "came")
    return [datetime.fromisoformat(event.payload["nominal"]) for event in events]
