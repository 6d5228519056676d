"""Failures of one kind are one group."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from progressor.client.failures import FailureGroup, grouped, normalised
from progressor.storage import Failed

T0 = datetime(2040, 1, 1, tzinfo=UTC)
ONE = Failed("shop", "broken", "p1", "call pay", "KeyError: 'invoice-17'", T0, False)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("KeyError: 'invoice-17'", "KeyError: '…'"),
        ('no plan "pro" in 12.5 s', "no plan '…' in <n> s"),
        ("order 3f2b8c1e-0000-4a4a-9999-0123456789ab is gone", "order <id> is gone"),
        ("at 0x7f3a1c of\n  Money", "at <n> of Money"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_what_differs_is_left_out(error: str, message: str) -> None:
    """Numbers, ids and quoted values; a message is one line."""
    assert normalised(error) == message


def test_groups() -> None:
    """Each counts its failures, from the first to the last, its example; the largest comes first."""
    later = replace(ONE, process_id="p2", error="KeyError: 'invoice-18'", at=T0 + timedelta(hours=1))
    other = replace(ONE, handler="timeout")
    retried = replace(ONE, status="retrying", at_least=True)
    first, *rest = grouped([other, later, ONE, retried])
    assert first == FailureGroup(
        "shop", "broken", "call pay", "KeyError: '…'", 2, False, T0, later.at, "p2"
    )
    assert [(each.count, each.status, each.handler, each.at_least) for each in rest] == [
        (1, "retrying", "call pay", True),
        (1, "broken", "timeout", False),
    ]
