"""Faults that lose commits, and what they excuse."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chaos.ledger import ACCOUNTS, STEADY
from benchmarks.chaos.losses import LOSSES, Lost
from tests.chaos.test_chaos import chaos

DONE = ("finished", b'{"nonce": "n"}')
WAITING = ("waiting", None)


def test_commits_are_lost_and_nobody_is_told_what_is_not_so(tmp_path: Path) -> None:
    """A standby that lagged is promoted, a backup restored: no stranger's answer, no stranger removed."""
    named = [f"--fault={kind}" for kind in LOSSES]
    status, report = chaos(tmp_path / "report.json", "--seconds", "1", "--pause", "0.5", *named)
    findings = {v["name"]: v["findings"] for v in report["verdicts"] if v["findings"]}
    assert (findings, status) == ({}, 0)
    assert {recovery["kind"] for recovery in report["recoveries"]} == set(LOSSES)
    assert report["figures"]["requests lost"] >= 50
    assert report["figures"]["told that they were lost"] >= 1


def test_what_a_copy_does_not_have_is_lost() -> None:
    """Requests that it has not at all, or not so far; processes; and steps of the steady worker."""
    lost = Lost()
    has = [(ACCOUNTS, "a", "both", *DONE, 1), (ACCOUNTS, "a", "behind", *WAITING, 2)]
    had = [
        (ACCOUNTS, "a", "both", *DONE, 1),
        (ACCOUNTS, "a", "behind", *DONE, 2),
        (ACCOUNTS, "b", "gone", *WAITING, 3),
        (STEADY, "s", "4", "finished", None, 4),
    ]
    assert lost.take(has, had) == {"s"}
    assert lost.keys == {("a", "behind"), ("b", "gone"), ("s", "4")}
    assert dict(lost.answers) == {("a", "behind"): [{"nonce": "n"}]}
    assert lost.processes == {"b", "s"}
