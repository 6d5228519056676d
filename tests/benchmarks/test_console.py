"""The benchmark of the console, tiny: it still fills a database, and asks for all pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import postgres
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("options", "told"),
    [((), "| Overview, seen in part |"), (("--combinations", "--only", "plan=gold"), "| {'metadata'")],
    ids=["pages", "combinations"],
)
def test_how_long_pages_take(options: tuple[str, ...], told: str) -> None:
    """Each page answers; how fast is not judged."""
    sizes = ("--processes", "2000", "--tasks", "2", "--requests", "1")
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.console", *sizes, *options],
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: slower than a page should be.
    assert ran.returncode in (0, 1), ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    assert told in ran.stdout
