"""Failures of one kind are one group."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from progressor.client.failure_groups import (
    FailureGroup,
    bulk_filter_of,
    grouped,
    normalised,
    pattern_of,
)
from progressor.monitoring import Failed

T0 = datetime(2040, 1, 1, tzinfo=UTC)
ONE = Failed("shop", "broken", "p1", "call pay", "KeyError: 'invoice-17'", T0, False)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("KeyError: 'invoice-17'", "KeyError: '…'"),
        ('no plan "pro" in 12.5 s', "no plan '…' in <n> s"),
        ("order 3f2b8c1e-0000-4a4a-9999-0123456789ab is gone", "order <id> is gone"),
        (
            "zombie detected: worker 0f3a9c4e5b6d7a81 was last seen at 2026-02-28 03:12:09.123+00:00",
            "zombie detected: worker <id> was last seen at <n>-<n>-<n> <n>:<n>:<n>+<n>:<n>",
        ),
        ("zombie detected: worker 1234567890123456 is gone", "zombie detected: worker <id> is gone"),
        ("commit 3f2b8c1e of a decade at 10.0.0.7:5432", "commit <id> of a decade at <n>:<n>"),
        ("at 0x7f3a1c of\n  Money", "at <n> of … Money"),
        ("it says 'two\nlines'\n", "it says '…' … "),
        ("x" * 300, "x" * 199 + "…"),
        ("x" * 197 + " 12345 was wrong", "x" * 197 + " …"),
        ("x" * 195 + " 12345 was wrong", "x" * 195 + " <n>…"),
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
        "shop", "broken", "call pay", "KeyError: '…'", 2, False, T0, later.at, "p2", later.error
    )
    assert [(each.count, each.status, each.handler, each.at_least) for each in rest] == [
        (1, "retrying", "call pay", True),
        (1, "broken", "timeout", False),
    ]


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("KeyError: 'invoice-17'", "KeyError: %"),
        ("order 3f2b8c1e-0000-4a4a-9999-0123456789ab lacks 12.5 %", r"order % lacks % \%"),
        (r"no_such\path", r"no\_such\\path"),
        ("x" * 300, "x" * 199 + "%"),
        ("x" * 198 + "12345 was wrong", "x" * 198 + "%"),
        ("1 error for Card\nnumber\n  It is short", "% error for Card%number%It is short"),
        ("it ends\n", "it ends%"),
    ],
)
def test_a_bulk_finds_the_messages_of_a_group(error: str, pattern: str) -> None:
    """The pattern has % where a group leaves something out, and all else as it stands."""
    assert pattern_of(normalised(error)) == pattern


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        ("call pay", "pay"),
        ("notify pay", "pay"),
        ("timeout dunning", "timeout dunning"),
        ("timeout", "timeout"),
        ("init", "init"),
        ("put", None),
    ],
)
def test_a_bulk_names_the_handler_of_a_group(handler: str, name: str | None) -> None:
    """A call by its name, other handlers as they are shown, and none for a process put as broken."""
    assert bulk_filter_of(handler) == name
