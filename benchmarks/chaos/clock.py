"""A wrong clock for one process: everything in Python that tells the time of day is off.

Clocks that measure durations (`time.monotonic`) are left alone, as they are by a wrong wall clock.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import time
from typing import Any


def set_wrong(seconds: float) -> None:
    """Move the wall clock of this process; must come before anything else is imported."""
    right, right_ns = time.time, time.time_ns  # noqa: TID251 - to be made wrong
    offset = dt.timedelta(seconds=seconds)

    def now(_cls: type[dt.datetime], tz: dt.tzinfo | None = None) -> dt.datetime:
        moment = dt.datetime.fromtimestamp(right(), dt.UTC) + offset
        return moment.astimezone(tz) if tz is not None else moment.astimezone().replace(tzinfo=None)

    def utcnow(cls: type[dt.datetime]) -> dt.datetime:
        return now(cls, dt.UTC).replace(tzinfo=None)

    time.time = lambda: right() + seconds  # noqa: TID251
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    # A class made in C takes no assignment; its dict does, and then the caches must be told.
    methods: Any = gc.get_referents(dt.datetime.__dict__)[0]
    methods["now"] = classmethod(now)
    methods["utcnow"] = classmethod(utcnow)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))
    difference = abs((dt.datetime.now(dt.UTC) - offset).timestamp() - right())
    if difference > 1:
        raise RuntimeError("the clock could not be set wrong")
