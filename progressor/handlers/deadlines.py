"""How long a step may run: one timer of the event loop for all steps, instead of one for each.

Rule: all steps that share a limit run out in the order in which they began, so only the oldest is watched.
A step sets no timer and cancels none, which is a good part of what a small step costs.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType

from progressor.supervision import watched


class Deadlines:
    """The steps that run now, the oldest first, and the timer that waits for the oldest."""

    def __init__(self, limit: timedelta) -> None:
        self.seconds = limit.total_seconds()
        self._running: dict[Deadline, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_time = watched("deadlines", self._look)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of the first step. To ask which one runs is a system call in Python 3.11."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def begin(self, deadline: Deadline) -> None:
        """Count the time of this step from now on."""
        loop = self.loop
        at = loop.time() + self.seconds
        self._running[deadline] = at
        if self._timer is None:
            self._timer = loop.call_at(at, self._on_time)

    def end(self, deadline: Deadline) -> None:
        """Count it no more: the step has ended, or its time has."""
        self._running.pop(deadline, None)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._running:
            oldest = next(iter(self._running))
            at = self._running[oldest]
            if at > loop.time():
                self._timer = loop.call_at(at, self._on_time)
                return
            self.end(oldest)
            oldest.expire()


class Deadline:
    """A scope of the present task like `asyncio.timeout`, with the limit of `deadlines`."""

    __slots__ = ("_cancelling", "_deadlines", "_task", "expired")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self.expired = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task(self._deadlines.loop)
        if self._task is None:
            raise RuntimeError("a deadline is for a task")
        self._cancelling = self._task.cancelling()
        self._deadlines.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        # As asyncio.timeout does: if somebody else cancelled the task too, it is a cancellation.
        if self.expired and self._task is not None:
            others = self._task.uncancel() > self._cancelling
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error

    def expire(self) -> None:
        """Cancel what runs in the scope."""
        self.expired = True
        if self._task is not None:
            self._task.cancel()
