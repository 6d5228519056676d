"""The sign of life of a process: one row in `workers`, renewed from a thread of its own.

Rule: nothing that a handler does to the event loop can stop the heart; only the death or the freezing of
the process can. What it renews is the evidence on which a zombie collector of this process judges others.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

from progressor.config import EngineOptions
from progressor.errors import ProgressorError, StorageUnavailable
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.storage import Beats
from progressor.supervision import keep_thread

log = Logger("progressor.heartbeat")

# After a failure the next beat comes soon: a lease is not long. In seconds, as the time for the last one.
_AGAIN, _LAST_BEAT = 1.0, 5.0
_MINUTE = 60.0


class LastMinute:
    """How much was added within the last minute to counts that only grow, by name."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def of(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        """Since the last look that is a minute old, if there is one; `now` in seconds."""
        self._seen.append((now, dict(counts)))
        while len(self._seen) > 1 and self._seen[1][0] <= now - _MINUTE:
            self._seen.popleft()
        at, before = self._seen[0]
        part = _MINUTE / max(_MINUTE, now - at)
        return {name: round((count - before.get(name, 0)) * part) for name, count in counts.items()}


class Heartbeat:
    """Beats every `interval`; `witness` is told of each beat.

    `free_slots` and `performed`, the steps since the start, are read in the thread, by namespace.
    `patience` bounds the tries of the first beat.
    """

    def __init__(
        self,
        beats: Beats,
        *,
        interval: timedelta,
        patience: timedelta,
        free_slots: Callable[[], Mapping[str, int]],
        performed: Callable[[], Mapping[str, int]],
        witness: Witness,
    ) -> None:
        self._beats = beats
        self._witness = witness
        self._interval = interval.total_seconds()
        self._again = min(self._interval, _AGAIN)
        self._patience = patience.total_seconds()
        self._free_slots = free_slots
        self._performed = performed
        self._last_minute = LastMinute()
        self._stopped = threading.Event()
        self._leaves = False
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Register the process; a worker must be seen before it claims anything."""
        registered: Future[None] = Future()
        registered.set_running_or_notify_cancel()
        self._thread = keep_thread("heartbeat", partial(self._run, registered), until=self._stopped)
        try:
            await asyncio.wrap_future(registered)
        except BaseException:
            # Nobody will stop what was not started: the thread, wherever it is, leaves nothing behind.
            self._leaves = True
            self._stopped.set()
            raise

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

    def _run(self, registered: Future[None]) -> None:
        if not registered.done():
            try:
                self._register()
            except BaseException as error:  # noqa: BLE001 - whoever starts it hears of it
                self._beats.close()
                registered.set_exception(error)
                return
            registered.set_result(None)
        failing = False
        while not self._stopped.wait(self._again if failing else self._interval):
            try:
                self._beat()
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

    def _register(self) -> None:
        """Beat for the first time; again while PostgreSQL cannot do it, until the patience ends."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return self._beat()
            except StorageUnavailable as error:
                if error.is_denied or time.monotonic() >= until or self._stopped.wait(self._again):
                    raise

    def _beat(self) -> None:
        steps = self._last_minute.of(self._performed(), time.monotonic())
        self._witness.saw(self._beats.beat(self._free_slots(), steps))


def heartbeat_on(
    node: Node,
    options: EngineOptions,
    witness: Witness,
    *,
    namespaces: Mapping[str, timedelta],
    free_slots: Callable[[], Mapping[str, int]],
    performed: Callable[[], Mapping[str, int]],
) -> Heartbeat:
    """The sign of life of this process, which serves these namespaces with these step_timeouts."""
    beats = Beats(
        node.dsn,
        worker_id=node.node_id,
        host=socket.gethostname(),
        namespaces=namespaces,
        lease_age=options.lease_age,
        schema=options.database_schema,
        outage=node.storage.outage,
        session_state=options.session_state,
    )
    return Heartbeat(
        beats,
        interval=options.heartbeat_interval,
        patience=options.patience,
        free_slots=free_slots,
        performed=performed,
        witness=witness,
    )
