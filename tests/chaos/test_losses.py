"""Faults that lose commits, and what they excuse."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.chaos.case import Case
from benchmarks.chaos.checks import sums_exact
from benchmarks.chaos.evidence import Account, Asked
from benchmarks.chaos.ledger import ACCOUNTS, STEADY
from benchmarks.chaos.losses import LOSSES, Lost
from benchmarks.chaos.walks import SweptRows
from progressor import TaskStatus
from tests.chaos.test_chaos import BOUND_SECONDS, chaos

pytestmark = pytest.mark.timeout(BOUND_SECONDS + 60)
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


@pytest.mark.parametrize(
    ("status", "balance", "findings"), [("finished", 70, 0), ("error", 100, 0), ("finished", 100, 1)]
)
def test_a_lost_refusal_counts_as_it_was_done_again(status: str, balance: int, findings: int) -> None:
    """What waited in the copy is run once more there, though its client was refused, and asks no more."""
    withdraw = Asked(
        "w", "call", ACCOUNTS, "a", "withdraw", {"amount": 30}, refusals=["insufficient funds"]
    )
    opened = Asked("o", "start", ACCOUNTS, "a", None, {"balance": 100}, answers=[{"nonce": "n"}])
    process: Any = SimpleNamespace(process_id="a", state={"balance": balance, "ticks": 0})
    trace: list[Any] = [
        SimpleNamespace(idempotency_key="o", task_id=1, status=TaskStatus.FINISHED),
        SimpleNamespace(idempotency_key="w", task_id=2, status=TaskStatus(status)),
    ]
    clients: Any = SimpleNamespace(asked={"o": opened, "w": withdraw})
    books: Any = SimpleNamespace(accounts={"a": Account(process, trace, [], SweptRows())})
    moment = datetime(2024, 3, 1, tzinfo=UTC)
    case = Case(clients, books, Lost(keys={("a", "w")}), moment, moment)
    assert len(list(sums_exact(case))) == findings
