"""The ledger under faults, in short: `benchmarks.chaos` as CI runs it.

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

from benchmarks.chaos.defects import DEFECTS
from tests import postgres
from tests.model.profiles import DEEP

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 300
# The bound is that of the run: its report says more than the end of a test.
pytestmark = pytest.mark.timeout(BOUND_SECONDS + 60)


def chaos(report: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run it; its exit status and its report."""
    command = [sys.executable, "-m", "benchmarks.chaos", f"--json={report}", *options]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        timeout=BOUND_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stderr
    return done.returncode, json.loads(report.read_text())


def test_the_ledger_is_exact_after_faults(tmp_path: Path) -> None:
    """Whatever was killed, frozen, cut and restarted: nothing lost, nothing doubled, nothing stuck."""
    status, report = chaos(tmp_path / "report.json", "--quick", "--seed", "4")
    findings = {v["name"]: v["findings"] for v in report["verdicts"] if v["findings"]}
    assert findings == {}
    assert status == 0
    assert report["faults"] >= 10


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_fits_into_the_code(defect: str) -> None:
    """Each edits statements and functions as they are now."""
    command = [sys.executable, "-c", f"from benchmarks.chaos.defects import build_in; build_in({defect!r})"]
    subprocess.run(command, cwd=ROOT, timeout=BOUND_SECONDS, check=True)


@pytest.mark.skipif(not DEEP, reason="minutes: only with HYPOTHESIS_PROFILE=deep")
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_harness_finds_a_defect(tmp_path: Path, defect: str) -> None:
    """A copy that is broken on purpose is found out."""
    status, report = chaos(tmp_path / "report.json", "--seconds", "60", "--seed", "3", "--defect", defect)
    assert (status, report["holds"]) == (0, False)
