"""Removing processes from an archive: what is kept survives a death at any point."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from progressor.archive import archive as module
from progressor.archive.archive import Archive
from progressor.archive.places import Directory
from progressor.archive.records import EventRecord, TaskRecord
from progressor.errors import ArchiveDamaged
from progressor.model import TaskStatus, TaskType

NS = "bench.archive"
BORN = datetime(2026, 1, 1, tzinfo=UTC)
# Writing a part anew takes two writes, two reads of them and two removals, behind the read of the old one.
OPERATIONS = 7


class Died(Exception):
    """The writer is dead."""


class Dying(Directory):
    """A directory whose user dies before its n-th operation."""

    def __init__(self, root: Path, *, lives: int) -> None:
        super().__init__(root)
        self.lives = lives

    def _live(self) -> None:
        if not self.lives:
            raise Died
        self.lives -= 1

    def write(self, name: str, data: bytes) -> None:
        self._live()
        super().write(name, data)

    def read(self, name: str) -> bytes:
        self._live()
        return super().read(name)

    def remove(self, name: str) -> None:
        self._live()
        super().remove(name)


def records(process_id: str, *numbers: int) -> list[TaskRecord | EventRecord]:
    """A task and an event of a process for each number."""
    of: dict[str, Any] = {"namespace": NS, "process_id": process_id, "born": BORN}
    return [
        each
        for n in numbers
        for each in (
            TaskRecord(
                **of, task_id=n, task_type=TaskType.CALL, status=TaskStatus.FINISHED, scheduled_time=BORN
            ),
            EventRecord(**of, event_id=n, task_id=n, timestamp=BORN, payload=b"1"),
        )
    ]


def kept(archive: Archive) -> dict[str, Counter[str]]:
    """How often each record of each process is in the archive, by its line."""
    found: dict[str, Counter[str]] = {}
    for name, manifest in archive.parts(NS):
        for each in archive.records(name, manifest):
            if isinstance(each, TaskRecord | EventRecord):
                found.setdefault(each.process_id, Counter())[each.model_dump_json()] += 1
    return found


def remove(archive: Archive, *process_ids: str) -> Counter[str]:
    """Remove processes from all parts; how many records each had."""
    found = Counter[str]()
    for name, manifest in list(archive.parts(NS)):
        found.update(archive.remove(name, manifest, process_ids))
    return found


@pytest.fixture
def filled(tmp_path: Path) -> Archive:
    """Three parts: one with both processes, one of each."""
    archive = Archive(str(tmp_path))
    for part in ([*records("a", 1, 2), *records("b", 1)], records("a", 3), records("b", 2)):
        asyncio.run(archive.keep(NS, BORN, BORN, part))
    return archive


def test_a_process_is_gone_and_others_stay(filled: Archive, tmp_path: Path) -> None:
    """From every part; one with nothing else is gone whole, and one without it is not touched."""
    before, names = kept(filled), {name for name, _ in filled.parts(NS)}
    assert filled.count(*next(filled.parts(NS)), {"nobody"}) == Counter()
    assert remove(filled, "a") == {"a": 6}
    assert kept(filled) == {"b": before["b"]}
    parts = dict(filled.parts(NS))
    assert (len(parts), len(parts.keys() & names)) == (2, 1)
    assert sorted((each.tasks, each.events) for each in parts.values()) == [(1, 1), (1, 1)]
    assert not any(b'"a"' in path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert remove(filled, "a") == Counter()


def test_a_part_is_as_old_as_before(filled: Archive) -> None:
    """Where two parts have an event of one number, the later one counts: a rewritten one is not later."""
    before = sorted(manifest.made_at for _, manifest in filled.parts(NS))
    remove(filled, "a")
    assert {manifest.made_at for _, manifest in filled.parts(NS)} < set(before)


@pytest.mark.parametrize("lives", range(OPERATIONS + 1))
def test_a_death_loses_nothing(
    filled: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """At each operation: what is to be kept is in a part, and the command ends what it has begun."""
    before = kept(filled)["b"]
    (mixed,) = (each for each in filled.parts(NS) if each[1].tasks == 3)
    dying = Dying(tmp_path, lives=lives)
    monkeypatch.setattr(module, "place_at", lambda _url: dying)
    try:
        Archive("").remove(*mixed, {"a"})
    except Died:
        assert lives < OPERATIONS
    else:
        assert lives == OPERATIONS, "the test knows all operations"
    assert kept(filled)["b"].keys() == before.keys()
    remove(filled, "a")
    assert kept(filled).keys() == {"b"}
    assert kept(filled)["b"].keys() == before.keys()


def test_a_damaged_part_stays(filled: Archive, tmp_path: Path) -> None:
    """What cannot be read is not written anew: its other records would be lost."""
    name, manifest = next(filled.parts(NS))
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-1])
    before = path.read_bytes()
    with pytest.raises(ArchiveDamaged):
        filled.remove(name, manifest, {"a"})
    assert path.read_bytes() == before


def test_files_without_a_manifest_are_named(filled: Archive, tmp_path: Path) -> None:
    """A writer that died has left one: it may have rows of anybody."""
    name, _ = next(filled.parts(NS))
    (tmp_path / f"{name}.json").unlink()
    assert list(filled.strays(NS)) == [name]


def test_a_file_that_is_not_whole_is_named(filled: Archive, tmp_path: Path) -> None:
    """A writer that was killed in the middle has left it."""
    name, _ = next(filled.parts(NS))
    cut_off = tmp_path / NS / "2026-01-01" / f".{name.rpartition('/')[2]}.part"
    cut_off.parent.mkdir(exist_ok=True)
    cut_off.write_bytes(b"half")
    assert list(filled.strays(NS)) == [cut_off.relative_to(tmp_path).as_posix()]
    assert len(kept(filled)["a"]) == 6


class Replacing(Directory):
    """A directory in which parts are written anew, without "a", as a reader comes to the n-th file."""

    def __init__(self, root: Path, *, at: int, lives: int) -> None:
        super().__init__(root)
        self._at, self._lives = at, lives
        self.reads = 0

    def read(self, name: str) -> bytes:
        self.reads += 1
        if self.reads == self._at:
            archive = Archive(str(self._root))
            vars(archive)["_place"] = Dying(self._root, lives=self._lives)
            with suppress(Died):
                remove(archive, "a")
        return super().read(name)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_reader_beside_a_removal_sees_all_that_is_kept(filled: Archive, tmp_path: Path, at: int) -> None:
    """Wherever the reader is, and however far the removal has come, which takes a manifest away first."""
    archive = Archive(str(tmp_path))
    for lives in range(3 * OPERATIONS):
        place = tmp_path / str(lives)
        shutil.copytree(tmp_path / NS, place / NS)
        vars(archive)["_place"] = reader = Replacing(place, at=at, lives=lives)
        found = asyncio.run(archive.events(NS, "b", BORN))
        assert [each.event_id for each in found] == [1, 2]
        # A part is read once, and its manifest.
        assert reader.reads <= 2 * 5
