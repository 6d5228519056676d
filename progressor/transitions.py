"""Every change of a process's status, of its timer and its mailbox. Pure.

Rule: a status changes only by a step, as `TABLE` states, or by a verb of the API, as `VERBS` states.
Storage writes what this module decides, and chooses nothing. Tests hold the SQL to these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import NamedTuple, assert_never

from progressor.config import NamespaceOptions, RetryPolicy
from progressor.model import (
    Action,
    Decision,
    Disposition,
    Failure,
    Intent,
    Outcome,
    ProcessStatus,
    Rejection,
    Remove,
    Reply,
    Snapshot,
    Success,
    Task,
    TaskType,
    Timer,
)
from progressor.timers import SetTimer, TimerChange, UnsetTimer, keeping
from progressor.timers.recurrence import as_begun


class Ending(StrEnum):
    """The endings of a step: three by its handler, and `lost` with its worker.

    A timer's step has no rejection, for it has no caller: a `Reject` there is a failure.
    """

    SUCCESS = "success"
    REJECTION = "rejection"
    FAILURE = "failure"
    LOST = "lost"


class Case(StrEnum):
    """The cases of a rule, beyond task type and ending."""

    ALWAYS = "always"
    NO_ACTION = "no action"
    SET_TIMER = "set timer"
    UNSET_TIMER = "unset timer"
    SEVERAL_TIMERS = "several timers"
    REMOVE = "remove"
    RETRIES_LEFT = "retries left"
    NO_RETRIES_LEFT = "no retries left"


class End(NamedTuple):
    """The end of one case. `status` None leaves status, detail and corrupted_by as they are."""

    disposition: Disposition
    status: ProcessStatus | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """The ends of a step, case by case."""

    name: str
    ends: Mapping[Case, End]

    def end(self, case: Case) -> End:
        return self.ends.get(case) or self.ends[Case.ALWAYS]


_INIT, _RUNNING, _ERROR = ProcessStatus.INIT, ProcessStatus.RUNNING, ProcessStatus.ERROR

BY_ACTION = Rule(
    "by its action",
    {
        Case.NO_ACTION: End(Disposition.RESUME, _RUNNING),
        Case.SET_TIMER: End(Disposition.REPLACE, _RUNNING),
        Case.UNSET_TIMER: End(Disposition.CANCEL, _RUNNING),
        # The changes are made first.
        Case.SEVERAL_TIMERS: End(Disposition.RESUME, _RUNNING),
        Case.REMOVE: End(Disposition.REMOVE),
    },
)
BEGINS_ANEW = Rule(
    "begins anew",
    {
        Case.NO_ACTION: End(Disposition.RESUME, _INIT),
        Case.SET_TIMER: End(Disposition.REPLACE, _INIT),
        Case.UNSET_TIMER: End(Disposition.CANCEL, _INIT),
        Case.SEVERAL_TIMERS: End(Disposition.RESUME, _INIT),
        Case.REMOVE: End(Disposition.REMOVE),
    },
)
STAYS_AS_IT_WAS = Rule("stays as it was", {Case.ALWAYS: End(Disposition.RESUME)})
STAYS_BROKEN = Rule("stays broken", {Case.ALWAYS: End(Disposition.HOLD)})
BREAKS = Rule("breaks", {Case.ALWAYS: End(Disposition.BREAK, _ERROR)})
RETRIED_OR_BREAKS = Rule(
    "is tried again, or breaks",
    {
        Case.RETRIES_LEFT: End(Disposition.RETRY),
        Case.NO_RETRIES_LEFT: End(Disposition.BREAK, _ERROR),
    },
)
RETRIED_OR_STAYS_BROKEN = Rule(
    "is tried again, or stays broken",
    {
        Case.RETRIES_LEFT: End(Disposition.RETRY),
        Case.NO_RETRIES_LEFT: End(Disposition.HOLD),
    },
)
IS_REMOVED = Rule("is removed", {Case.ALWAYS: End(Disposition.REMOVE)})

TABLE: Mapping[tuple[TaskType, Ending], Rule] = {
    (TaskType.INIT, Ending.SUCCESS): BY_ACTION,
    (TaskType.INIT, Ending.REJECTION): IS_REMOVED,
    (TaskType.INIT, Ending.FAILURE): BREAKS,
    (TaskType.INIT, Ending.LOST): RETRIED_OR_BREAKS,
    (TaskType.CALL, Ending.SUCCESS): BY_ACTION,
    (TaskType.CALL, Ending.REJECTION): STAYS_AS_IT_WAS,
    (TaskType.CALL, Ending.FAILURE): BREAKS,
    (TaskType.CALL, Ending.LOST): RETRIED_OR_BREAKS,
    (TaskType.NOTIFY, Ending.SUCCESS): BY_ACTION,
    (TaskType.NOTIFY, Ending.REJECTION): STAYS_AS_IT_WAS,
    (TaskType.NOTIFY, Ending.FAILURE): BREAKS,
    (TaskType.NOTIFY, Ending.LOST): RETRIED_OR_BREAKS,
    (TaskType.TIMEOUT, Ending.SUCCESS): BY_ACTION,
    (TaskType.TIMEOUT, Ending.FAILURE): RETRIED_OR_BREAKS,
    (TaskType.TIMEOUT, Ending.LOST): RETRIED_OR_BREAKS,
    # No handler runs. It fails if PostgreSQL refuses to remove the process: a user's table needs it, say.
    (TaskType.REMOVE, Ending.SUCCESS): IS_REMOVED,
    (TaskType.REMOVE, Ending.FAILURE): RETRIED_OR_BREAKS,
    (TaskType.REMOVE, Ending.LOST): RETRIED_OR_BREAKS,
    (TaskType.REPAIR, Ending.SUCCESS): BY_ACTION,
    (TaskType.REPAIR, Ending.REJECTION): STAYS_BROKEN,
    (TaskType.REPAIR, Ending.FAILURE): STAYS_BROKEN,
    (TaskType.REPAIR, Ending.LOST): RETRIED_OR_STAYS_BROKEN,
}

BROKEN_IN_INIT: Mapping[tuple[TaskType, Ending], Rule] = {
    (TaskType.REPAIR, Ending.SUCCESS): BEGINS_ANEW,
}
"""The rules in place of `TABLE` if the init broke the process: none runs whose init has not succeeded."""

RUNS_IN: Mapping[TaskType, ProcessStatus] = {
    TaskType.INIT: _INIT,
    TaskType.CALL: _RUNNING,
    TaskType.NOTIFY: _RUNNING,
    TaskType.TIMEOUT: _RUNNING,
    TaskType.REMOVE: _RUNNING,
    TaskType.REPAIR: _ERROR,
}
"""The status of a process in which its tasks of a type run (a call made during `init` waits)."""


class Verb(StrEnum):
    """The verbs of the API that change a status without a step."""

    START = "start"
    PUT = "put"
    SIMPLE_REPAIR = "simple_repair"
    REMOVE = "remove"


class Change(NamedTuple):
    """The change from any of the statuses `found` to any of `becomes`; None: there is no process."""

    found: tuple[ProcessStatus | None, ...]
    becomes: tuple[ProcessStatus | None, ...]
    disposition: Disposition | None = None


VERBS: Mapping[Verb, Change] = {
    Verb.START: Change((None,), (_INIT,)),
    Verb.PUT: Change((None,), (_RUNNING, _ERROR)),
    # To init if the init broke the process, else to running.
    Verb.SIMPLE_REPAIR: Change((_ERROR,), (_INIT, _RUNNING), Disposition.RESUME),
    Verb.REMOVE: Change(tuple(ProcessStatus), (None,), Disposition.REMOVE),
}


class OnTask(Enum):
    """The effects of a disposition on the task."""

    ENDS = "ends"
    WAITS_AGAIN = "waits again, until the interval is over if there is one"


class OnTimer(Enum):
    """The effects of a disposition on the timers of the process.

    Wherever they wait for their times, the earliest runs at once if it is due.
    """

    REPLACED = "the old one of its name is cancelled, the new one is set; the others resume"
    RESUMED = "wait for their own times again, if they were blocked or held"
    CANCELLED = "that of its name is cancelled; the others resume"
    STAYS = "one of them is that task; the others wait for their own times"
    HELD = "are held; a timer that broke the process leaves another one in its place, as due as it was"
    GONE = "are deleted"


class OnMailbox(Enum):
    """The effects of a disposition on the requests that wait on the process."""

    GOES_ON = "its first request goes next, before any timer"
    CANCELLED = "its requests are cancelled, and their callers told"
    EMPTY = "is empty: a broken process takes nothing but a repair"
    GONE = "is deleted, and its callers are told"


class Effects(NamedTuple):
    """The effects of a disposition on task, timer and mailbox."""

    task: OnTask
    timer: OnTimer
    mailbox: OnMailbox


EFFECTS: Mapping[Disposition, Effects] = {
    Disposition.REPLACE: Effects(OnTask.ENDS, OnTimer.REPLACED, OnMailbox.GOES_ON),
    Disposition.RESUME: Effects(OnTask.ENDS, OnTimer.RESUMED, OnMailbox.GOES_ON),
    Disposition.CANCEL: Effects(OnTask.ENDS, OnTimer.CANCELLED, OnMailbox.GOES_ON),
    Disposition.RETRY: Effects(OnTask.WAITS_AGAIN, OnTimer.STAYS, OnMailbox.GOES_ON),
    Disposition.BREAK: Effects(OnTask.ENDS, OnTimer.HELD, OnMailbox.CANCELLED),
    Disposition.HOLD: Effects(OnTask.ENDS, OnTimer.HELD, OnMailbox.EMPTY),
    Disposition.REMOVE: Effects(OnTask.ENDS, OnTimer.GONE, OnMailbox.GONE),
}

_ONE_TIMER = (Disposition.REPLACE, Disposition.CANCEL)


def decide(
    process: Snapshot, task: Task, outcome: Outcome, policy: RetryPolicy, *, feeds: bool = False
) -> Decision:
    """Decide on a task and its process by the outcome of its handler; `policy` is for timers that fail.

    `feeds`: the namespace has a feed.
    """
    match outcome:
        case Success(intent=intent):
            return _succeeded(process, task, intent, feeds)
        case Rejection() if not task.task_type.is_timer:
            end = TABLE[task.task_type, Ending.REJECTION].end(Case.ALWAYS)
            return Decision(end.disposition, Reply(rejection=outcome), end.status)
        case Rejection():
            return _failed(task, _as_failure(outcome), policy)._replace(feeds=feeds)
        case Failure():
            return _failed(task, outcome, policy)._replace(feeds=feeds)
        case _:
            assert_never(outcome)


class Lost(NamedTuple):
    """The reason for which a task lost its worker, and how often that happened to it before."""

    reason: str
    before: int = 0


def decide_lost(task: Task, lost: Lost, options: NamespaceOptions) -> Decision:
    """Decide on a task and its process after its worker was lost."""
    return _not_done(task, Ending.LOST, lost.reason, _retry_of_lost(task, lost, options))


def was_broken_in_init(process: Snapshot) -> bool:
    """Return whether the process broke in its init, which failed or was lost: it was never running."""
    return process.status is _ERROR and process.previous_status is _INIT


def _succeeded(process: Snapshot, task: Task, intent: Intent, feeds: bool) -> Decision:
    if task.is_dry_run:
        return Decision(STAYS_BROKEN.end(Case.ALWAYS).disposition, Reply(response=intent.response))
    key = task.task_type, Ending.SUCCESS
    rule = BROKEN_IN_INIT.get(key, TABLE[key]) if was_broken_in_init(process) else TABLE[key]
    end = rule.end(_case_of(intent.action))
    several = intent.action is not None and end.disposition is Disposition.RESUME
    return Decision(
        disposition=end.disposition,
        reply=Reply(response=intent.response),
        status=end.status,
        events=intent.events,
        aux_state=intent.aux_state,
        metadata=intent.metadata,
        # A removal sets no timer, even if the intent of its step does.
        timer=intent.changes[0] if end.disposition in _ONE_TIMER else None,
        changes=intent.changes if several else (),
        messages=intent.messages,
        feeds=feeds,
    )


def _case_of(action: Action | tuple[TimerChange, ...] | None) -> Case:
    match action:
        case None | ():
            return Case.NO_ACTION
        case SetTimer():
            return Case.SET_TIMER
        case tuple():
            return Case.SEVERAL_TIMERS if len(action) > 1 else _case_of(action[0])
        case UnsetTimer():
            return Case.UNSET_TIMER
        case Remove():
            return Case.REMOVE
        case _:
            assert_never(action)


def _as_failure(rejection: Rejection) -> Failure:
    return Failure(error=f"Reject: {rejection.reason}", error_types=("Reject",))


class _Retry(NamedTuple):
    """The permission for another try: after an interval, or at once (None)."""

    interval: timedelta | None = None


def _retry_after(interval: timedelta | None) -> _Retry | None:
    return None if interval is None else _Retry(interval)


def _failed(task: Task, failure: Failure, policy: RetryPolicy) -> Decision:
    retry = _retry_after(retry_interval(task, failure, policy))
    return _not_done(task, Ending.FAILURE, failure.error, retry)


def _not_done(task: Task, ending: Ending, error: str, retry: _Retry | None) -> Decision:
    case = Case.NO_RETRIES_LEFT if retry is None else Case.RETRIES_LEFT
    end = TABLE[task.task_type, ending].end(case)
    breaks, is_retried = end.disposition is Disposition.BREAK, end.disposition is Disposition.RETRY
    return Decision(
        end.disposition,
        Reply(error=error),
        end.status,
        timer=_held(task) if breaks and task.task_type.is_timer else None,
        retry_interval=retry.interval if retry is not None and is_retried else None,
    )


def _held(timer: Task) -> SetTimer:
    """Return the timer that replaces one that broke its process: as due as it was, and run however late."""
    is_removal = timer.task_type is TaskType.REMOVE
    held = SetTimer(at=timer.scheduled_time, remove=is_removal, name=timer.name or "")
    return keeping(held, as_begun(timer.args))


def retry_interval(task: Task, failure: Failure, policy: RetryPolicy) -> timedelta | None:
    """Return the wait before the task is tried again; None: it is not tried again."""
    if not failure.retryable or not set(policy.non_retryable).isdisjoint(failure.error_types):
        return None
    return policy.interval_after(task.attempts_count + 1, task.last_retry_interval)


def _retry_of_lost(task: Task, lost: Lost, options: NamespaceOptions) -> _Retry | None:
    match options.on_zombie:
        case "policy" if task.task_type.is_timer:
            attempts = task.attempts_count + 1
            return _retry_after(options.retry_policy.interval_after(attempts, task.last_retry_interval))
        case "retry":
            return _Retry() if lost.before < options.zombie_attempts else None
        case "policy" | "error":
            return None
        case _:
            assert_never(options.on_zombie)


def after(
    process: Snapshot, task: Task, decision: Decision, *, now: datetime, timers: tuple[Timer, ...]
) -> Snapshot:
    """Return the process as this step left it, without another read; its history is empty."""
    if decision.status is None:
        return process._replace(timers=timers, history=())
    changed = decision.status is not process.status
    broken = decision.status is _ERROR
    return Snapshot(
        process_no=process.process_no,
        namespace=process.namespace,
        process_id=process.process_id,
        status=decision.status,
        previous_status=process.status if changed else process.previous_status,
        status_changed_at=now if changed else process.status_changed_at,
        created_at=process.created_at,
        detail=decision.reply.error if broken else None,
        aux_state=process.aux_state if decision.aux_state is None else decision.aux_state,
        metadata=process.metadata if decision.metadata is None else decision.metadata,
        corrupted_by=task.task_id if broken else None,
        last_event_id=process.last_event_id + len(decision.events),
        timers=timers,
        birth=process.birth,
        group_no=process.group_no,
    )
