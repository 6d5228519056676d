"""Archives from outside: what retention deletes is written first, and histories are read from both."""

from __future__ import annotations

import gzip
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from progressor import (
    ArchiveDamaged,
    ArchiveUnavailable,
    Client,
    Engine,
    HistoryRange,
    HistoryTruncated,
    InvalidRequest,
    Retention,
    outages,
)
from progressor.archive import places
from progressor.archive.archive import Archive
from progressor.archive.places import ObjectStore, place_at, without_secrets
from progressor.archive.records import EventRecord
from progressor.http import HttpClient
from progressor.http.server.app import make_app
from progressor.services.retention_sweeper import RetentionSweeper
from tests.acceptance.support import until
from tests.engine.meters import meters
from tests.open_access import OpenAccess
from tests.support import NS

DAY = timedelta(days=1)
BORN = datetime(2024, 3, 1, 9, tzinfo=UTC)


@pytest.fixture(params=["directory", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory, and an object store."""
    return str(tmp_path / "kept") if request.param == "directory" else f"memory://{tmp_path.name}/kept"


def event(event_id: int, process_id: str = "p1", born: datetime = BORN) -> EventRecord:
    """An archived event."""
    facts: dict[str, Any] = {"namespace": NS, "task_id": event_id, "timestamp": BORN}
    payload = b'{"n":%d}' % event_id
    return EventRecord(process_id=process_id, born=born, event_id=event_id, payload=payload, **facts)


def files_in(folder: Path) -> list[Path]:
    """The files below a folder."""
    return [each for each in folder.rglob("*") if each.is_file()]


async def test_a_process_is_removed(place: str) -> None:
    """From each part that has it: others stay, and a part with nothing else is gone."""
    archive = Archive(place)
    await archive.keep(NS, BORN, BORN, [event(1), event(1, "p2")])
    await archive.keep(NS, BORN, BORN, [event(2)])
    for name, manifest in list(archive.parts(NS)):
        archive.remove(name, manifest, {"p1"})
    assert await archive.events(NS, "p1", BORN) == []
    assert [each.event_id for each in await archive.events(NS, "p2", BORN)] == [1]
    assert len(list(archive.parts(NS))) == 1
    assert list(archive.strays(NS)) == []


async def test_a_part_comes_back(place: str) -> None:
    """Of the process that was asked for, and of that life alone; twice archived is there once."""
    archive = Archive(place)
    await archive.keep(NS, BORN, BORN, [event(1), event(2), event(9, "p2")])
    await archive.keep(NS, BORN, BORN + DAY, [event(2), event(3), event(7, born=BORN + DAY)])
    await archive.keep(f"{NS}.other", BORN, BORN, [event(4)])
    assert [each.event_id for each in await archive.events(NS, "p1", BORN)] == [1, 2, 3]
    assert [each.event_id for each in await archive.events(NS, "p1", BORN + DAY)] == [7]
    assert await archive.events("nobody", "p1", BORN) == []
    assert [manifest.events for _, manifest in archive.parts(NS)] == [3, 3]


async def test_what_a_lost_server_archived(place: str) -> None:
    """A restored one gives its numbers again: the event that was archived later is the one there was."""
    archive = Archive(place)
    await archive.keep(NS, BORN, BORN + DAY, [event(1), event(2).model_copy(update={"payload": b'"lost"'})])
    await archive.keep(NS, BORN, BORN, [event(2), event(3)])
    found = await archive.events(NS, "p1", BORN)
    assert [each.payload for each in found] == [event(n).payload for n in (1, 2, 3)]


async def test_a_process_of_long_ago(place: str) -> None:
    """Whatever year it was put with."""
    archive, born = Archive(place), datetime(33, 4, 3, tzinfo=UTC)
    await archive.keep(NS, born, BORN, [event(1, born=born)])
    assert [each.event_id for each in await archive.events(NS, "p1", born)] == [1]


async def test_a_damaged_part(tmp_path: Path) -> None:
    """One bit is enough; without its manifest a file is no part."""
    archive = Archive(str(tmp_path))
    name = await archive.keep(NS, BORN, BORN, [event(1)])
    path = tmp_path / name
    assert oct(path.stat().st_mode)[-3:] == "600"
    data = bytearray(path.read_bytes())
    assert b'"event_id":1' in gzip.decompress(bytes(data))
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ArchiveDamaged, match="its SHA-256 is not that of its manifest"):
        await archive.events(NS, "p1", BORN)
    path.with_name(path.name + ".json").unlink()
    assert await archive.events(NS, "p1", BORN) == []


async def test_a_disk_that_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back must be what was written, or there is no manifest."""
    archive = Archive(str(tmp_path))
    read = archive._place.read
    monkeypatch.setattr(archive._place, "read", lambda name: read(name)[:-1])
    with pytest.raises(ArchiveDamaged):
        await archive.keep(NS, BORN, BORN, [event(1)])
    assert list(archive.parts(NS)) == []


async def test_a_manifest_that_is_not_what_was_written(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read back too: without it nobody finds the part, whose rows would be deleted."""
    archive = Archive(place)
    read = archive._place.read
    monkeypatch.setattr(
        archive._place, "read", lambda name: read(name)[:40] if name.endswith(".json") else read(name)
    )
    with pytest.raises(ArchiveDamaged, match="its manifest cannot be read"):
        await archive.keep(NS, BORN, BORN, [event(1)])


async def test_the_latest_part_counts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that was restored from a backup has other events under numbers that were archived."""
    names = iter(["ff", "00"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(names))
    archive = Archive(place)
    await archive.keep(NS, BORN, BORN, [event(1)])
    later = event(1).model_copy(update={"payload": b"later"})
    await archive.keep(NS, BORN, BORN, [later])
    assert [each.payload for each in await archive.events(NS, "p1", BORN)] == [b"later"]


def test_a_full_disk_is_not_filled_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of a file is removed: it is tried again and again."""

    def fails(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        Archive(str(tmp_path))._place.write(f"{NS}/part", b"data")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("written", ["part", "manifest"])
async def test_a_folder_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """What was written is removed, the part too if its manifest fails: nobody would read or remove it."""
    archive, synced = Archive(str(tmp_path)), list[Path]()

    def fails(folder: Path) -> None:
        synced.append(folder)
        if written == "part" or list(folder.glob("*.json")):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(places, "sync_folder", fails)
    with pytest.raises(ArchiveUnavailable, match="Input/output error"):
        await archive.keep(NS, BORN, BORN, [event(1)])
    assert synced
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("url", ["kept", "./kept", "deep/er/kept", "../kept", "~/kept"])
async def test_a_relative_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """It is below the folder in which the archive was opened, or below the home, whatever comes later."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(here)
    archive = Archive(url)
    await archive.keep(NS, BORN, BORN, [event(1)])
    monkeypatch.chdir(tmp_path / "elsewhere")
    await archive.keep(NS, BORN, BORN, [event(2)])
    assert [each.event_id for each in await archive.events(NS, "p1", BORN)] == [1, 2]
    for name, manifest in list(archive.parts(NS)):
        archive.remove(name, manifest, {"p1"})
    assert files_in(tmp_path) == []
    root = tmp_path if url.startswith("~") else here
    assert (root / url.removeprefix("~/")).is_dir()


def test_a_file_url(tmp_path: Path) -> None:
    """It has three slashes: with two the folder's beginning would be taken for a machine, and be lost."""
    place_at(f"file://{tmp_path}/a%20b").write("part", b"data")
    assert (tmp_path / "a b" / "part").read_bytes() == b"data"
    with pytest.raises(InvalidRequest, match="file:///srv/archive"):
        place_at("file://srv/archive")
    with pytest.raises(InvalidRequest, match="home"):
        place_at("~nobody-has-this-name/archive")


@pytest.mark.parametrize(
    "url", ["ftp://user:se/cret@host/x", "ftp://user:secret@[bad/x", "ftp://user:secret@127.0.0.1:1/x"]
)
def test_no_secret_of_a_bad_url_is_shown(url: str) -> None:
    """Whatever is wrong with it: it is refused, without a traceback that may have it."""
    with pytest.raises(InvalidRequest) as refused:
        place_at(url)
    assert not {"secret", "cret", "'se'"} & set(
        str(refused.value).replace("/", " ").replace("@", " ").split()
    )
    assert refused.value.__cause__ is None


async def test_no_secret_of_a_url_is_shown_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers name the whole URL in their errors."""
    archive = Archive("memory://user:secret@host/x?token=hidden")

    def fails(*_: Any) -> None:
        raise RuntimeError("PUT memory://user:secret@host/x?token=hidden: 503; as user:secret")

    monkeypatch.setattr(archive._place, "write", fails)
    monkeypatch.setattr(archive._place, "names", fails)
    for asked in (archive.keep(NS, BORN, BORN, [event(1)]), archive.events(NS, "p1", BORN)):
        with pytest.raises(ArchiveUnavailable, match="503") as failed:
            await asked
        assert not [each for each in ("secret", "hidden") if each in str(failed.value)]
        assert failed.value.__cause__ is None


def test_no_secret_is_shown_as_a_driver_decodes_it() -> None:
    """In a URL a secret may be written with percent signs, in a text of its driver without."""
    url = "sftp://user:p%40ss@host/x?key=to%2Fken&retries=3"
    text = without_secrets("user:p@ss was refused on try 3 with key to/ken, or to%2Fken", url)
    assert not [secret for secret in ("p@ss", "to/ken", "to%2Fken") if secret in text]
    assert "try 3" in text


@pytest.mark.parametrize("folder", ["namespace", "day"])
async def test_a_folder_that_cannot_be_read(
    place: str, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Nobody is told that nothing is in it: neither who reads a history nor who removes a process."""
    archive = Archive(place)
    name = await archive.keep(NS, BORN, BORN, [event(1)])
    refuse_to_list(monkeypatch, NS if folder == "namespace" else name.rpartition("/")[0])
    with pytest.raises(ArchiveUnavailable, match="Permission denied"):
        await archive.events(NS, "p1", BORN)
    with pytest.raises(PermissionError):
        list(archive.parts(NS))
    assert list(archive.parts("other")) == []


def refuse_to_list(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    """Have a disk and a driver refuse to list the folder of this name."""

    def refusing(listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(*args: Any, **options: Any) -> Any:
            if str(args[-1]).endswith(closed):
                raise PermissionError(13, "Permission denied", closed)
            return listing(*args, **options)

        return listed

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(MemoryFileSystem, "ls", refusing(MemoryFileSystem.ls))
    # As that of a driver that has none of its own: it walks from folder to folder.
    monkeypatch.setattr(MemoryFileSystem, "find", AbstractFileSystem.find)


async def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    """It says why, and shows no secret of its URL."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveUnavailable, match="Not a directory"):
        await Archive(str(tmp_path / "file")).keep(NS, BORN, BORN, [event(1)])
    with pytest.raises(InvalidRequest, match="nothing://host/x") as refused:
        place_at("nothing://user:secret@host/x")
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidRequest, match="must be a directory or a URL"):
        place_at("")
    assert isinstance(place_at("memory://x"), ObjectStore)


@asynccontextmanager
async def swept(dsn: str, place: str) -> AsyncIterator[Engine]:
    """An engine with a process of six events, of which three are left and three in the archive."""
    kept = Retention(events=3, archive=True)
    options: dict[str, Any] = {"zombie_interval": timedelta(seconds=0.1), "archive": place}
    async with Engine(dsn, [meters(retention=kept)], **options) as engine:
        await engine.client.start(NS, "p1")
        for units in range(5):
            await engine.client.call(NS, "p1", "read", units)
        await engine.client.begin_retention(NS)

        async def is_swept() -> bool:
            return (await engine.client.get(NS, "p1", range=None)).first_event_id == 4

        await until(is_swept, bool)
        yield engine


@pytest.mark.parametrize("way", ["client", "http"])
async def test_a_history_is_read_from_both(dsn: str, place: str, way: str) -> None:
    """Whole, from any place, in both directions, in pages."""
    async with swept(dsn, place) as engine:
        app = make_app(engine.client, access=OpenAccess())
        async with HttpClient("http://api", transport=httpx.ASGITransport(app)) as over_http:
            client: Any = engine.client if way == "client" else over_http
            for wanted, ids in (
                (HistoryRange(), [1, 2, 3, 4, 5, 6]),
                (HistoryRange(offset=2), [3, 4, 5, 6]),
                (HistoryRange(limit=2), [1, 2]),
                (HistoryRange(offset=1, limit=3), [2, 3, 4]),
                (HistoryRange(offset=4), [5, 6]),
                (HistoryRange(direction="backward"), [6, 5, 4, 3, 2, 1]),
                (HistoryRange(direction="backward", limit=4), [6, 5, 4, 3]),
                (HistoryRange(offset=3, direction="backward"), [2, 1]),
                (HistoryRange(offset=5, limit=2, direction="backward"), [4, 3]),
            ):
                process = await client.get(NS, "p1", range=wanted)
                assert [each.event_id for each in process.history] == ids, wanted
            first = (await client.get(NS, "p1")).history[1]
            assert (first.name, first.payload) == ("read", {"units": 0})


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_a_history_that_is_archived_while_it_is_read(dsn: str, place: str, direction: Any) -> None:
    """What is deleted between two reads is read from the archive: there is no gap, and nothing twice."""
    async with swept(dsn, place) as engine:
        reader = engine.client.reader
        before = await reader.process(NS, "p1", wanted=None, seconds=30)
        await engine.client.set_retention(NS, Retention(events=1, archive=True))

        async def is_swept() -> bool:
            return (await engine.client.get(NS, "p1", range=None)).first_event_id == 6

        await until(is_swept, bool)
        wanted = HistoryRange(direction=direction)
        for read in (before, before._replace(first_event_id=1)):
            for room in (None, 1 << 20):
                found = await reader.with_history(read, wanted, room=room)
                assert sorted(each.event_id for each in found.history) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_a_history_of_which_events_are_deleted_while_it_is_read(
    dsn: str, place: str, direction: Any
) -> None:
    """Whoever reads no archive is told which events are gone: what is shown begins where it says."""
    async with swept(dsn, place), Client(dsn) as client:
        before = await client.reader.process(NS, "p1", wanted=None, seconds=30)
        never_swept = before._replace(first_event_id=1)
        found = await client.reader.with_history(never_swept, HistoryRange(direction=direction))
        assert sorted(each.event_id for each in found.history) == [4, 5, 6]
        assert found.first_event_id == 4


async def test_without_the_archive(dsn: str, tmp_path: Path) -> None:
    """Whoever does not know it is told what is left; a sweeper that does not know it deletes nothing."""
    async with swept(dsn, str(tmp_path)):
        async with Client(dsn) as client:
            assert [each.event_id for each in (await client.get(NS, "p1")).history] == [4, 5, 6]
            with pytest.raises(HistoryTruncated) as truncated:
                await client.get(NS, "p1", range=HistoryRange(offset=1))
            assert truncated.value.first_event_id == 4
        async with Client(dsn, archive=str(tmp_path / "another")) as client:
            with pytest.raises(HistoryTruncated):
                await client.get(NS, "p1", range=HistoryRange(offset=1))


async def test_an_archive_that_cannot_be_written(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is deleted, and the log says why; it works again only when something was archived."""
    (tmp_path / "file").write_text("")
    failed, rounds = list[str](), list[None]()
    run_once = RetentionSweeper.run_once

    async def noting(self: RetentionSweeper) -> Any:
        try:
            return await run_once(self)
        except ArchiveUnavailable as error:
            failed.append(str(error))
            raise
        finally:
            # The walk is put off for some minutes, so these have nothing to do.
            rounds.extend([None] if failed else [])

    monkeypatch.setattr(RetentionSweeper, "run_once", noting)
    kept = Retention(events=1, archive=True)
    options: dict[str, Any] = {"zombie_interval": timedelta(seconds=0.1)}
    monkeypatch.setattr(outages, "_CALM", 0.0)
    caplog.set_level("INFO", "progressor.service")
    async with Engine(dsn, [meters(retention=kept)], archive=str(tmp_path / "file"), **options) as engine:
        await engine.client.start(NS, "p1")
        await engine.client.call(NS, "p1", "read", 1)
        await engine.client.begin_retention(NS)

        async def has_gone_on() -> bool:
            return len(rounds) > 3

        await until(has_gone_on, bool)
        assert len((await engine.client.get(NS, "p1")).history) == 2
    assert "Not a directory" in failed[0]
    assert [each.getMessage().split(" service=")[0] for each in caplog.records] == [
        "service round failed, going on"
    ]
