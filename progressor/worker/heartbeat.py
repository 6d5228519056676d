"""The heartbeat of a process: one row in `workers`, renewed from a thread of its own.

Rule: nothing that a handler does to the event loop can stop it; only the death or the freezing of the
process can. Its renewals are the evidence on which a zombie collector of this process judges other workers.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from functools import partial
from typing import Any

from progressor.config import EngineOptions
from progressor.errors import ProgressorError, StorageUnavailable
from progressor.loggers import Logger
from progressor.node.node import Node
from progressor.node.witness import Witness
from progressor.storage import Beats, RenewedRow
from progressor.supervision import in_thread, keep_thread

log = Logger("progressor.heartbeat")

# Seconds: from a failed beat to the next, soon because a lease is short; and how long `stop` waits for the
# thread.
_AGAIN, _LAST_BEAT = 1.0, 5.0
_MINUTE = 60.0


class LastMinute:
    """The growth of named counts within the last minute; counts never shrink."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def of(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        """Return how much each count grew in the last minute, or since the first call; `now` in seconds.

        If the latest call that is a minute old is older than that, its growth is scaled down to a minute.
        """
        self._seen.append((now, dict(counts)))
        while len(self._seen) > 1 and self._seen[1][0] <= now - _MINUTE:
            self._seen.popleft()
        at, before = self._seen[0]
        part = _MINUTE / max(_MINUTE, now - at)
        return {name: round((count - before.get(name, 0)) * part) for name, count in counts.items()}


class Heartbeat:
    """The thread that beats every `interval` and hands each beat to `witness`.

    It calls `free_slots` and `performed` (steps since the start), both by namespace. `patience` bounds the
    tries of the first beat. `borrow` renews the row where the thread has no connection of its own.
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
        borrow: Callable[[Mapping[str, Any]], Coroutine[Any, Any, RenewedRow]] | None = None,
    ) -> None:
        self._beats = beats
        self._witness = witness
        self._interval = interval.total_seconds()
        self._again = min(self._interval, _AGAIN)
        self._patience = patience.total_seconds()
        self._free_slots = free_slots
        self._performed = performed
        self._borrow = borrow
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_minute = LastMinute()
        self._stopped = threading.Event()
        self._leaves = False
        self._thread: threading.Thread | None = None
        self._renewed_at: float | None = None

    async def start(self) -> None:
        """Register the process, or raise the error of its first beat; a worker claims nothing before."""
        self._loop = asyncio.get_running_loop()
        registered: Future[None] = Future()
        registered.set_running_or_notify_cancel()
        self._thread = keep_thread("heartbeat", partial(self._run, registered), until=self._stopped)
        try:
            await asyncio.wrap_future(registered)
        except BaseException:
            # The caller never stops what did not start: the thread ends by itself and deletes its row.
            self._leaves = True
            self._stopped.set()
            raise

    async def stop(self, *, leave: bool) -> None:
        """End the thread.

        With `leave` it deletes the row; else a zombie collector takes what still runs.
        """
        self._leaves = leave
        self._stopped.set()
        if self._thread is None:
            return
        await in_thread("heartbeat", partial(self._thread.join, _LAST_BEAT))
        if self._thread.is_alive():
            # The thread waits for a server that does not answer. It is a daemon: Python exits without it.
            log.warning("worker not deregistered yet, its row will age")

    def _run(self, registered: Future[None]) -> None:
        if not registered.done():
            try:
                self._register()
            except BaseException as error:  # noqa: BLE001 - `start` raises it
                self._beats.close()
                registered.set_exception(error)
                return
            registered.set_result(None)
        failing = False
        while not self._stopped.wait(self._again if failing else self._interval):
            try:
                self._beat()
            except ProgressorError:
                # Beats logs the outage.
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
        """Send the first beat; repeat it until the patience ends, unless PostgreSQL denies it for good."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return self._beat()
            except StorageUnavailable as error:
                if error.is_denied or time.monotonic() >= until or self._stopped.wait(self._again):
                    raise

    def _beat(self) -> None:
        steps = self._last_minute.of(self._performed(), time.monotonic())
        beat = self._beats.beat(self._free_slots(), steps, borrow=self._borrowed)
        self._renewed_at = beat.done
        self._witness.saw(beat)

    @property
    def silence(self) -> float:
        """The seconds since the row was last renewed; 0 before the first time. Any thread."""
        return 0.0 if self._renewed_at is None else time.monotonic() - self._renewed_at

    def _borrowed(self, row: Mapping[str, Any]) -> RenewedRow | None:
        """Renew the row on a connection of the engine, if its loop is free for that."""
        if self._borrow is None or self._loop is None or self._stopped.is_set():
            return None
        renewal = self._borrow(row)
        try:
            renewing = asyncio.run_coroutine_threadsafe(renewal, self._loop)
        except RuntimeError:
            # The loop is closed: the engine is over, and did not wait for this thread.
            renewal.close()
            return None
        try:
            return renewing.result(self._interval)
        except (TimeoutError, CancelledError, ProgressorError):
            renewing.cancel()
            return None


def heartbeat_on(
    node: Node,
    options: EngineOptions,
    witness: Witness,
    *,
    namespaces: Mapping[str, timedelta],
    functions: Mapping[str, Sequence[str]] | None = None,
    free_slots: Callable[[], Mapping[str, int]],
    performed: Callable[[], Mapping[str, int]],
) -> Heartbeat:
    """Return the heartbeat of this process; `namespaces` have their step_timeouts, and their functions.

    It goes past a pooler where that is possible: one whose sessions are all in use must not silence it.
    """
    beats = Beats(
        node.dsn,
        direct_dsn=node.direct_dsn,
        worker_id=node.node_id,
        host=socket.gethostname(),
        namespaces=namespaces,
        lease_age=options.lease_age,
        functions=functions,
        schema=options.database_schema,
        outage=node.storage.outage,
        session_state=options.session_state,
    )
    heartbeat = Heartbeat(
        beats,
        interval=options.heartbeat_interval,
        patience=options.patience,
        free_slots=free_slots,
        performed=performed,
        witness=witness,
        borrow=node.storage.beat,
    )
    node.silence = lambda: heartbeat.silence
    return heartbeat
