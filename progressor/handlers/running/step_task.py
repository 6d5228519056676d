"""The asyncio task in which steps run: it separates cancellations by a handler from those by its worker.

Rule: a cancellation by code of a running step cancels that step, which has then failed. One by code of no
step stops the task. One by code that a handler left behind does nothing: its step is over, and another
may run.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from progressor.handlers.running.waits import calling_step

T = TypeVar("T")


class StepTask(asyncio.Task[T]):
    """An asyncio task that runs steps, one after the other."""

    is_stopped = False
    """True once other code than a handler's has cancelled the task."""

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the handler if its own code calls this; stop the task if code of no step does."""
        if not self.is_stopped:
            step = calling_step()
            if step is None:
                self.is_stopped = True
            elif step.ended:
                return False
        return super().cancel(msg)

    def stop(self) -> None:
        """Stop the task, also if code of a step calls this."""
        self.is_stopped = True
        self.cancel()

    async def settle(self) -> None:
        """Take back the cancellations that a handler left, so that the next step begins without any."""
        while self.cancelling():
            self.uncancel()
        try:
            # A cancellation still to be raised is raised here: only from Python 3.13 `uncancel` drops it.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_stopped:
                raise
