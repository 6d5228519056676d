"""The archive of a run, held against what walks have deleted.

Rule: the witness is not the archive's writer. What a walk deletes is kept aside in the transaction that
deletes it (`walks.py`), and the archive must have every row of it, the same to the last column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.server import Server
from benchmarks.chaos.walks import ARCHIVED
from progressor.archive.archive import Archive
from progressor.archive.records import EventRecord, Record, TaskRecord
from progressor.errors import ArchiveDamaged

_COLUMNS_OF_TASKS = tuple(
    name for name in TaskRecord.model_fields if name not in ("kind", "namespace", "process_id", "born")
)
_COLUMNS_OF_EVENTS = ("event_id", "task_id", "timestamp", "metadata", "payload")
_DELETED = """
SELECT n.name, p.process_id, p.created_at, {columns}
FROM bank.swept_{kind} AS t
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
WHERE n.name = ANY (%s)
"""

_Name = tuple[str, str, str, int]


@dataclass
class Parts:
    """What the archive has, and `missing`: what was deleted without being in it, or is not the same."""

    count: int = 0
    tasks: int = 0
    events: int = 0
    # Archived, and deleted later or never: a step held its process, or the sweeper died.
    again: int = 0
    missing: list[str] = field(default_factory=list)


def read_parts(server: Server, place: Path) -> Parts:
    """Read and verify every part, and look for all that was deleted."""
    found = Parts()
    archived: defaultdict[_Name, list[Record]] = defaultdict(list)
    archive = Archive(str(place))
    for namespace in ARCHIVED:
        for name, manifest in archive.parts(namespace):
            found.count += 1
            try:
                records = list(archive.records(name, manifest))
            except ArchiveDamaged as error:
                found.missing.append(str(error))
                continue
            for record in records:
                if isinstance(record, TaskRecord | EventRecord):
                    archived[_name(record)].append(record)
    for names in archived:
        setattr(found, names[0], getattr(found, names[0]) + 1)
    found.again = sum(len(each) - 1 for each in archived.values())
    for record in _deleted(server):
        there = archived.get(_name(record), [])
        if record not in there:
            found.missing.append(f"{record} was deleted; the archive has {there or 'nothing of it'}")
    return found


def _name(record: TaskRecord | EventRecord) -> _Name:
    if isinstance(record, TaskRecord):
        return "tasks", record.namespace, record.process_id, record.task_id
    return "events", record.namespace, record.process_id, record.event_id


def _deleted(server: Server) -> Iterator[TaskRecord | EventRecord]:
    kinds = (("tasks", TaskRecord, _COLUMNS_OF_TASKS), ("events", EventRecord, _COLUMNS_OF_EVENTS))
    for kind, make, columns in kinds:
        names = ("namespace", "process_id", "born", *columns)
        # What no table has is a column of exports alone.
        stored = ", ".join("NULL" if each == "order_time" else f"t.{each}" for each in columns)
        for row in server.query(_DELETED.format(kind=kind, columns=stored), list(ARCHIVED)):
            given = dict(zip(names, row, strict=True))
            yield make(**given)


class Place:
    """The directory of the archive behind a link, which can be made to lead to a file."""

    def __init__(self, home: Path) -> None:
        self.path = home / "archive"
        self._there, self._nothing = home / "archive.there", home / "archive.nothing"
        self._there.mkdir()
        self._nothing.touch()
        self._lead_to(self._there)

    def _lead_to(self, target: Path) -> None:
        link = self.path.with_name("archive.link")
        link.symlink_to(target)
        link.replace(self.path)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The archive can be neither written nor read."""
        self._lead_to(self._nothing)
        try:
            yield
        finally:
            self._lead_to(self._there)
