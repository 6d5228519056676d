"""Wakes: hints to the worker that is chosen for a call that waits or a timer that is due.

Rule: a wake is a hint, sent after the commit; one piece of work wakes one worker, by its free slots.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from datetime import timedelta

from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage import Kind, LiveWorker, Signals, Storage
from progressor.supervision import Background

log = Logger("progressor.wakes")

# Seconds; after this the live workers of a namespace are read again.
_WORKERS_AGE = 2.0
_LINES = OutageLines("nobody woken, a scan will", "still nobody woken", "workers are woken again")


class Wakes:
    """The choice of the one worker to wake for new work: by chance, weighted by free slots."""

    def __init__(self, storage: Storage, signals: Signals | None, lease_age: timedelta) -> None:
        self._storage = storage
        self._signals = signals
        self._lease_age = lease_age
        self._workers: dict[str, tuple[float, list[LiveWorker]]] = {}
        self._wanted: set[tuple[str, Kind]] = set()
        self._background = Background()
        self._outage = Outage(log, _LINES)

    def wake(self, namespace: str, kind: Kind) -> None:
        if self._signals is not None and (namespace, kind) not in self._wanted:
            self._wanted.add((namespace, kind))
            self._background.begin("wake", self._wake(namespace, kind, self._signals))

    def choose(self, namespaces: Iterable[str]) -> dict[str, int]:
        """Return the worker to wake for each namespace, if it is known which live there now."""
        return {name: chosen(live) for name in namespaces if (live := self._known(name))}

    async def _wake(self, namespace: str, kind: Kind, signals: Signals) -> None:
        try:
            workers = await self._live(namespace)
        except ProgressorError as error:
            self._outage.failed(cause_of(error))
            return
        finally:
            self._wanted.discard((namespace, kind))
        self._outage.worked()
        if workers:
            signals.wake(chosen(workers), namespace, kind)

    def _known(self, namespace: str) -> list[LiveWorker]:
        now = asyncio.get_running_loop().time()
        seen_at, workers = self._workers.get(namespace, (now, []))
        return workers if now - seen_at < _WORKERS_AGE else []

    async def _live(self, namespace: str) -> list[LiveWorker]:
        workers = self._known(namespace)
        if not workers:
            now = asyncio.get_running_loop().time()
            workers = await self._storage.live_workers(namespace, self._lease_age)
            self._workers[namespace] = (now, workers)
        return workers

    async def stop(self) -> None:
        await self._background.stop()


def chosen(workers: Sequence[LiveWorker]) -> int:
    """Return the id of one of these, by chance and weighted by free slots."""
    if len(workers) == 1:
        return workers[0].worker_id
    weights = [max(worker.free_slots, 0.1) for worker in workers]
    return random.choices(workers, weights)[0].worker_id  # noqa: S311 - a spread
