"""A worker that starts says in what it differs from those that serve its namespace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from progressor import Engine, Namespace, Process, Retention

MONTH, YEAR = (Retention(tasks=timedelta(days=days)) for days in (30, 365))


def billing(retention: Retention, *, calls: tuple[str, ...] = ()) -> Namespace[Any]:
    made = Namespace("billing", retention=retention)

    async def serve(process: Process[Any]) -> None: ...

    for name in calls:
        made.call(name=name)(serve)
    return made


def differences(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    return [vars(each)["differ"] for each in caplog.records if "in another version" in each.message]


@pytest.mark.parametrize(
    ("other", "differ"),
    [
        (billing(MONTH, calls=("pay",)), []),
        (billing(YEAR, calls=("pay",)), [["retention"]]),
        (billing(MONTH, calls=("pay", "refund")), [["calls"]]),
    ],
)
async def test_a_worker_beside_others(
    dsn: str, caplog: pytest.LogCaptureFixture, other: Namespace[Any], differ: list[list[str]]
) -> None:
    """One line, for a namespace in which anything differs."""
    async with Engine(dsn, [billing(MONTH, calls=("pay",))]), Engine(dsn, [other]):
        assert differences(caplog) == differ


async def test_a_worker_that_is_alone(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """A deploy that stops all and starts all says nothing."""
    for retention in (MONTH, YEAR):
        async with Engine(dsn, [billing(retention)]):
            pass
    assert differences(caplog) == []
