"""Slots, in which chains of steps run, and steps that begin before their tasks are committed."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, NamedTuple

from progressor.handlers.handler import handler_of
from progressor.handlers.running.step_task import StepTask
from progressor.loggers import Logger
from progressor.model import Decision, Task, TaskType
from progressor.storage import Claimed

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


class StartedStep(NamedTuple):
    """A step whose handler began before its task is committed."""

    held: Claimed
    slot: Slot
    deciding: StepTask[Decision]

    def decided(self) -> Decision | None:
        """Return the decision; None while the handler runs, or if it was cancelled or failed."""
        done = self.deciding.done() and not self.deciding.cancelled() and self.deciding.exception() is None
        return self.deciding.result() if done else None

    def fits(self, held: Claimed) -> bool:
        """Return whether its handler would decide the same on another task of its request.

        False if it has not decided.
        """
        # The new process of an init is as empty as the one that was not committed.
        is_same = held.task.task_type is TaskType.INIT or held.process == self.held.process
        return is_same and self.decided() is not None

    async def given_up(self) -> None:
        """Stop the handler, whose task is not committed, and drop its decision.

        Return when it has ended.
        """
        self.deciding.stop()
        await asyncio.wait({self.deciding})
        self.decided()


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
    """Log that a stopping pool gives up the steps on these processes."""
    log.warning(
        "steps given up, a zombie collector will take them",
        extra={"namespace": namespace, "steps": len(processes), "processes": processes[:_MOST_NAMED]},
    )
