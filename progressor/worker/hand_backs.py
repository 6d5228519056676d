"""Hand-backs of tasks whose steps did not run, or left nothing behind: back to the schedule."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from progressor.errors.of_handlers import StepNotSaved
from progressor.handlers.handler import fields_of
from progressor.handlers.running.threads import NoThread
from progressor.loggers import Logger
from progressor.model import Task
from progressor.storage import Storage
from progressor.worker.connection_slots import NoConnection
from progressor.worker.foreign_functions import LeftToOthers
from progressor.worker.result_budget import NoRoom

log = Logger("progressor.pool")

NOT_RUN = (NoThread, NoRoom, StepNotSaved, LeftToOthers)
"""The errors of a step that did not run, or left nothing behind: its task is handed back."""
# Seconds; a slot in which a step could not run stays unused for so long.
_PAUSE = 1.0
# The pauses of a task that loses the transaction of its handler again and again: each is twice as long.
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)


async def hand_back(task: Task, error: BaseException, storage: Storage, *, lent: bool) -> timedelta | None:
    """Hand back the task of a step that did not run; return when its slot, if `lent` too, may be used.

    Return the pause after which a task that had begun can be claimed, None for all others.
    """
    if isinstance(error, StepNotSaved) and error.has_begun:
        # No number of losses breaks a process: an outage of PostgreSQL ends innocent transactions as well.
        pause = _pause_of(task)
        lost = {"attempt": task.attempts_count + 1, "pause": pause.total_seconds(), "cause": str(error)}
        log.warning("transaction of a step lost, it runs again", extra=fields_of(task) | lost)
        await storage.hand_back_unsaved(task, pause, f"to run again: {error}")
        return pause
    if isinstance(error, StepNotSaved):
        storage.outage.failed(str(error), operation="step with its own SQL", namespace=task.namespace)
    else:
        _log_not_run(task.namespace, error)
    await storage.hand_back([task])
    if isinstance(error, LeftToOthers) and error.wake is not None:
        error.wake()
        if not lent:
            # The claims pass it by now. A lent slot is for this task alone: it would take it again.
            return None
    # Claimed again at once, it would be handed back again: another worker may have what it needs. One that
    # found no connection has waited already, without its slot.
    await asyncio.sleep(0 if isinstance(error, NoConnection) else _PAUSE)
    return None


def _pause_of(task: Task) -> timedelta:
    """Return the pause before a task runs again; a timer that waits longer after its failures does so."""
    last = task.last_retry_interval or timedelta()
    return max(last, min(max(2 * last, _FIRST_PAUSE), _LONGEST_PAUSE))


def _log_not_run(namespace: str, error: BaseException) -> None:
    about = {"namespace": namespace}
    match error:
        case NoThread():
            log.error("no thread for a sync handler, handed back", exc_info=error, extra=about)
        case LeftToOthers():
            log.info("request left to a worker that serves it", extra={**about, "function": error.function})
        case NoConnection():
            log.warning("no connection slot was free, step handed back", extra=about)
        case _:
            log.warning("results wait to be saved, step handed back", extra=about)
