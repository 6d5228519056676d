"""The lag of the event loop: a handler that blocks it shows."""

import asyncio
import time

from prometheus_client import REGISTRY

from progressor.node import loop_lag
from progressor.node.loop_lag import LoopLag
from tests.support import eventually


def longest() -> float:
    return REGISTRY.get_sample_value("progressor_loop_lag_max_ms") or 0.0


def samples() -> float:
    return REGISTRY.get_sample_value("progressor_loop_lag_ms_count") or 0.0


async def test_a_blocked_loop_shows() -> None:
    """While it lasts, to whoever scrapes from another thread, and for a while afterwards."""
    lag, before = LoopLag(), samples()
    lag.start()
    await asyncio.sleep(0)
    scraped: list[float] = []
    deadline = time.monotonic() + 30
    while not scraped or scraped[-1] < 100:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251 - the point of it
        scraped.append(longest())
    await eventually(lambda: samples() > before, "sampled")
    assert longest() >= 100
    await lag.stop()
    assert longest() == 0


async def test_the_longest_of_the_last_minute() -> None:
    """A short lag does not hide the longer one before it, until that is a minute old."""
    lag = LoopLag()
    for now, late in ((0.0, 5.0), (1.0, 700.0), (2.0, 3.0), (3.0, 9.0)):
        lag._remember(now, late)
    assert lag.longest() == 700
    lag._remember(1.0 + loop_lag._REMEMBERED, 1.0)
    assert lag.longest() == 700
    lag._remember(1.5 + loop_lag._REMEMBERED, 1.0)
    assert lag.longest() == 9
