"""Everything that can become of a process when a step ends, in one table.

Rule: this is the only place where statuses change. It is pure: no clock, no database, no handler.
The docs' diagram is drawn from `TABLE`, so it cannot differ from what the engine does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
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
    SetTimer,
    Success,
    Task,
    TaskType,
    UnsetTimer,
)


class OutcomeKind(StrEnum):
    """How a handler can end."""

    SUCCESS = "success"
    REJECTION = "rejection"
    FAILURE = "failure"


class Case(StrEnum):
    """What a rule looks at, beyond task type and outcome."""

    ALWAYS = "always"
    NO_ACTION = "no action"
    SET_TIMER = "set timer"
    UNSET_TIMER = "unset timer"
    REMOVE = "remove"
    RETRIES_LEFT = "retries left"
    NO_RETRIES_LEFT = "no retries left"


@dataclass(frozen=True, slots=True)
class End:
    """How a step ends. `status` None leaves the process's status, detail and corrupted_by alone."""

    disposition: Disposition
    status: ProcessStatus | None = None


Rule = Mapping[Case, End]

_RUNNING = ProcessStatus.RUNNING

BY_ACTION: Rule = {
    Case.NO_ACTION: End(Disposition.RESUME, _RUNNING),
    Case.SET_TIMER: End(Disposition.REPLACE, _RUNNING),
    Case.UNSET_TIMER: End(Disposition.CANCEL, _RUNNING),
    Case.REMOVE: End(Disposition.REMOVE, _RUNNING),
}
BY_POLICY: Rule = {
    Case.RETRIES_LEFT: End(Disposition.RETRY),
    Case.NO_RETRIES_LEFT: End(Disposition.BREAK, ProcessStatus.ERROR),
}
BREAKS: Rule = {Case.ALWAYS: End(Disposition.BREAK, ProcessStatus.ERROR)}
STAYS_AS_IT_WAS: Rule = {Case.ALWAYS: End(Disposition.RESUME)}
STAYS_BROKEN: Rule = {Case.ALWAYS: End(Disposition.HOLD)}
IS_REMOVED: Rule = {Case.ALWAYS: End(Disposition.REMOVE)}

TABLE: Mapping[tuple[TaskType, OutcomeKind], Rule] = {
    (TaskType.INIT, OutcomeKind.SUCCESS): BY_ACTION,
    (TaskType.INIT, OutcomeKind.REJECTION): IS_REMOVED,
    (TaskType.INIT, OutcomeKind.FAILURE): BREAKS,
    (TaskType.CALL, OutcomeKind.SUCCESS): BY_ACTION,
    (TaskType.CALL, OutcomeKind.REJECTION): STAYS_AS_IT_WAS,
    (TaskType.CALL, OutcomeKind.FAILURE): BREAKS,
    (TaskType.NOTIFY, OutcomeKind.SUCCESS): BY_ACTION,
    (TaskType.NOTIFY, OutcomeKind.REJECTION): STAYS_AS_IT_WAS,
    (TaskType.NOTIFY, OutcomeKind.FAILURE): BREAKS,
    (TaskType.TIMEOUT, OutcomeKind.SUCCESS): BY_ACTION,
    (TaskType.TIMEOUT, OutcomeKind.REJECTION): BY_POLICY,
    (TaskType.TIMEOUT, OutcomeKind.FAILURE): BY_POLICY,
    (TaskType.REPAIR, OutcomeKind.SUCCESS): BY_ACTION,
    (TaskType.REPAIR, OutcomeKind.REJECTION): STAYS_BROKEN,
    (TaskType.REPAIR, OutcomeKind.FAILURE): STAYS_BROKEN,
    (TaskType.REMOVE, OutcomeKind.SUCCESS): IS_REMOVED,
    (TaskType.REMOVE, OutcomeKind.REJECTION): BY_POLICY,
    (TaskType.REMOVE, OutcomeKind.FAILURE): BY_POLICY,
}

RUNS_IN: Mapping[TaskType, ProcessStatus] = {
    TaskType.INIT: ProcessStatus.INIT,
    TaskType.CALL: ProcessStatus.RUNNING,
    TaskType.NOTIFY: ProcessStatus.RUNNING,
    TaskType.TIMEOUT: ProcessStatus.RUNNING,
    TaskType.REPAIR: ProcessStatus.ERROR,
    TaskType.REMOVE: ProcessStatus.RUNNING,
}
"""The status of a process in which its tasks of a type run (a call made during `init` waits)."""


def decide(task: Task, outcome: Outcome, policy: RetryPolicy) -> Decision:
    """What becomes of a task and its process, given how the task ended."""
    match outcome:
        case Success(intent=intent):
            return _decide_success(task, intent)
        case Rejection() if task.task_type.is_timer:
            # Nobody asked, so there is nobody to refuse: a timer's rejection is a failure.
            return _decide_failure(task, OutcomeKind.REJECTION, _as_failure(outcome), policy)
        case Rejection():
            end = TABLE[task.task_type, OutcomeKind.REJECTION][Case.ALWAYS]
            return Decision(end.disposition, Reply(rejection=outcome), end.status)
        case Failure():
            return _decide_failure(task, OutcomeKind.FAILURE, outcome, policy)
        case _:
            assert_never(outcome)


