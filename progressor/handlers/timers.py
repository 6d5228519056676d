"""The timers of a namespace: the functions that serve them, and the calls by which clients change them.

Rule: such a call is a step like all others, in the mailbox, behind the lock and in the trace. So a timer
changes in one place, and a client that changes it waits for a step that might do so too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from progressor.calendars import rule_of
from progressor.errors import InvalidRequest, Reject
from progressor.handlers.codec import Wire, faults, first_fault
from progressor.handlers.function import Function
from progressor.handlers.handler import InvalidCall, MissingHandler, fields_of, plain_args
from progressor.handlers.process import Process
from progressor.inputs import FIRE_TIMER, MAX_TIMERS, SET_TIMER, UNSET_TIMER, names_like
from progressor.loggers import Logger
from progressor.model import Action, Intent, Remove, Snapshot, Task, TaskType
from progressor.timers import KEPT, SetTimer, TimerChange, UnsetTimer, keeping, recurring
from progressor.timers.recurrence import CatchUp, Drift, Occurrence

_log = Logger("progressor.handler")


class TimerArgs(BaseModel):
    """A timer to set, as SetTimer takes it. `timer` is its name, '' for the one without.

    Only that is given to unset or fire one.
    """

    model_config = ConfigDict(extra="forbid")

    timer: str = ""
    at: AwareDatetime | None = None
    after: timedelta | None = None
    remove: bool = False
    every: dict[str, Any] | None = None
    drift: Drift = "fixed"
    catch_up: CatchUp = "one"
    within: timedelta | None = None
    jitter: timedelta | None = None
    between: tuple[time, time] | tuple[time, time, str] | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the keywords with which SetTimer and `set_timer` take it; InvalidRequest for no rule."""
        every = None if self.every is None else rule_of(self.every)
        return {name: value for name, value in self if name != "timer"} | {"every": every}


def carry_out(task: Task, process: Snapshot, wire: Wire) -> Intent:
    """Return the intent of a task whose name is in TIMER_CALLS.

    InvalidCall for wrong arguments; Reject to fire a timer that the process does not have.
    """
    return Intent(action=_action(process, task, plain_args(task, wire)))


def _set(_process: Snapshot, _task: Task, given: TimerArgs) -> Action:
    return SetTimer(name=given.timer, **given.keywords())


def _unset(_process: Snapshot, _task: Task, given: TimerArgs) -> Action:
    return UnsetTimer(name=given.timer)


def _fire(process: Snapshot, task: Task, given: TimerArgs) -> Action:
    for timer in process.timers:
        if timer.name == given.timer:
            is_removal = timer.task_type is TaskType.REMOVE
            fired = SetTimer(at=task.running_time, remove=is_removal, name=timer.name)
            return keeping(fired, KEPT)
    raise Reject(f"the process has no timer {given.timer!r}" if given.timer else "the process has no timer")


def passed_over(task: Task) -> Intent | None:
    """Return the intent of a recurring timer whose time is not to run now; None: it is to run.

    It is too long ago, or has to wait for its hours; its response says so, as plain JSON. A timer that was
    tried before is run, however late.
    InvalidRequest if this release cannot read its rule: at each try, for no handler runs whose next time
    could not be armed.
    """
    occurrence = task.occurrence
    if occurrence is None or task.attempts_count or task.running_time is None:
        return None
    wanted = occurrence.wanted(task.running_time)
    if wanted is not occurrence:
        _log.warning(
            "recurring timer is too late: no handler runs", extra=_fields(task, occurrence, wanted)
        )
        then = None if wanted is None else wanted.nominal
        action = None if wanted is None else _timer_of(task, wanted)
        return Intent(action=action, response=to_json({"passed_over": "too late", "goes_on_at": then}))
    opens = occurrence.opens(task.running_time)
    if opens is None:
        return None
    _log.info("recurring timer waits for its hours", extra=_fields(task, occurrence, occurrence))
    names = task.namespace, task.process_id, task.name or ""
    waits = recurring(occurrence._replace(begun=True), *names, counts=False, since=opens)
    response = to_json({"passed_over": "outside of its hours", "goes_on_at": waits.at})
    return Intent(action=waits, response=response)


def may_be_passed_over(task: Task) -> bool:
    """Return whether `passed_over` may be that of this task; True if this release cannot read its rule."""
    try:
        occurrence = task.occurrence
    except InvalidRequest:
        return True
    return occurrence is not None and not task.attempts_count and occurrence.may_be_passed_over


def _fields(task: Task, late: Occurrence, wanted: Occurrence | None) -> dict[str, object]:
    goes_on_at = "never" if wanted is None else wanted.nominal.isoformat()
    nominal = late.nominal.isoformat()
    return fields_of(task) | {"timer": task.name or "", "nominal": nominal, "goes_on_at": goes_on_at}


def _armed(task: Task, changes: tuple[TimerChange, ...], now: datetime) -> tuple[TimerChange, ...]:
    # The step that fires a recurring timer arms its next time, unless it changes the timer itself.
    if task.args is not None and task.task_type.is_timer:
        changes = _with_next(task, changes, now)
    elif not [each for each in changes if not each.is_armed]:
        return changes
    return tuple(each.armed(now, task.namespace, task.process_id, each.name) for each in changes)


def _with_next(task: Task, changes: tuple[TimerChange, ...], now: datetime) -> tuple[TimerChange, ...]:
    occurrence = task.occurrence
    if occurrence is None:
        return changes
    own = task.name or ""
    if any(each.name == own for each in changes):
        return tuple(_going_on(each, occurrence, now) if each.name == own else each for each in changes)
    following = occurrence.next(now)
    return changes if following is None else (*changes, _timer_of(task, following))


