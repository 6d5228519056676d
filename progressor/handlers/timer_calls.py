"""The calls that every namespace has: a client changes the timer of a process by them.

Rule: they are steps like all others, in the mailbox, behind the lock and in the trace. So a timer changes
in one place, and a client that changes it waits for a step that might do so too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from progressor.errors import InvalidRequest, Reject
from progressor.handlers.codec import Wire, faults, first_fault
from progressor.handlers.handler import InvalidCall
from progressor.inputs import RESERVED
from progressor.model import Action, Intent, SetTimer, Snapshot, Task, TaskType, UnsetTimer

SET_TIMER: Final = f"{RESERVED}set_timer"
UNSET_TIMER: Final = f"{RESERVED}unset_timer"
FIRE_TIMER: Final = f"{RESERVED}fire_timer"


class TimerArgs(BaseModel):
    """A timer to set: exactly one of `at` and `after`, which counts from the commit of the step."""

    model_config = ConfigDict(extra="forbid")

    at: AwareDatetime | None = None
    after: timedelta | None = None
    remove: bool = False


def carry_out(task: Task, process: Snapshot, wire: Wire) -> Intent:
    """Return the intent of a task whose name is in TIMER_CALLS.

    InvalidCall for wrong arguments; Reject to fire a timer that the process does not have.
    """
    args = None if task.args is None else _plain(task.args, wire)
    return Intent(action=TIMER_CALLS[task.name or ""](process, task, args))


def _plain(args: bytes, wire: Wire) -> bytes:
    try:
        return wire.unseal(args)
    except Exception as error:
        raise InvalidCall(f"args cannot be decoded ({type(error).__name__})", field="args") from error


def _set(_process: Snapshot, _task: Task, args: bytes | None) -> Action:
    try:
        given = TimerArgs.model_validate_json(args or b"{}")
        return SetTimer(at=given.at, after=given.after, remove=given.remove)
    except ValidationError as error:
        raise InvalidCall(faults(error, "args"), field=first_fault(error, "args")) from None
    except InvalidRequest as error:
        # The request is wrong, not a handler: the process lives on.
        raise InvalidCall(f"args: {error}", field=f"args.{error.field}") from None


def _unset(_process: Snapshot, _task: Task, _args: bytes | None) -> Action:
    return UnsetTimer()


def _fire(process: Snapshot, task: Task, _args: bytes | None) -> Action:
    if process.timer is None:
        raise Reject("the process has no timer")
    return SetTimer(at=task.running_time, remove=process.timer.task_type is TaskType.REMOVE)


TIMER_CALLS: Final[dict[str, Callable[[Snapshot, Task, bytes | None], Action]]] = {
    SET_TIMER: _set,
    UNSET_TIMER: _unset,
    FIRE_TIMER: _fire,
}
