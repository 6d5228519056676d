"""Walks into an archive: nothing is deleted that was not archived and read back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor.archive.archive import Archive
from progressor.archive.records import EventRecord, TaskRecord
from progressor.config import Retention
from progressor.storage.admin import archiving, sweeps
from progressor.storage.admin.archiving import Batch
from progressor.storage.operations import Storage
from tests.support import NS, SECOND, T0, Tables, events, fail, hold, init, request, resume, save, start

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
OLD, LATER = T0, T0 + 100 * DAY
KEPT = Retention(tasks=90 * DAY, events=1, archive=True)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


async def old(storage: Storage, process_id: str = "p1", calls: int = 3) -> None:
    """A process with tasks and events that are old."""
    await start(storage, process_id)
    for _ in range(calls):
        step = await hold(storage, request(process_id, args=b'{"n":1}'), now=OLD)
        await save(storage, step, resume(events=events(1)), now=OLD)


async def walk(storage: Storage, archive: Archive) -> tuple[int, int]:
    """A whole walk; the tasks and events that it deleted."""

    async def keep(batch: Batch) -> None:
        await archive.keep(batch.namespace, batch.first, batch.last, batch.records)

    assert await storage.begin_sweep(NS, now=LATER)
    tasks = deleted = 0
    now = LATER
    while (swept := await storage.sweep_archived(keep, rate=1_000_000, now=now)) is not None:
        tasks, deleted = tasks + swept.tasks, deleted + swept.events
        now += SECOND
        if swept.is_over:
            break
    return tasks, deleted


def archived(archive: Archive) -> tuple[list[int], list[int]]:
    """The numbers of all tasks, and of all events, that the archive has."""
    found = [each for name, manifest in archive.parts(NS) for each in archive.records(name, manifest)]
    tasks = sorted({each.task_id for each in found if isinstance(each, TaskRecord)})
    return tasks, sorted({each.event_id for each in found if isinstance(each, EventRecord)})


async def test_it_is_archived_and_then_deleted(storage: Storage, tables: Tables, archive: Archive) -> None:
    """With all that was stored; what is left and what is archived are the whole."""
    await old(storage)
    before = tables.tasks()
    assert await storage.set_retention(NS, KEPT, now=LATER)
    assert await storage.sweep(rate=1_000_000, now=LATER) is None, "not by a sweeper without an archive"
    assert await walk(storage, archive) == (4, 2)
    assert tables.tasks() == []
    assert [each["event_id"] for each in tables.events()] == [3]
    ((name, manifest),) = archive.parts(NS)
    assert (manifest.tasks, manifest.events) == (4, 2)
    of_calls = [
        each
        for each in archive.records(name, manifest)
        if isinstance(each, TaskRecord) and each.task_type == "call"
    ]
    assert [each.task_id for each in of_calls] == [each["task_id"] for each in before[1:]]
    assert {each.args for each in of_calls} == {b'{"n":1}'}
    known = await storage.retention(NS)
    assert known is not None
    assert (known.tasks_deleted, known.events_deleted, known.archive) == (4, 2, True)


async def test_an_archive_that_fails_deletes_nothing(storage: Storage, tables: Tables) -> None:
    """It is tried again some minutes later."""
    await old(storage)
    await storage.set_retention(NS, KEPT, now=LATER)

    async def keep(_batch: Batch) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        await storage.sweep_archived(keep, rate=1_000_000, now=LATER)
    assert len(tables.tasks()) == 4
    assert await storage.sweep_archived(keep, rate=1_000_000, now=LATER + 60 * SECOND) is None
    with pytest.raises(OSError, match="no space left"):
        await storage.sweep_archived(keep, rate=1_000_000, now=LATER + 301 * SECOND)


async def test_what_becomes_old_meanwhile_stays(storage: Storage, tables: Tables, archive: Archive) -> None:
    """A task that something needed when it was read is not in the archive, and is not deleted with it."""
    await old(storage)
    broken = await hold(storage, request(), now=OLD)
    await save(storage, broken, fail(), now=OLD)
    await storage.set_retention(NS, KEPT, now=LATER)

    async def keep(batch: Batch) -> None:
        await archive.keep(batch.namespace, batch.first, batch.last, batch.records)
        await storage.simple_repair([request(task_type="repair", worker_id=None)], now=OLD)  # type: ignore[arg-type]

    swept = await storage.sweep_archived(keep, rate=1_000_000, now=LATER)
    assert swept is not None
    left = [each["task_id"] for each in tables.tasks()]
    assert broken.task.task_id in left
    assert set(archived(archive)[0]).isdisjoint(left)


async def test_a_server_that_lost_what_was_archived(
    storage: Storage, tables: Tables, archive: Archive
) -> None:
    """What has the numbers of lost events by then is not in the archive, and is not deleted with them."""
    await old(storage)
    await storage.set_retention(NS, KEPT, now=LATER)

    async def keep(batch: Batch) -> None:
        await archive.keep(batch.namespace, batch.first, batch.last, batch.records)
        tables.execute("UPDATE events SET timestamp = timestamp + interval '1 s' WHERE event_id >= 2")

    swept = await storage.sweep_archived(keep, rate=1_000_000, now=LATER)
    assert swept is not None
    assert swept.events == 0
    assert [each["event_id"] for each in tables.events()] == [1, 2, 3]
    assert await walk(storage, archive) == (0, 2)


async def test_a_process_that_a_step_holds(
    storage: Storage, tables: Tables, archive: Archive, dsn: str
) -> None:
    """It is archived, passed by, and archived again by the next walk; the others go."""
    for process_id in ("p1", "p2", "p3"):
        await old(storage, process_id)
    await storage.set_retention(NS, KEPT, now=LATER)
    with psycopg.connect(dsn) as own:
        own.execute("SELECT FROM progressor.processes WHERE process_id = 'p2' FOR UPDATE")
        assert await walk(storage, archive) == (8, 4)
    assert [len(tables.tasks(each)) for each in ("p1", "p2", "p3")] == [0, 4, 0]
    assert await walk(storage, archive) == (4, 2)
    assert len(archived(archive)[0]) == 12


async def test_two_sweepers(storage: Storage, tables: Tables, archive: Archive) -> None:
    """One that was thought dead finds the walk moved on, and deletes nothing."""
    await old(storage)
    await storage.set_retention(NS, KEPT, now=LATER)

    async def keep(batch: Batch) -> None:
        await archive.keep(batch.namespace, batch.first, batch.last, batch.records)

    async def slowly(batch: Batch) -> None:
        await keep(batch)
        other = await storage.sweep_archived(keep, rate=1_000_000, now=LATER + 301 * SECOND)
        assert other is not None
        assert (other.tasks, other.is_over) == (4, True)

    late = await storage.sweep_archived(slowly, rate=1_000_000, now=LATER)
    assert late is not None
    assert (late.tasks, late.events) == (0, 0)
    assert len(list(archive.parts(NS))) == 2


async def test_a_large_process_in_pieces(
    storage: Storage, tables: Tables, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is cut, all of it is archived once it is gone."""
    monkeypatch.setattr(sweeps, "_ROWS", 2)
    monkeypatch.setattr(archiving, "_ROWS", 3)
    for process_id in ("p1", "p2"):
        await old(storage, process_id, calls=5)
    numbers = [each["task_id"] for process_id in ("p1", "p2") for each in tables.tasks(process_id)]
    await storage.set_retention(NS, KEPT, now=LATER)
    assert await walk(storage, archive) == (12, 8)
    assert archived(archive) == (numbers, [1, 2, 3, 4])


