"""The bells of a pool: an alarm is heard once its timer is due, whatever the clock of the event loop is."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from progressor.worker.bells import Bells


@pytest.mark.parametrize("milliseconds", [1, 5, 30])
async def test_no_alarm_is_heard_before_its_timer_is_due(
    monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    """That of uvloop has whole milliseconds: by such a clock it would be heard too early."""
    loop, lags = asyncio.get_running_loop(), [0.05]
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() - (lags.pop() if lags else 0.0))
    bells, delay = Bells(timedelta(hours=1)), timedelta(milliseconds=milliseconds)
    due = time.monotonic() + delay.total_seconds()
    bells.expect(delay)
    async with asyncio.timeout(20):
        while "timers" not in bells.rung:
            await bells.next()
    assert time.monotonic() >= due
