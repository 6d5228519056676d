"""The parcel service runs its own tests with the test kit, as its readers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import postgres

ROOT = Path(__file__).parents[2]
BOUND_SECONDS = 100


def test_the_tests_of_the_parcel_service_pass(server: str) -> None:
    """In a run of pytest of their own, with the fixtures of the kit."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "examples/parcel_service"],
        cwd=ROOT,
        env=postgres.environment_of_a_run(PROGRESSOR_TEST_DATABASE_URL=server),
        timeout=BOUND_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "12 passed" in done.stdout
