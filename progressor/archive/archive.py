"""The archive: parts of what retention has deleted, each a compressed file with a manifest.

Rule: the manifest is written last, once the file was read back and is what was written. A file without one
is not part of the archive. Parts may overlap: a row that was archived and not deleted is archived again.
A part never changes: one without some processes is another part, in the place of the first.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from progressor.archive.places import CUT_OFF, place_at, without_secrets
from progressor.archive.records import (
    FORMAT,
    EventRecord,
    Record,
    TaskRecord,
    head_of,
    read_line,
    write_line,
)
from progressor.errors import ArchiveDamaged, ArchiveUnavailable, ProgressorError
from progressor.model import Event
from progressor.outages import in_one_line
from progressor.release import VERSION

_TIME = "%Y%m%dT%H%M%S%fZ"
_PART = re.compile(r"[^/]+/\d{4}-\d\d-\d\d/(\d{8}T\d{12}Z)-(\d{8}T\d{12}Z)-[0-9a-f]+\.ndjson\.gz")
_MANIFEST = ".json"

Found = Counter[str]
"""How many records there are of each process, by its id."""


def _stamp(moment: datetime) -> str:
    """Return a moment as the name of a part has it, as `_TIME` reads it, in any year."""
    utc = moment.astimezone(UTC)
    return f"{utc.year:04}{utc.strftime(_TIME.removeprefix('%Y'))}"


def _is_of(record: Record, process_ids: Collection[str]) -> TypeGuard[TaskRecord | EventRecord]:
    return isinstance(record, TaskRecord | EventRecord) and record.process_id in process_ids


class Manifest(BaseModel):
    """The manifest of a part: what its file has, and its SHA-256. `first`, `last`: births of processes."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    format: int
    release: str
    namespace: str
    made_at: datetime
    first: datetime
    last: datetime
    tasks: Annotated[int, Field(ge=0)]
    events: Annotated[int, Field(ge=0)]
    size: int
    sha256: str