def _decide_success(task: Task, intent: Intent) -> Decision:
    rule = TABLE[task.task_type, OutcomeKind.SUCCESS]
    end = rule.get(Case.ALWAYS) or rule[_case_of(intent.action)]
    # What is removed has no timer, whatever was said of one.
    timer = intent.action if end.disposition is Disposition.REPLACE else None
    return Decision(
        disposition=end.disposition,
        reply=Reply(response=intent.response),
        status=end.status,
        events=intent.events,
        aux_state=intent.aux_state,
        metadata=intent.metadata,
        timer=timer if isinstance(timer, SetTimer) else None,
    )


def _decide_failure(task: Task, kind: OutcomeKind, failure: Failure, policy: RetryPolicy) -> Decision:
    rule = TABLE[task.task_type, kind]
    end = rule.get(Case.ALWAYS)
    interval = None
    if end is None:
        interval = retry_interval(task, failure, policy)
        end = rule[Case.NO_RETRIES_LEFT if interval is None else Case.RETRIES_LEFT]
    breaks = end.disposition is Disposition.BREAK
    return Decision(
        end.disposition,
        Reply(error=failure.error),
        end.status,
        timer=_held(task) if breaks and task.task_type.is_timer else None,
        retry_interval=interval,
    )


def _held(timer: Task) -> SetTimer:
    """What a timer that breaks its process leaves in its place: the same, as due as it was."""
    return SetTimer(at=timer.scheduled_time, remove=timer.task_type is TaskType.REMOVE)


def _case_of(action: Action | None) -> Case:
    match action:
        case None:
            return Case.NO_ACTION
        case SetTimer():
            return Case.SET_TIMER
        case UnsetTimer():
            return Case.UNSET_TIMER
        case Remove():
            return Case.REMOVE
        case _:
            assert_never(action)


def _as_failure(rejection: Rejection) -> Failure:
    return Failure(error=f"Reject: {rejection.reason}", error_types=("Reject",))


def retry_interval(task: Task, failure: Failure, policy: RetryPolicy) -> timedelta | None:
    """How long to wait before the task is tried again; None: never again."""
    if not failure.retryable or not set(policy.non_retryable).isdisjoint(failure.error_types):
        return None
    return policy.interval_after(task.attempts_count + 1, task.last_retry_interval)


class Loss(NamedTuple):
    """A task whose worker was lost, and with it so many before (`zombie_count`)."""

    task_type: TaskType
    attempts_count: int
    last_retry_interval: timedelta | None
    zombie_count: int


class GoesBack(NamedTuple):
    """A lost task waits again: for so long if it is tried as a failed timer is, else for nothing."""

    interval: timedelta | None = None


def judge(loss: Loss, options: NamespaceOptions) -> GoesBack | None:
    """What becomes of a lost task; None: it ends in error and breaks its process."""
    match options.on_zombie:
        case "policy" if loss.task_type.is_timer:
            attempts = loss.attempts_count + 1
            interval = options.retry_policy.interval_after(attempts, loss.last_retry_interval)
            return None if interval is None else GoesBack(interval)
        case "retry":
            return GoesBack() if loss.zombie_count < options.zombie_attempts else None
        case "policy" | "error":
            return None
        case _:
            assert_never(options.on_zombie)


def diagram() -> str:
    """`TABLE` as a Mermaid state diagram: `task types / outcome / dispositions` on every edge."""
    lines = ["stateDiagram-v2", "    [*] --> init : start"]
    lines += [
        f"    {source} --> {target} : {label}" for source, target, label in sorted(_edges(), key=_drawn)
    ]
    lines.append("    removed --> [*]")
    return "\n".join(lines) + "\n"


def _edges() -> Iterator[tuple[str, str, str]]:
    """Task types that share status, rule and outcome share their edges."""
    alike: dict[tuple[ProcessStatus, OutcomeKind, int], list[TaskType]] = {}
    for (task_type, kind), rule in TABLE.items():
        alike.setdefault((RUNS_IN[task_type], kind, id(rule)), []).append(task_type)
    for (source, kind, _), task_types in alike.items():
        by_target: dict[str, list[Disposition]] = {}
        for end in TABLE[task_types[0], kind].values():
            by_target.setdefault(_target(source, end), []).append(end.disposition)
        for target, dispositions in by_target.items():
            yield source, target, f"{', '.join(task_types)} / {kind} / {', '.join(dispositions)}"


def _target(source: ProcessStatus, end: End) -> str:
    if end.disposition is Disposition.REMOVE:
        return "removed"
    return end.status or source


def _drawn(edge: tuple[str, str, str]) -> tuple[int, int]:
    order = [*ProcessStatus, "removed"]
    return order.index(edge[0]), order.index(edge[1])
