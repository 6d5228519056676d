"""Prices of features and of sleepers, tiny: each case is measured and told, and the tables bear it out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.prices import sleepers
from benchmarks.prices.calls import PRICES
from benchmarks.prices.told import ToldPrices
from tests import postgres
from tests.docs.pages import ROOT


def _run(out: Path, *command: str) -> tuple[str, list[dict[str, Any]]]:
    """Run a command on a server of its own; return what it printed, and the cases that it wrote."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.prices", *command, "--json", str(out)],
        cwd=ROOT,
        env={**os.environ, **postgres.settings()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(out.read_text(encoding="utf-8"))["cases"]


def test_prices_of_calls(tmp_path: Path) -> None:
    """All ways to call, by one caller and by three, each with its round trips and its ratios."""
    tiny = ("--rounds", "1", "--seconds", "0.2", "--warm-up", "0.05")
    told, cases = _run(tmp_path / "calls.json", "calls", *tiny, "--callers", "1", "--callers", "3")
    names = [f"{callers}: {price.name}" for callers in (1, 3) for price in PRICES]
    assert {case["name"] for case in cases} == set(names)
    assert all(name in told for name in names)
    by_name = {case["name"]: case for case in cases}
    assert by_name["1: connection: psycopg"]["beside"] == "1: by hand: psycopg"
    assert by_name["1: connection: psycopg"]["ratio"]["cpu_us"] > 0
    for name, case in by_name.items():
        assert case["median"]["rate"] > 0, name
        assert ("round_trips" in case["median"]) == name.startswith("1:"), name


def test_prices_of_sleepers(tmp_path: Path) -> None:
    """Callers of both kinds, without sleepers and beside them."""
    tiny = ("--rounds", "1", "--seconds", "0.3", "--sleep", "0.2", "--sleepers", "2", "--processes", "3")
    told, cases = _run(tmp_path / "sleepers.json", "sleepers", *tiny)
    expected = sleepers.besides([2], [3])
    assert len(expected) == 6
    assert {case["name"] for case in cases} == {case.name for case in expected}
    assert all(case.name in told for case in expected)
    for case in cases:
        assert (case["median"]["slept"] > 0) == (case["name"] != case["beside"])


def test_a_ratio_is_of_two_medians() -> None:
    """Beside itself a case has none."""
    rounds = {
        "none": [{"p99_ms": value} for value in (1.0, 2.0, 9.0)],
        "slow": [{"p99_ms": 3.0}] * 3,
    }
    told = ToldPrices({}, {"none": "none", "slow": "none"}, rounds)
    assert told.ratio("slow", "p99_ms") == 1.5
    assert told.ratio("none", "p99_ms") is None
    assert told.ratio("slow", "cpu_us") is None
