"""When a worker has done its share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from progressor.deployment import retirement as recycling_module
from progressor.deployment.retirement import Recycling

_DRAWN = 200


class _Worker:
    performed = 0


@asynccontextmanager
async def _worker() -> AsyncIterator[_Worker]:
    yield _Worker()


def test_limits_are_drawn_below_what_was_said() -> None:
    """Never above it, not far below it, and not the same for all."""
    drawn = [Recycling(max_steps=1000, max_age=timedelta(hours=1)) for _ in range(_DRAWN)]
    assert all(800 <= each.steps <= 1000 and 2880 <= each.seconds <= 3600 for each in drawn)
    assert len({each.steps for each in drawn}) > 1
    assert len({each.seconds for each in drawn}) > 1


def test_no_limit_is_no_limit_and_the_smallest_is_one() -> None:
    """A worker runs at least one step."""
    never = Recycling(max_steps=None, max_age=None)
    assert (never.steps, never.seconds) == (math.inf, math.inf)
    assert {Recycling(max_steps=1, max_age=None).steps for _ in range(_DRAWN)} == {1}


async def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the limit is reached, and not before."""
    monkeypatch.setattr(recycling_module, "_LOOKS", 0.001)
    said = asyncio.Event()
    async with Recycling(max_steps=10, max_age=timedelta(hours=1)).of(_worker(), said.set) as worker:
        worker.performed = 7
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(said.wait(), 0.05)
        worker.performed = 10
        await asyncio.wait_for(said.wait(), 30)


async def test_who_leaves_before_is_not_told() -> None:
    """Nothing is left behind."""
    said: list[str] = []
    async with Recycling(max_steps=10, max_age=None).of(_worker(), lambda: said.append("spent")):
        pass
    assert said == []
    assert len(asyncio.all_tasks()) == 1
