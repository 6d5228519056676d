"""Slots, in which chains of steps run."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from progressor import metrics
from progressor.handlers.handler import handler_of
from progressor.handlers.running.waits import call_in
from progressor.loggers import Logger
from progressor.model import Task
from progressor.supervision import watched

log = Logger("progressor.pool")

# Processes; a log line about steps that are given up names no more of them.
_MOST_NAMED = 20


class Slot:
    """A worker's room for one chain of steps.

    `goes_on`: the chain may go on with the next task of its process. `hung`: the task whose sync handler
    runs on in its thread after the step; it keeps the slot until it returns. `unsaved_bytes`: the size of
    its result between decision and save. `entered`: the group that its process has entered.
    """

    __slots__ = ("entered", "goes_on", "hung", "unsaved_bytes")

    def __init__(self, *, goes_on: bool = True) -> None:
        self.goes_on = goes_on
        self.hung: tuple[Task, Future[Any]] | None = None
        self.unsaved_bytes = 0
        self.entered: int | None = None


class _Entry:
    """A claim or request, under way within its block."""

    __slots__ = ("_all",)

    def __init__(self, of: set[_Entry]) -> None:
        self._all = of

    def __enter__(self) -> None:
        self._all.add(self)

    def __exit__(self, *_: object) -> None:
        self._all.discard(self)


class UnderWay:
    """The claims and requests that may yet put tasks into the hands of this OS process."""

    def __init__(self) -> None:
        self._entries: set[_Entry] = set()

    def entry(self) -> _Entry:
        """Return a block of one of them; its tasks are in chains of steps at the end."""
        return _Entry(self._entries)

    @property
    def now(self) -> frozenset[object]:
        """The claims and requests that have not ended."""
        return frozenset(self._entries)


class Slots(ABC):
    """The slots of a pool, and the only place that counts them.

    `free` is the size less the slots that are taken, plus those that are lent. It is below zero while more
    are taken than there are. Those that `hung` counts are taken too.
    """

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self.hung = 0
        """Slots of sync handlers that run on after their steps."""
        self.lent = 0
        """Slots that others use while what has reserved them waits."""
        self.claims = UnderWay()

    def show(self, namespace: str) -> None:
        """Show in the metrics how many slots are busy, free and hung."""
        slots = partial(metrics.SLOTS.labels, namespace)
        slots("busy").set_function(lambda: self.size - self.free - self.hung)
        # Below zero while slots are lent to processes for which steps wait.
        slots("free").set_function(lambda: max(0, self.free))
        slots("hung").set_function(lambda: self.hung)

    def hide(self, namespace: str) -> None:
        """Show nothing any more."""
        for state in ("busy", "free", "hung"):
            metrics.SLOTS.remove(namespace, state)

    @property
    def is_unused(self) -> bool:
        """Return whether nothing has a slot but handlers that hang."""
        return self.free + self.hung - self.lent >= self.size

    def take(self) -> None:
        """Take a slot; if none is free, `free` goes below zero."""
        self.free -= 1

    def release(self, slots: int = 1) -> None:
        """Give slots back."""
        self.free += slots
        self.slots_changed()

    @contextmanager
    def lending_slot(self) -> Iterator[None]:
        """Lend a slot that was taken; it is taken back at the end, though others may still use it."""
        self.lent += 1
        self.release()
        try:
            yield
        finally:
            self.lent -= 1
            self.take()

    def keep_for_hung(self, task: Task, thread: Future[Any]) -> None:
        """Keep the slot of a sync handler that runs on after its step, until it returns."""
        self.hung += 1
        self.slots_changed()
        about = log_hung(task, hung=self.hung, slots=self.size)
        loop = asyncio.get_running_loop()
        returned = watched("step", self._returned)
        thread.add_done_callback(watched("step", lambda _: call_in(loop, returned, about)))

    def _returned(self, about: dict[str, Any]) -> None:
        self.hung -= 1
        log.warning("hung handler returned, its slot is free", extra={**about, "hung": self.hung})
        self.release()

    @abstractmethod
    def slots_changed(self) -> None:
        """Go on with what waits for slots."""


class Reservation:
    """The slots of a claim; `left` are those that no step has got yet."""

    __slots__ = ("left",)

    def __init__(self, slots: int) -> None:
        self.left = slots

    def take(self) -> None:
        """Give one slot to a step, which gives it back to the pool."""
        self.left -= 1


def log_hung(task: Task, *, hung: int, slots: int) -> dict[str, Any]:
    """Log that a sync handler runs on after its step, and that `hung` of the `slots` hang by now.

    Return the fields of its task, for later lines.
    """
    about = {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "handler": handler_of(task),
    }
    log.warning(
        "sync handler hangs, its slot is lost until it returns",
        extra={**about, "hung": hung, "slots": slots},
    )
    if hung >= slots:
        log.error(
            "all slots hang: this worker runs nothing more of the namespace",
            extra={"namespace": task.namespace, "slots": slots},
        )
    return about


def log_given_up(namespace: str, processes: list[str]) -> None:
    """Log that a stopping pool gives up the steps on these processes; without any, the claims it repeats.

    A claim whose connection was lost may have been committed: it is repeated to know what it has claimed.
    """
    if not processes:
        log.warning(
            "claims and requests given up, a zombie collector will take what they may have begun",
            extra={"namespace": namespace},
        )
        return
    log.warning(
        "steps given up, a zombie collector will take them",
        extra={"namespace": namespace, "steps": len(processes), "processes": processes[:_MOST_NAMED]},
    )
