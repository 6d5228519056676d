"""Registers and sets under faults, in short: `benchmarks.linearizability` as CI runs it.

Rule: OS processes of its own on a server of its own; a bound on the whole, none on any step of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.linearizability.callers import Object
from benchmarks.linearizability.histories import Operation
from benchmarks.linearizability.nemesis import FAULTS, Loss
from benchmarks.linearizability.objects import REGISTER, SET
from benchmarks.linearizability.run import Options, report_of
from tests import postgres

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 300
# The bound is that of the run: its report says more than the end of a test.
pytestmark = pytest.mark.timeout(BOUND_SECONDS + 60)
# So few that a slow machine has them, so many that they say something.
KNOWN = 100


def run(report: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run it; its exit status and its report."""
    command = [sys.executable, "-m", "benchmarks.linearizability", f"--json={report}", f"--demand={KNOWN}"]
    done = subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        timeout=BOUND_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stderr
    return done.returncode, json.loads(report.read_text())


def test_objects_are_linearizable_under_faults(tmp_path: Path) -> None:
    """Nodes are killed and frozen, PostgreSQL is restarted and replaced: an order explains all answers."""
    status, report = run(tmp_path / "report.json", "--seconds", "10", "--pause", "1", "--seed", "2")
    assert (report["findings"], status) == ([], 0)
    assert set(report["faults"]) == set(FAULTS)
    assert min(report["known"].values()) >= KNOWN
    assert min(report["objects"].values()) >= 2


def test_planted_wrong_answers_are_found(tmp_path: Path) -> None:
    """A facade that reads stale values, and once gives an answer to a stranger, is found out."""
    options = ["--seconds", "0", "--pause", "2", "--fault", "freeze a node", "--planted"]
    status, report = run(tmp_path / "report.json", *options)
    for wanted in ("no order explains", "which is a stranger's"):
        assert any(wanted in finding for finding in report["findings"]), report
    assert (status, report["holds"]) == (0, False)


def test_too_few_known_answers_are_a_failure() -> None:
    """A run that learned nothing does not pass."""
    invented = read(1)
    assert report_of(Options(0, demand=1), [], [], [invented]).findings == [
        "Register/k: 1 was read, and nobody wrote it",
        f"Register/k: no order explains {invented.history[0]}",
        "Set: 0 known answers are too few, 1 wanted",
    ]


def test_lost_commits_excuse_a_stale_read_and_no_invention() -> None:
    """Of an object that was worked on while commits were lost, nobody may read what was not written."""
    loss = Loss(begun=5, ended=6)
    written = Operation("write", 1, 1, 2)
    assert report_of(Options(0, demand=0), [], [loss], [read(None, written)]).findings == []
    assert report_of(Options(0, demand=0), [], [], [read(None, written)]).findings != []
    assert report_of(Options(0, demand=0), [], [loss], [read(7, written)]).findings != []


@pytest.mark.parametrize("service", [REGISTER, SET])
@pytest.mark.parametrize("stranger", [7, "7", {"7": 7}, [[7]], [{}]])
def test_a_strangers_answer_of_any_shape_is_reported(service: str, stranger: object) -> None:
    """The answer that one object was given for another's is a finding, whatever it looks like."""
    findings = report_of(Options(0, demand=0), [], [], [read(stranger, service=service)]).findings
    assert findings[0] == f"{service}/k: {stranger} was read, and nobody wrote it"
    assert "no order explains" in findings[1]


def read(answer: object, *before: Operation, service: str = REGISTER) -> Object:
    """An object, a register unless said, that was read last of all."""
    return Object(service, "k", begun=0, ended=9, history=[*before, Operation("read", None, 7, 8, answer)])
