"""What the comparison with Restate does by itself: it needs neither npm nor Restate here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.beside_restate import RESTATE, Parties, System, cpu_with_children, told
from benchmarks.engine_in_api import APART, TOGETHER
from tests.docs.pages import ROOT


def test_a_missing_server_is_named(tmp_path: Path) -> None:
    """Before anything is started, with how to get it."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.beside_restate"],
        cwd=ROOT,
        env={**os.environ, "PROGRESSOR_BENCH_RESTATE": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "restate-server is missing: npm install @restatedev/restate-server" in ran.stderr


def test_keyed_calls_of_progressor(dsn: str) -> None:
    """Each figure of each way to serve, tiny, through a real API and worker."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.beside_restate", "--without-restate"),
            *("--rounds", "2", "--calls", "16", "--warm-up", "8"),
        ],
        cwd=ROOT,
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    systems, *lines = ran.stdout.splitlines()
    assert systems == f"{APART}; {TOGETHER}"
    figures = ("calls a second", "p50, ms", "p99, ms", "CPU of all parties for a call, ms")
    assert [line.partition(": ")[0] for line in lines] == [
        f"{clients}, {figure}" for clients in ("1 client", "32 clients") for figure in figures
    ]


def test_figures_are_medians_with_ratios_of_the_same_round() -> None:
    """Rounds are paired: a slow minute is slow for both."""
    found = {
        RESTATE: [{"p50": 2.0}, {"p50": 4.0}, {"p50": 8.0}],
        "x": [{"p50": 1.0}, {"p50": 2.0}, {"p50": 1.0}],
    }
    assert told(found) == ["Restate; x", "p50: 4.00 (x 1.00), 1.00 (x 0.50)"]


def test_cpu_of_children_counts() -> None:
    """What a child has computed is a part of its parent's, while it runs and when it is gone."""
    compute = "sum(range(20_000_000))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {compute!r}])"
    script = f"{child}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert cpu_with_children(parent.pid) > 0.1
        assert Parties(System("", "", [parent.pid], None), 0).ms(1) >= 0
        parent.communicate()
