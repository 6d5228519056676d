"""The round trip, small: killed in the middle and resumed, both sides are equal; and damage is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.roundtrip import files, tables
from tests import postgres
from tests.docs.pages import ROOT

_PROCESS = {"kind": "process", "process_id": "p1", "corrupted_by": 7, "metadata": {"rate": 1.0}}
_TASKS = [
    {"kind": "task", "process_id": "p1", "task_id": 5},
    {"kind": "task", "process_id": "p1", "task_id": 7, "idempotency_key": "progressor:redo:5"},
]
_END = {"kind": "end", "process_id": "p1"}
Lines = list[dict[str, Any]]


def ran(file: Path, *options: str) -> dict[str, Any]:
    """The report of a run that was as it should be."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.roundtrip", "--json", str(file), *options],
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(file.read_text())
    assert f"differences: {len(report['differences'])}" in done.stdout
    return report


@pytest.mark.timeout(600)
def test_processes_are_equal_on_the_other_side(tmp_path: Path) -> None:
    """Killed on the way: no row differs, and each timer fires once, where it should."""
    report = ran(tmp_path / "report.json", "--processes", "240", "--kills", "1", "--window", "2")
    assert report["differences"] == []
    assert report["rows"]["processes"] == report["processes"] > 200
    assert min(report["rows"][name] for name in ("tasks", "events", "schedule", "outbox")) > 0
    # One of them might end before it is killed.
    assert sum(each["kills"] for each in report["commands"].values()) > 0
    assert min(report["counts"][f"timers, {name}"] for name in ("fired", "standing", "held")) > 0
    assert report["counts"]["repaired"] == 24


@pytest.mark.timeout(600)
def test_damage_is_found(tmp_path: Path) -> None:
    """In each table, in the export, in an answer, and in a timer that is set."""
    options = ("--processes", "20", "--kills", "0", "--window", "1", "--planted")
    found = "\n".join(ran(tmp_path / "report.json", *options)["differences"])
    for told in (
        *(f"{name}, acme-" for name in ("processes", "tasks", "events", "schedule", "outbox")),
        "acme-0000001, process: state",
        "acme-0000002, key pay 0: 99, not 1",
        "acme-0000003 has ",
        "timer that is set, ('acme-0000004', '')",
    ):
        assert told in found


def export_of(file: Path, lines: Lines) -> Path:
    """A file of these lines."""
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return file


def as_imported(lines: Lines) -> Lines:
    """The same lines with the numbers of another database."""
    text = json.dumps(lines).replace("redo:5", "redo:105")
    return json.loads(text.replace(": 5", ": 105").replace(": 7", ": 107"))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda lines: None, []),
        (lambda lines: lines[0]["metadata"].update(rate=1), ["p1, process: metadata is"]),
        (lambda lines: lines[0].update(corrupted_by=105), ["p1, process: corrupted_by is 1 and was 2"]),
        (lambda lines: lines[2].pop("idempotency_key"), ["p1, task: idempotency_key is None and was"]),
        (lambda lines: lines.pop(2), ["p1, process: corrupted_by", "p1 has 3 lines, and had 4"]),
        (lambda lines: lines.clear(), ["p1 is missing in the target's export"]),
    ],
    ids=["nothing", "a kind of number", "who broke it", "a key", "a task", "a process"],
)
def test_exports_are_compared(tmp_path: Path, change: Callable[[Lines], None], found: list[str]) -> None:
    """New numbers of tasks are the same; everything else that is another thing is told."""
    before: Lines = [_PROCESS, *_TASKS, _END]
    after = as_imported(before)
    change(after)
    told = list(files.differences(export_of(tmp_path / "a", before), export_of(tmp_path / "b", after)))
    assert len(told) >= len(found)
    assert all(any(each.startswith(text) for each in told) for text in found)
    assert bool(told) == bool(found)


def test_rows_are_compared() -> None:
    """One that is missing, one too many and one that differs are told, and the others still meet."""
    left = [[b"a", b"1", b"x"], [b"a", b"2", b"x"], [b"b", b"1", b"x"]]
    right = [[b"a", b"1", b"x"], [b"a", b"10", b"x"], [b"b", b"1", b"y"]]
    told = list(tables.compared("tasks", ["process_id", "row", "name"], iter(left), iter(right)))
    assert told == [
        "tasks, a, row 2 is missing in the target",
        "tasks, a, row 10 is not in the source",
        "tasks, b, row 1: name is y and was x",
    ]
