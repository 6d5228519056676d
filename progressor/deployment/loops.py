"""The event loop that the command line serves with, and that everything is measured on.

Rule: the collector of cyclic garbage is set for such a process here as well. An engine in a process of
somebody else's leaves both alone.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Steps that run at once hold some dozen objects each. After each 700 new ones, Python's own bound, it would
# look for garbage among them, and find none: what a step leaves behind goes when nobody holds it any more.
_YOUNG = 10_000


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; None: asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def serving() -> Iterator[asyncio.Runner]:
    """A runner on that loop; as long as it runs, the collector has little to look at."""
    with _spared(), asyncio.Runner(loop_factory=new_loop()) as runner:
        yield runner


@contextmanager
def _spared() -> Iterator[None]:
    """What is there by now, modules above all, is no garbage later; what is new is looked at less often."""
    if sys.implementation.name != "cpython":
        yield
        return
    young, *older = before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # 0: whoever started this process has switched it off.
    gc.set_threshold(max(young, _YOUNG) if young else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
