"""The sign of life of a worker process: one row in `workers`, renewed from a thread of its own.

Rule: nothing that a handler does to the event loop can stop the heart; only the death or the freezing of
the process can. The same thread measures how late the loop is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from progressor import metrics
from progressor.errors import StorageUnavailable
from progressor.storage.beats import Beats

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
        self._thread = threading.Thread(target=self._run, name="progressor heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Register the worker; it must be seen before it claims anything."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._beats.beat, self._free_slots())
        self._thread.start()

    async def stop(self, *, leave: bool) -> None:
        """End the thread; `leave` deletes the row, otherwise what still runs waits for the collector."""
        self._leaves = leave
        self._stopped.set()
        await asyncio.to_thread(self._thread.join, _LAST_BEAT)
        if self._thread.is_alive():
            # It waits for a server that says nothing. It is a daemon: nobody has to wait for it.
            log.warning("worker not deregistered yet, its row will age")

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(min(self._interval, _AGAIN) if failing else self._interval):
            self._measure_lag()
            try:
                self._beats.beat(self._free_slots())
            except StorageUnavailable as error:
                if not failing:
                    log.warning("heartbeat failed, going on", extra={"error": str(error)})
                failing = True
            else:
                failing = False
        if self._leaves:
            try:
                self._beats.leave()
            except StorageUnavailable:
                log.warning("worker not deregistered, its row will age")
        self._beats.close()

    def _measure_lag(self) -> None:
        asked = time.monotonic()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: metrics.LOOP_LAG.observe((time.monotonic() - asked) * 1000))
