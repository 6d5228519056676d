"""The watchdog: it logs which handler blocks the event loop, from a thread that no handler can block.

Rule: a log line has ids and places in the code, never the value of a variable. A loop that waits for events
is not blocked, however late it is.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

from progressor import metrics
from progressor.handlers.handler import fields_of, handler_of
from progressor.loggers import Logger
from progressor.model import Task
from progressor.supervision import keep_thread

log = Logger("progressor.watchdog")

Running = Callable[[asyncio.Task[Any]], Task | None]
"""A function that finds the step that runs in an asyncio task."""

# Seconds: a handler that blocks the loop for so long is logged; between two looks.
LONGEST, _LOOK = 1.0, 0.2
_MOST_FRAMES = 8
# The files of the engine and of the loop, from which a handler's code is called.
_ENGINE = (
    *(f"{Path(each.__file__ or '').parent}{os.sep}" for each in (metrics, asyncio)),
    selectors.__file__,
)


class _Block(NamedTuple):
    """One block of the loop: the time of its late sample, the task that blocks it, and its log fields."""

    due: float
    task: Task | None
    about: dict[str, object]


class Watchdog:
    """The thread that watches the running event loop.

    `late` returns its due time and its lag, in seconds.
    """

    def __init__(self, running: Running, late: Callable[[], tuple[float, float]]) -> None:
        self._running = running
        self._late = late
        self._stopped = threading.Event()
        self._block: _Block | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._stopped.clear()
        keep_thread("watchdog", self._run, until=self._stopped)

    def stop(self) -> None:
        self._stopped.set()

    def over(self, due: float, seconds: float) -> None:
        """Log the end of a block, if one was logged: the sample due at `due` came `seconds` late.

        On the loop.
        """
        block = self._block
        if block is not None and block.due == due:
            self._block = None
            message = "event loop was blocked" if block.task is None else "handler blocked the event loop"
            log.warning(message, extra=block.about | {"seconds": round(seconds, 1)})

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK):
            due, seconds = self._late()
            if seconds >= LONGEST and (self._block is None or self._block.due != due):
                self._name(due, seconds)

    def _name(self, due: float, seconds: float) -> None:
        running = asyncio.current_task(self._loop)
        task = None if running is None else self._running(running)
        places = self._places()
        if task is None and not places:
            return
        about: dict[str, object] = {
            "at": places[0] if places else None,
            "stack": places[::-1][:_MOST_FRAMES],
        }
        message = "event loop is blocked"
        if task is not None:
            about |= fields_of(task) | {"handler": handler_of(task)}
            message = "handler blocks the event loop"
            metrics.LOOP_BLOCKS.labels(task.namespace).inc()
        self._block = _Block(due, task, about)
        log.warning(message, extra=about | {"seconds": round(seconds, 1)})

    def _places(self) -> list[str]:
        """Return the lines at which a handler's code stands, outermost first; none if other code runs."""
        places: list[str] = []
        for frame, line in walk_stack(sys._current_frames().get(self._thread_id)):  # noqa: SLF001 - for this
            if frame.f_code.co_filename.startswith(_ENGINE):
                return places[::-1]
            places.append(f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}")
        # No frame of the loop below: the loop waits for events, in code without Python frames.
        return []