async def test_a_part_is_bounded_in_bytes(
    storage: Storage, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its pieces have together: it is in memory several times while it is written."""
    monkeypatch.setattr(sweeps, "_HELD", 1)
    monkeypatch.setattr(archiving, "_BYTES", 100)
    for number in range(6):
        await old(storage, f"old-{number}", calls=2)
    await storage.set_retention(NS, KEPT, now=LATER)
    batches: list[Batch] = []

    async def keep(batch: Batch) -> None:
        batches.append(batch)

    now = LATER
    while (swept := await storage.sweep_archived(keep, rate=1_000_000, now=now)) and not swept.is_over:
        now += timedelta(seconds=1)
    # Those of one process have a hundred bytes.
    assert [len(batch.records) for batch in batches] == [4] * 6


async def test_where_all_are_old_no_more_are_read_than_can_be_locked(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor than a look may reach, where few are; of each process the last event stays."""
    monkeypatch.setattr(sweeps, "_LOOKS", 8)
    monkeypatch.setattr(sweeps, "_HELD", 2)
    for number in range(12):
        await old(storage, f"old-{number}", calls=2)
    for number in range(20):
        await save(storage, await hold(storage, init(f"new-{number}"), now=LATER), resume(), now=LATER)
    seen, look = list[tuple[int, int]](), sweeps.look

    async def counting(*about: Any, **bounds: Any) -> sweeps.OldRows:
        found = await look(*about, **bounds)
        seen.append((len(found.seen), len(found.old)))
        return found

    monkeypatch.setattr(archiving, "look", counting)

    async def keep(_batch: Batch) -> None:
        """As an archive that has it."""

    assert await storage.set_retention(NS, KEPT, now=LATER)
    swept = await storage.sweep_archived(keep, rate=1_000_000, now=LATER)
    assert swept is not None
    assert (swept.tasks, swept.events, swept.is_over) == (36, 12, True)
    assert seen == [(8, 2), *[(2, 2)] * 5, (2, 0), (8, 0), (8, 0), (2, 0)]


async def test_a_walk_that_others_make_delays_none(storage: Storage) -> None:
    """A sweeper without an archive does not wait for walks that need one; another one does."""
    await storage.register_namespace("shop.other", options={}, schemas={})
    await storage.set_retention(NS, KEPT, now=LATER - HOUR)
    await storage.set_retention("shop.other", Retention(tasks=DAY), now=LATER + SECOND)
    assert await storage.next_sweep(now=LATER) == SECOND
    assert await storage.next_sweep(archives=True, now=LATER) == -HOUR


async def test_a_namespace_that_keeps_everything(storage: Storage, archive: Archive) -> None:
    """Its walk ends at once."""
    await old(storage)
    await storage.set_retention(NS, Retention(archive=True), now=LATER)
    assert await walk(storage, archive) == (0, 0)
    assert list(archive.parts(NS)) == []
