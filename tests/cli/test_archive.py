"""The commands of the archive: parts are read, checked and written anew without a database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from progressor.archive.archive import Archive
from progressor.archive.places import Directory
from progressor.archive.records import EventRecord
from tests.cli.conftest import NS, Ended
from tests.engine.test_archives import swept
from tests.support import NS as METERS

BORN = datetime(2026, 1, 1, tzinfo=UTC)
Ask = Callable[..., Ended]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An archive of one part, with two events."""
    asyncio.run(Archive(str(tmp_path)).keep(NS, BORN, BORN, [_event(1), _event(2)]))
    return tmp_path


def _event(event_id: int, process_id: str = "p1") -> EventRecord:
    facts: dict[str, Any] = {"namespace": NS, "born": BORN, "task_id": 1, "timestamp": BORN}
    return EventRecord(**facts, process_id=process_id, event_id=event_id, payload=b"1", metadata={})


def test_parts_are_listed(ask: Ask, place: Path) -> None:
    """For people as a table, for programs a line of JSON each."""
    said = ask("archive", "list", NS, "--archive", str(place), "--json").json
    assert (said["namespace"], said["events"], said["tasks"]) == (NS, 2, 0)
    assert said["part"].startswith(f"{NS}/")
    assert "written" in ask("archive", "list", NS, "--archive", str(place)).out


def test_a_damaged_part_is_named(ask: Ask, place: Path) -> None:
    """What is whole ends with status 0; one that is not what its manifest says, with 1."""
    whole = ask("archive", "verify", NS, "--archive", str(place))
    assert (whole.status, "1 part with 3 lines, 0 damaged" in whole.err) == (0, True)
    (part,) = place.rglob("*.gz")
    part.write_bytes(part.read_bytes()[:-1])
    damaged = ask("archive", "verify", NS, "--archive", str(place))
    assert (damaged.status, part.name in "".join(damaged.err.split())) == (1, True)


def test_nothing_to_verify_is_no_success(ask: Ask, place: Path) -> None:
    """A mistyped place or namespace has no parts: the status says so to a script."""
    for namespace, where in ((NS, place / "elsewhere"), ("nobody", place)):
        nothing = ask("archive", "verify", namespace, "--archive", str(where))
        assert (nothing.status, "0 parts" in nothing.err) == (1, True)


def test_processes_are_removed(ask: Ask, place: Path, tmp_path: Path) -> None:
    """Looked at, then by a receipt; what is told is how many records, and a repetition finds none."""
    receipt = tmp_path / "receipt.ndjson"
    left = {
        "namespace": NS,
        "process_id": "p3",
        "removed_at": None,
        "error": "a table of yours points to it",
    }
    lines = [{"namespace": NS, "process_id": "p1"}, {"namespace": "other", "process_id": "p2"}, left]
    receipt.write_text("\n".join(map(json.dumps, lines)) + "\n")
    of = ("archive", "remove", NS, "--archive", str(place), "--receipt", str(receipt))
    look = ask(*of, "--dry-run", "--json")
    assert look.json == {"namespace": NS, "process_id": "p1", "records": 2}
    assert "would be removed: 2 records of 1 process, from 1 part" in " ".join(look.err.split())
    assert ask(*of).status == 2, "nobody was asked"
    assert ask("archive", "verify", NS, "--archive", str(place)).status == 0
    assert "removed: 2 records of 1 process, from 1 part" in " ".join(ask(*of, "--yes").err.split())
    again = ask("archive", "remove", NS, "p1", "--archive", str(place), "--yes")
    assert (again.status, "removed: 0 records" in again.err) == (0, True)
    assert not list(place.rglob("*.gz"))


def test_a_damaged_part_may_have_them_still(ask: Ask, place: Path) -> None:
    """It is named and stays, and the status is 1; so does a file without a manifest, which is no part."""
    (part,) = place.rglob("*.gz")
    part.write_bytes(part.read_bytes()[:-1])
    damaged = ask("archive", "remove", NS, "p1", "--archive", str(place), "--yes")
    assert (damaged.status, part.name in "".join(damaged.err.split())) == (1, True)
    Path(f"{part}.json").unlink()
    stray = ask("archive", "remove", NS, "p1", "--archive", str(place), "--yes")
    assert (stray.status, "has no manifest" in " ".join(stray.err.split())) == (0, True)


