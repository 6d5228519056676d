"""Steps whose handlers begin before their tasks are committed, behind the lock of an open transaction.

Rule: a handler has one turn of the event loop there. If the transaction is lost, what it decided is used
only for the same task on the same process; any other handler is run again, once its first run has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from progressor import metrics
from progressor.handlers.handler import fields_of, handler_of
from progressor.handlers.handler_profile import HandlerProfile
from progressor.handlers.running.step_task import StepTask
from progressor.loggers import Logger
from progressor.model import Decision, Task, TaskType
from progressor.storage import Claimed
from progressor.worker.slot import Slot

log = Logger("progressor.fusing")

# Seconds that the handlers of a transaction may compute together, as expected from earlier runs: for so
# long other requests to the same processes, and to the connection, wait.
MOST_TOGETHER = 0.002
# Seconds; a handler that held the event loop for longer is to blame if its transaction was lost. PostgreSQL
# ends a transaction after 15 s, a pooler perhaps sooner.
LOSES_TRANSACTIONS = 1.0


class StartedStep(NamedTuple):
    """A step whose handler began before its task is committed."""

    held: Claimed
    slot: Slot
    deciding: StepTask[Decision]

    def decision_if_done(self) -> Decision | None:
        """Return the decision; None while the handler runs, or if it was cancelled or failed."""
        done = self.deciding.done() and not self.deciding.cancelled() and self.deciding.exception() is None
        return self.deciding.result() if done else None

    def fits(self, held: Claimed) -> bool:
        """Return whether its handler would decide the same on another task of its request.

        False if it has not decided.
        """
        # The new process of an init is as empty as the one that was not committed.
        is_same = held.task.task_type is TaskType.INIT or held.process == self.held.process
        return is_same and self.decision_if_done() is not None

    async def given_up(self) -> None:
        """Stop the handler, whose task is not committed, and drop its decision.

        Return when it has ended.
        """
        self.deciding.stop()
        await asyncio.wait({self.deciding})
        self.decision_if_done()


def bar_slow(
    begun: Collection[StartedStep], seconds: float, profile_of: Callable[[Task], HandlerProfile | None]
) -> None:
    """Never again run behind a lock a handler that held the event loop until the lock was lost.

    `seconds` is how long these had the loop together.
    """
    if seconds < LOSES_TRANSACTIONS:
        return
    for each in begun:
        task = each.held.task
        profile = profile_of(task)
        if profile is None or profile.seconds < LOSES_TRANSACTIONS / len(begun):
            continue
        profile.bar()
        metrics.FUSED_BARRED.labels(task.namespace).inc()
        log.error(
            "handler held the event loop until its transaction was lost, it is no longer fused",
            extra=fields_of(task) | {"handler": handler_of(task), "seconds": round(profile.seconds, 3)},
        )


def log_again(task: Task) -> None:
    """Log and count a handler that is run twice: its first run was in a transaction that was lost."""
    metrics.RUN_AGAIN.labels(task.namespace).inc()
    log.warning(
        "transaction lost, handler runs again", extra=fields_of(task) | {"handler": handler_of(task)}
    )
