"""What a chain of steps runs in, and a step that began before its task was committed."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, NamedTuple

from progressor.handlers.handler import handler_of
from progressor.handlers.step_task import StepTask
from progressor.handlers.threads import NoThread
from progressor.loggers import Logger
from progressor.model import Decision, Task, TaskType
from progressor.storage import Claimed

log = Logger("progressor.pool")

# How many of the processes whose steps are given up are named.
_MOST_NAMED = 20


class Slot:
    """What a chain of steps runs in.

    `goes_on` says whether the chain may go on with what comes next on its process; `hung` is the task whose
    sync handler runs on in its thread after the step: the slot is its own until it returns.
    `unsaved_bytes` is the size of its result between decision and save.
    """

    __slots__ = ("goes_on", "hung", "unsaved_bytes")

    def __init__(self, *, goes_on: bool = True) -> None:
        self.goes_on = goes_on
        self.hung: tuple[Task, Future[Any]] | None = None
        self.unsaved_bytes = 0


class StartedStep(NamedTuple):
    """A step whose handler began before its task is committed."""

    held: Claimed
    slot: Slot
    deciding: StepTask[Decision]

    def decided(self) -> Decision | None:
        """What becomes of it, if its handler has come to its end."""
        done = self.deciding.done() and not self.deciding.cancelled() and self.deciding.exception() is None
        return self.deciding.result() if done else None

    def fits(self, held: Claimed) -> bool:
        """Whether its handler, run on another task of the same request, would decide the same."""
        # A process that is only made now is as new as the one that was not.
        is_same = held.task.task_type is TaskType.INIT or held.process == self.held.process
        return is_same and self.decided() is not None

    async def given_up(self) -> None:
        """Its task is not committed: what the handler did is nothing. Return when it has ended."""
        self.deciding.stop()
        await asyncio.wait({self.deciding})
        self.decided()


def said_of(task: Task) -> dict[str, Any]:
    """What the log says of a task whose sync handler hangs."""
    return {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "handler": handler_of(task),
    }


def say_hangs(about: dict[str, Any], *, hung: int, slots: int) -> None:
    """A sync handler runs on after its step; so many of the slots hang by now."""
    log.warning(
        "sync handler hangs, its slot is lost until it returns",
        extra={**about, "hung": hung, "slots": slots},
    )
    if hung >= slots:
        log.error(
            "all slots hang: this worker runs nothing more of the namespace",
            extra={"namespace": about["namespace"], "slots": slots},
        )


def log_not_begun(namespace: str, error: Exception) -> None:
    """Log that a step lacked what it needs to begin, so that its task goes back to the schedule."""
    if isinstance(error, NoThread):
        log.error(
            "no thread for a sync handler, handed back", exc_info=error, extra={"namespace": namespace}
        )
    else:
        log.warning("results wait to be saved, step handed back", extra={"namespace": namespace})


def say_given_up(namespace: str, processes: list[str]) -> None:
    """A pool that stops does not wait any longer for the steps on these."""
    log.warning(
        "steps given up, a zombie collector will take them",
        extra={"namespace": namespace, "steps": len(processes), "processes": processes[:_MOST_NAMED]},
    )