class Archive:
    """An archive at a directory's path, or at a URL of an object store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = place_at(url)

    async def keep(
        self, namespace: str, first: datetime, last: datetime, records: Sequence[TaskRecord | EventRecord]
    ) -> str:
        """Write a part, read it back, and return its name; raise ArchiveDamaged if it is not the same.

        ArchiveUnavailable if it cannot be written.
        """
        with self.reached(namespace):
            # In a thread of the loop, which waits for it at its end: a part that is cut off is a stray.
            return await asyncio.to_thread(self._keep, namespace, first, last, records)

    @contextmanager
    def reached(self, namespace: str) -> Iterator[None]:
        """Raise ArchiveUnavailable, without secrets, for what a disk or a driver raises in this block."""
        try:
            yield
        except ProgressorError:
            raise
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            why = without_secrets(in_one_line(str(error)), self._url)
            raise ArchiveUnavailable(namespace, why) from None

    def _keep(
        self, namespace: str, first: datetime, last: datetime, records: Sequence[TaskRecord | EventRecord]
    ) -> str:
        now = datetime.now(UTC)
        return self._write(
            [write_line(head_of(VERSION, now)), *map(write_line, records)],
            format=FORMAT,
            release=VERSION,
            namespace=namespace,
            made_at=now,
            first=first,
            last=last,
            tasks=sum(isinstance(each, TaskRecord) for each in records),
            events=sum(isinstance(each, EventRecord) for each in records),
        )

    def _write(self, lines: Sequence[bytes], **facts: Any) -> str:
        """Write a part and its manifest, read both back, and return the part's name."""
        data = gzip.compress(b"".join(lines), compresslevel=6, mtime=0)
        manifest = Manifest(**facts, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        span = "-".join(map(_stamp, (manifest.first, manifest.last)))
        day, number = f"{manifest.made_at:%Y-%m-%d}", secrets.token_hex(4)
        name = f"{manifest.namespace}/{day}/{span}-{number}.ndjson.gz"
        try:
            self._write_both(name, manifest, data, lines)
        except BaseException:
            # The next try has another name, and nobody would remove what this one has of people.
            with suppress(Exception):
                self._discard(name)
            raise
        return name

    def _write_both(self, name: str, manifest: Manifest, data: bytes, lines: Sequence[bytes]) -> None:
        self._place.write(name, data)
        if self._lines(name, manifest) != lines:
            raise ArchiveDamaged(name, "it is not what was written")
        self._place.write(name + _MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")
        if self._manifest(name) != manifest:
            raise ArchiveDamaged(name, "its manifest is not what was written")

    def _discard(self, name: str) -> None:
        # Without its manifest it is no part any more.
        self._place.remove(name + _MANIFEST)
        self._place.remove(name)

    def _lines(self, name: str, manifest: Manifest) -> list[bytes]:
        """Return the lines of a part; raise ArchiveDamaged unless it is the one of the manifest."""
        data = self._place.read(name)
        if hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise ArchiveDamaged(name, "its SHA-256 is not that of its manifest")
        try:
            return gzip.decompress(data).splitlines(keepends=True)
        except (OSError, EOFError) as error:
            raise ArchiveDamaged(name, str(error)) from None

    def _manifest(self, name: str) -> Manifest | None:
        try:
            return Manifest.model_validate_json(self._place.read(name + _MANIFEST))
        except FileNotFoundError:
            return None
        except ValidationError:
            raise ArchiveDamaged(name, "its manifest cannot be read") from None

    def parts(self, namespace: str, *, born: datetime | None = None) -> Iterator[tuple[str, Manifest]]:
        """Yield the parts of a namespace; with `born` those that may have a process made then. Block."""
        for name in self._names(namespace, born):
            manifest = self._manifest(name)
            if manifest is not None:
                yield name, manifest

    def _names(self, namespace: str, born: datetime | None) -> Iterator[str]:
        for name in self._place.names(namespace):
            span = _PART.fullmatch(name)
            if span is None:
                continue
            first, last = (datetime.strptime(each, _TIME).replace(tzinfo=UTC) for each in span.groups())
            if born is None or first <= born <= last:
                yield name

    def records(self, name: str, manifest: Manifest) -> Iterator[Record]:
        """Yield the records of a part; raise ArchiveDamaged. Block."""
        for number, line in enumerate(self._lines(name, manifest), start=1):
            yield read_line(line, number=number)

    def strays(self, namespace: str) -> Iterator[str]:
        """Yield the files of a namespace that have no manifest, or are not whole: no parts. Block."""
        for name in self._place.names(namespace):
            if name.endswith(CUT_OFF) or (_PART.fullmatch(name) and self._manifest(name) is None):
                yield name

    def count(self, name: str, manifest: Manifest, process_ids: Collection[str]) -> Found:
        """Return how many records of these processes a part has; raise ArchiveDamaged. Block."""
        return Counter(
            each.process_id for each in self.records(name, manifest) if _is_of(each, process_ids)
        )

    def remove(self, name: str, manifest: Manifest, process_ids: Collection[str]) -> Found:
        """Write a part anew without these processes, remove the old one, and return what it had of them.

        One that dies in between leaves both parts: what is kept is in one of them at any time, and readers
        see it once. Raise ArchiveDamaged, and do nothing then. Block.
        """
        lines = self._lines(name, manifest)
        records = [read_line(line, number=number) for number, line in enumerate(lines, start=1)]
        gone = [each for each in records if _is_of(each, process_ids)]
        if not gone:
            return Counter()
        facts = manifest.model_dump(exclude={"size", "sha256"})
        facts["tasks"] -= sum(isinstance(each, TaskRecord) for each in gone)
        facts["events"] -= sum(isinstance(each, EventRecord) for each in gone)
        if facts["tasks"] or facts["events"]:
            both = zip(lines, records, strict=True)
            self._write([line for line, each in both if not _is_of(each, process_ids)], **facts)
        self._discard(name)
        return Counter(each.process_id for each in gone)

    async def events(self, namespace: str, process_id: str, born: datetime) -> list[Event]:
        """Return the archived events of a process that was made at `born`, in their order.

        Raise ArchiveDamaged, and ArchiveUnavailable if it cannot be read.
        """
        with self.reached(namespace):
            # Archives know no supervision.
            return await asyncio.to_thread(self._events, namespace, process_id, born)

    def _events(self, namespace: str, process_id: str, born: datetime) -> list[Event]:
        found = self._records_of(namespace, process_id, born)
        # A database that was restored from a backup has other events under these numbers: the latest count.
        latest = {each.event_id: each for part in sorted(found) for each in found[part]}
        return [
            Event(
                each.payload,
                each.metadata,
                event_id=each.event_id,
                task_id=each.task_id,
                timestamp=each.timestamp,
            )
            for _, each in sorted(latest.items())
        ]

    def _records_of(
        self, namespace: str, process_id: str, born: datetime
    ) -> dict[tuple[datetime, str], list[EventRecord]]:
        """Return the events of a process by when their part was made, and its name.

        A removal writes another part before it takes one away: where one is gone, there is a new name.
        """
        found: dict[tuple[datetime, str], list[EventRecord]] = {}
        seen, is_whole = set[str](), False
        while not is_whole:
            names = [name for name in self._names(namespace, born) if name not in seen]
            is_whole = True
            for name in names:
                manifest = self._manifest(name)
                if manifest is None:
                    is_whole = False
                    continue
                try:
                    found[manifest.made_at, name] = [
                        each
                        for each in self.records(name, manifest)
                        if isinstance(each, EventRecord)
                        and (each.process_id, each.born) == (process_id, born)
                    ]
                except FileNotFoundError:
                    is_whole = False
            seen.update(names)
        return found
