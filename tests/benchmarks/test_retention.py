"""What retention costs, tiny: both programs still run, and tell their figures."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import postgres
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ("beside", "--tasks", "2000", "--pairs", "1", "--seconds", "1", "--rate", "100000"),
            ("2,000 old tasks", "| medians of 1 pairs |", "| rows deleted a second |"),
        ),
        (("year", "--days", "32", "--pause", "0"), ("autovacuum on", "| 30 |", "| 32 |")),
        (("year", "--days", "3", "--pause", "0", "--vacuum-days", "2"), ("autovacuum off", "| 3 |")),
    ],
    ids=["beside", "year", "lagging"],
)
def test_what_retention_costs(command: tuple[str, ...], told: tuple[str, ...]) -> None:
    """On a server of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.retention", *command],
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for text in told:
        assert text in ran.stdout
