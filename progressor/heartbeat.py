"""The sign of life of a worker process: one row in `workers`, renewed from a thread of its own.

Rule: nothing that a handler does to the event loop can stop the heart; only the death or the freezing of
the process can.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from progressor.errors import ProgressorError
from progressor.storage.beats import Beats
from progressor.supervision import keep_thread

log = logging.getLogger("progressor.heartbeat")

# After a failure the next beat comes soon: a lease is not long. In seconds, as the time for the last one.
_AGAIN, _LAST_BEAT = 1.0, 5.0


class Heartbeat:
    """Beats every `interval`; `free_slots` is read in the thread."""

    def __init__(
        self, beats: Beats, *, interval: timedelta, free_slots: Callable[[], Mapping[str, int]]
    ) -> None:
        self._beats = beats
        self._interval = interval.total_seconds()
        self._free_slots = free_slots
        self._stopped = threading.Event()
        self._leaves = False
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Register the worker; it must be seen before it claims anything."""
        await asyncio.to_thread(self._beats.beat, self._free_slots())
        self._thread = keep_thread("heartbeat", self._run, until=self._stopped)

    async def stop(self, *, leave: bool) -> None:
        """End the thread; `leave` deletes the row, otherwise what still runs waits for the collector."""
        self._leaves = leave
        self._stopped.set()
        if self._thread is None:
            return
        await asyncio.to_thread(self._thread.join, _LAST_BEAT)
        if self._thread.is_alive():
            # It waits for a server that says nothing. It is a daemon: nobody has to wait for it.
            log.warning("worker not deregistered yet, its row will age")

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(min(self._interval, _AGAIN) if failing else self._interval):
            try:
                self._beats.beat(self._free_slots())
            except ProgressorError:
                # The beats say themselves that PostgreSQL is not available.
                failing = True
            else:
                failing = False
        if self._leaves:
            try:
                self._beats.leave()
            except ProgressorError:
                log.warning("worker not deregistered, its row will age")
        self._beats.close()