@pytest.mark.parametrize("form", ["{}", "./{}", "file://{}"])
def test_a_place_is_named_in_any_way(
    progressor: Ask, place: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Below the working folder too; what is to be kept is written there."""
    asyncio.run(Archive(str(place)).keep(NS, BORN, BORN, [_event(3), _event(1, "p2")]))
    monkeypatch.chdir(place.parent)
    where = form.format(place if form.startswith("file") else place.name)
    done = progressor("archive", "remove", NS, "p1", "--archive", where, "--yes")
    assert (done.status, "removed: 3 records of 1 process" in " ".join(done.err.split())) == (0, True)
    assert progressor("archive", "list", NS, "--archive", where, "--json").json["events"] == 1


@pytest.mark.parametrize("command", ["list", "verify", "remove"])
def test_a_place_that_cannot_be_reached(
    progressor: Ask, place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A line says why, and the status is 1; a part that cannot be written anew stays, and the others go."""
    given = ("p1", "--yes") if command == "remove" else ()

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Directory, "remove" if command == "remove" else "names", fails)
    full = progressor("archive", command, NS, *given, "--archive", str(place))
    assert (full.status, "No space left on device" in " ".join(full.err.split())) == (1, True)
    assert len(list(place.rglob("*.gz"))) == 1


@pytest.mark.parametrize("harm", ["damaged", "unreachable"])
def test_what_is_left_is_shown_without_the_archive(
    progressor: Ask, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """The events of the database, from any place; a warning and the status say why there are no others."""

    async def sweep() -> None:
        async with swept(dsn, str(tmp_path)):
            """Three of six events are in the archive."""

    asyncio.run(sweep())
    if harm == "damaged":
        (part,) = tmp_path.rglob("*.gz")
        part.write_bytes(part.read_bytes()[:-1])
    else:
        monkeypatch.setattr(Directory, "names", _fails)
    env = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_ARCHIVE": str(tmp_path), "COLUMNS": "300"}
    of = (METERS, "p1", "--json")
    for command, ids in (
        (("history", *of), [4, 5, 6]),
        (("history", *of, "--offset", "4"), [5, 6]),
        (("history", *of, "--limit", "2"), [4, 5]),
        (("get", *of), [4, 5, 6]),
        (("get", *of, "--direction", "backward"), [6, 5, 4]),
        (("get", *of, "--direction", "backward", "--offset", "3"), []),
    ):
        shown = progressor(*command, **env)
        lines = [json.loads(line) for line in shown.out.splitlines()]
        events = lines[0]["history"] if command[0] == "get" else lines
        assert [each["event_id"] for each in events] == ids, command
        fails = command[-1] != "4"
        assert (shown.status, "events before 4 are not shown: the" in shown.err) == (fails, fails), command
    shown = progressor("get", METERS, "p1", **env)
    assert (shown.status, "events before 4 are not shown" in shown.err) == (1, True)
    assert '{"units": 4}' in shown.out


def _fails(*_: Any) -> None:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("text", ["no json", '{"process_id": "p1"}', "[1]", "17"])
def test_what_is_no_receipt_is_refused(ask: Ask, place: Path, tmp_path: Path, text: str) -> None:
    """Before anything is removed; so is a command that names nobody."""
    receipt = tmp_path / "receipt.ndjson"
    receipt.write_text(text)
    of = ("archive", "remove", NS, "--archive", str(place), "--yes")
    wrong = ask(*of, "--receipt", str(receipt))
    assert (wrong.status, "it is no receipt" in wrong.err) == (2, True)
    assert ask(*of).status == 2
    assert ask(*of, "--receipt", str(tmp_path / "nowhere")).status == 2
    assert len(list(place.rglob("*.gz"))) == 1