def _going_on(change: TimerChange, occurrence: Occurrence, now: datetime) -> TimerChange:
    """Return a timer that its own step sets anew by the same rule of a calendar, from its next time on."""
    rule = occurrence.recurrence.every
    if not isinstance(change, SetTimer) or isinstance(rule, timedelta) or change.every != rule:
        return change
    if change.at is not None or change.after is not None:
        return change
    following = occurrence.recurrence.after(occurrence.nominal, now)
    if following is None:
        raise InvalidRequest(f"{rule!r} has no time after {occurrence.nominal.isoformat()}", field="every")
    return replace(change, at=following)


def _timer_of(task: Task, occurrence: Occurrence) -> SetTimer:
    return recurring(occurrence, task.namespace, task.process_id, task.name or "")


def _action(process: Snapshot, task: Task, args: bytes | None) -> Action:
    try:
        given = TimerArgs.model_validate_json(args or b"{}")
        return TIMER_CALLS[task.name or ""](process, task, given)
    except ValidationError as error:
        raise InvalidCall(faults(error, "args"), field=first_fault(error, "args")) from None
    except InvalidRequest as error:
        # The request is wrong, not a handler: the process lives on.
        raise InvalidCall(f"args: {error}", field=f"args.{error.field}") from None


TIMER_CALLS: Final[dict[str, Callable[[Snapshot, Task, TimerArgs], Action]]] = {
    SET_TIMER: _set,
    UNSET_TIMER: _unset,
    FIRE_TIMER: _fire,
}


class Timeouts:
    """The functions that serve timers, by name; that without a name serves all others, too.

    `sets_any`: others may be set, too. A raw handler serves all, and another worker those of a schedule.
    """

    __slots__ = ("_namespace", "functions", "sets_any")

    def __init__(
        self, namespace: str, functions: dict[str, Function] | None = None, *, sets_any: bool = False
    ) -> None:
        self._namespace = namespace
        self.functions = {} if functions is None else functions
        self.sets_any = sets_any

    def replaced(self, function: Callable[[Function], Function]) -> Timeouts:
        """Return the same with other functions in place of these."""
        functions = {name: function(each) for name, each in self.functions.items()}
        return Timeouts(self._namespace, functions, sets_any=self.sets_any)

    def served(self) -> Iterable[str]:
        """Return what they serve, each as Task.function."""
        return (f"timeout {name}".rstrip() for name in self.functions)

    def find(self, name: str | None) -> Function | None:
        """Return the function that serves a timer."""
        return self.functions.get(name or "") or self.functions.get("")

    def function(self, name: str | None) -> Function:
        """Return the function that serves a timer; MissingHandler if none does."""
        function = self.find(name)
        if function is None:
            raise MissingHandler(self._missing(name or ""))
        return function

    def armed(self, process: Process[Any], task: Task, intent: Intent) -> Intent:
        """Return the intent with its timers as they are stored, and the next time of one that recurs.

        MissingHandler or InvalidRequest if they cannot be set.
        """
        if task.args is None or not task.task_type.is_timer:
            action = intent.action
            if action is None or (type(action) is SetTimer and self._is_plain(process.snapshot, action)):
                return intent
        asked = new = intent.changes
        if task.running_time is not None and not isinstance(intent.action, Remove):
            new = _armed(task, asked, task.running_time)
        self._check(process.snapshot, task, new)
        if new is asked:
            return intent
        return replace(intent, action=new if len(new) > 1 else new[0] if new else None)

    def _is_plain(self, process: Snapshot, timer: SetTimer) -> bool:
        """Return whether a timer is served, stored as it is, and not one too many: nearly all are."""
        is_served = timer.name in self.functions or "" in self.functions
        return is_served and timer.is_armed and len(process.timers) < MAX_TIMERS

    def _check(self, process: Snapshot, task: Task, changes: tuple[TimerChange, ...]) -> None:
        new = [each for each in changes if isinstance(each, SetTimer)]
        # What a client sets must be served here, unless a raw handler serves all, which has no functions.
        sets_any = self.sets_any and not (self.functions and task.name in TIMER_CALLS)
        for each in new:
            is_served = each.remove or sets_any or self.find(each.name) is not None
            # One that the process has is of other code, which serves it.
            if not is_served and each.name not in [timer.name for timer in process.timers]:
                raise MissingHandler(self._missing(each.name))
        if not new or len(process.timers) + len(new) <= MAX_TIMERS:
            return
        ended = {each.name for each in changes if isinstance(each, UnsetTimer)}
        if task.task_type.is_timer:
            ended.add(task.name or "")
        left = {each.name for each in process.timers} - ended | {each.name for each in new}
        if len(left) > MAX_TIMERS:
            raise InvalidRequest(
                f"a process must have at most {MAX_TIMERS} timers, not {len(left)}", field="timer"
            )

    def _missing(self, name: str) -> str:
        if self.functions and name:
            known = names_like(name, self.functions)
            return (
                f"namespace {self._namespace} has no timeout handler for the timer {name!r:.80} "
                f"(it has: {known}): decorate a function with @timeout({name!r:.80}), or with @timeout "
                "for all timers without one"
            )
        return (
            f"namespace {self._namespace} has no timeout handler, so no timer can be set but one that "
            "removes (remove=True): decorate a function with @timeout"
        )
