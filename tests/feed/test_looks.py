"""A reader that pauses is ended by a cancellation, whenever it comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from progressor.client.feed.looks import Looks


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_beside_a_hint(turns: int) -> None:
    """It is not swallowed: a reader that went on would never end."""
    rung = asyncio.Event()
    node: Any = SimpleNamespace(lookout=SimpleNamespace(rung=rung), follow_feed=lambda: None)
    pausing = asyncio.create_task(Looks(node).pause(None))
    for _ in range(3):
        await asyncio.sleep(0)
    rung.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    was_under_way = pausing.cancel()
    await asyncio.gather(pausing, return_exceptions=True)
    assert pausing.cancelled() is was_under_way
