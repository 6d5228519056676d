"""The event loop of tests of the engine and the feed: that on which commands serve, whose timers differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from progressor.deployment import loops


@pytest.hookimpl(optionalhook=True)  # older releases of pytest-asyncio have none
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run asynchronous tests on uvloop, if it is installed."""
    return {"serving": loops.new_loop() or asyncio.new_event_loop}
