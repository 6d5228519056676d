"""The commands archive list and verify: parts are read and checked without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from progressor.archive.archive import Archive
from progressor.archive.records import EventRecord
from tests.cli.conftest import NS, Ended

BORN = datetime(2026, 1, 1, tzinfo=UTC)
Ask = Callable[..., Ended]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An archive of one part, with two events."""
    facts: dict[str, Any] = {
        "namespace": NS,
        "process_id": "p1",
        "born": BORN,
        "task_id": 1,
        "timestamp": BORN,
    }
    events = [EventRecord(**facts, event_id=n, payload=b"1", metadata={}) for n in (1, 2)]
    asyncio.run(Archive(str(tmp_path)).keep(NS, BORN, BORN, events))
    return tmp_path


def test_parts_are_listed(ask: Ask, place: Path) -> None:
    """For people as a table, for programs a line of JSON each."""
    said = ask("archive", "list", NS, "--archive", str(place), "--json").json
    assert (said["namespace"], said["events"], said["tasks"]) == (NS, 2, 0)
    assert said["part"].startswith(f"{NS}/")
    assert "written" in ask("archive", "list", NS, "--archive", str(place)).out


def test_a_damaged_part_is_named(ask: Ask, place: Path) -> None:
    """What is whole ends with status 0; one that is not what its manifest says, with 1."""
    whole = ask("archive", "verify", NS, "--archive", str(place))
    assert (whole.status, "1 parts with 3 lines, 0 damaged" in whole.err) == (0, True)
    (part,) = place.rglob("*.gz")
    part.write_bytes(part.read_bytes()[:-1])
    damaged = ask("archive", "verify", NS, "--archive", str(place))
    assert (damaged.status, part.name in "".join(damaged.err.split())) == (1, True)


def test_nothing_to_verify_is_no_success(ask: Ask, place: Path) -> None:
    """A mistyped place or namespace has no parts: the status says so to a script."""
    for namespace, where in ((NS, place / "elsewhere"), ("nobody", place)):
        nothing = ask("archive", "verify", namespace, "--archive", str(where))
        assert (nothing.status, "0 parts" in nothing.err) == (1, True)
