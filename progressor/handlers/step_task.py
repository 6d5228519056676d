"""The asyncio task in which steps run: it tells the cancellations of a handler from those of its worker.

Rule: code that belongs to a running step cancels that step, and the step has failed. Everybody else stops
the task. Code that a handler left behind cancels nothing: its step is over, and another one may run.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from progressor.handlers.waits import calling_step

T = TypeVar("T")


class StepTask(asyncio.Task[T]):
    """Runs steps, one after the other."""

    is_stopped = False
    """Whether somebody other than a handler cancelled it."""

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the handler, if its own code asks for it; else stop the task."""
        if not self.is_stopped:
            step = calling_step()
            if step is None:
                self.is_stopped = True
            elif step.ended:
                return False
        return super().cancel(msg)

    def stop(self) -> None:
        """Cancel it, whoever's code this is."""
        self.is_stopped = True
        self.cancel()

    async def settle(self) -> None:
        """Take back the cancellations that a handler left: the step after it begins without any."""
        while self.cancelling():
            self.uncancel()
        try:
            # One that was not raised yet is raised here; before Python 3.13 `uncancel` does not drop it.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_stopped:
                raise
