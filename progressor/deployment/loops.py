"""The event loop of commands that serve, and of all benchmarks.

Rule: the collector of cyclic garbage is tuned here too, for OS processes of the command line. An engine in
a user's process leaves both alone.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# New objects between two collections. Concurrent steps hold some dozen each. At Python's own 700 the
# collector would search them often and find nothing: reference counts free what a step leaves behind.
_YOUNG = 10_000


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loops if it is installed; None: asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def serving() -> Iterator[asyncio.Runner]:
    """Yield a runner on that loop; in the block the garbage collector runs seldom and on little."""
    with _spared(), asyncio.Runner(loop_factory=new_loop()) as runner:
        yield runner


@contextmanager
def _spared() -> Iterator[None]:
    """Exempt all present objects (mostly modules) from collection, and collect new ones less often."""
    if sys.implementation.name != "cpython":
        yield
        return
    young, *older = before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # 0 means that the collector is switched off: it stays so.
    gc.set_threshold(max(young, _YOUNG) if young else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
