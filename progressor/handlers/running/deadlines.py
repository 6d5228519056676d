"""Deadlines of steps and of callers: one timer of the event loop for all of a limit, not one for each.

Rule: those that share a limit run out in the order in which they began, so only the oldest is watched. None
of them sets a timer and cancels it, which would be a good part of the cost of a small step. A step whose
time is over gets a timer of its own: it is cancelled again until it ends, for a handler may swallow a
cancellation, or wait in its clean-up.
"""

from __future__ import annotations

import asyncio
import contextvars
from types import TracebackType
from typing import Any, Final

from progressor.handlers.handler import fields_of
from progressor.handlers.running.step_task import StepTask
from progressor.handlers.running.waits import calling_step
from progressor.loggers import Logger
from progressor.model import Task
from progressor.supervision import watched

log = Logger("progressor.deadlines")

# Seconds; a step that has not ended so long after its cancellation is cancelled once more.
_AGAIN = 5.0


class Deadlines:
    """The scopes of one limit, in seconds, that run now, the oldest first; and the timer for the oldest.

    They are those of one event loop, by default the present one. With `keeps_timer=False` the timer goes
    with the last of them: where there may be any number of limits, each leaves nothing behind.
    """

    def __init__(
        self, seconds: float, loop: asyncio.AbstractEventLoop | None = None, *, keeps_timer: bool = True
    ) -> None:
        self.seconds = seconds
        self._keeps_timer = keeps_timer
        self.loop: Final = asyncio.get_running_loop() if loop is None else loop
        """The event loop; kept, because to ask for it is a system call in Python 3.11."""
        self._running: dict[Deadline, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._on_time = watched("deadlines", self._look)
        # Nothing of the caller that happened to set the timer.
        self._context = contextvars.Context()

    def begin(self, deadline: Deadline) -> None:
        """Start the clock of this scope."""
        self._running[deadline] = at = self.loop.time() + self.seconds
        if self._timer is None:
            self._timer = self.loop.call_at(at, self._on_time, context=self._context)

    def end(self, deadline: Deadline) -> None:
        """Stop the clock of this scope, because it or its time is over."""
        self._running.pop(deadline, None)
        if not (self._keeps_timer or self._running or self._timer is None):
            self._timer.cancel()
            self._timer = None

    def step_in(self, running: asyncio.Task[Any]) -> Task | None:
        """Return the step that runs in an asyncio task, unless its time is over; from any thread."""
        steps = (deadline.of for deadline in tuple(self._running) if deadline.task is running)
        return next(steps, None)

    def _look(self) -> None:
        self._timer = None
        try:
            while self._running:
                oldest = next(iter(self._running))
                if self._running[oldest] > self.loop.time():
                    return
                self.end(oldest)
                oldest.expire()
        finally:
            # One that cannot be cancelled keeps no other from its end.
            at = next(iter(self._running.values()), None)
            if at is not None:
                self._timer = self.loop.call_at(at, self._on_time, context=self._context)


class Deadline:
    """A scope of the present asyncio task, like `asyncio.timeout`; `of` is its step, None for a caller's.

    It raises TimeoutError if the limit of `deadlines` passes in it.
    """

    # Only one that has expired has `_again` and `_cancels`.
    __slots__ = ("_again", "_calling", "_cancelling", "_cancels", "_deadlines", "expired", "of", "task")

    def __init__(self, deadlines: Deadlines, of: Task | None = None) -> None:
        self._deadlines = deadlines
        self.of = of
        self.task: asyncio.Task[Any]
        """The asyncio task that entered the scope."""
        self._calling = calling_step() if of is None else None
        self._cancelling = 0
        self.expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task(self._deadlines.loop)
        if task is None:
            raise RuntimeError("a deadline is for a task")
        self.task = task
        self._cancelling = task.cancelling()
        self._deadlines.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        # Like asyncio.timeout: if somebody else cancelled the task too, the cancellation stays one.
        if self.expired:
            if self._again is not None:
                self._again.cancel()
            left = self.task.cancelling()
            for _ in range(self._cancels):
                left = self.task.uncancel()
            others = left > self._cancelling
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which the asyncio task runs."""
        return self._deadlines.loop

    def expire(self) -> None:
        """Cancel the code in the scope; that of a step again and again until it ends."""
        self.expired = True
        self._again: asyncio.TimerHandle | None = None
        self._cancels = 0
        self._cancel()

    def _cancel(self) -> None:
        if self.of is not None:
            if self._cancels == 1:
                about = fields_of(self.of)
                log.warning("handler goes on after its time, cancelled again until it ends", extra=about)
            self._again = self.loop.call_later(_AGAIN, watched("deadlines", self._cancel))
        # The task is suspended inside the scope, so the cancellation arrives there, never after it.
        if isinstance(self.task, StepTask):
            if self._calling is not None and self._calling.ended:
                # A handler left its call behind in the task of its worker, which may run another step now.
                return
            # Its own method would look for the step whose code calls it, and there is none.
            asyncio.Task.cancel(self.task)
        else:
            self.task.cancel()
        self._cancels += 1
