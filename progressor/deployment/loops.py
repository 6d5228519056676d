"""The event loop that the command line serves with, and that everything is measured on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; None: asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
