"""The transition table, over the whole of its domain."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from progressor.config import NamespaceOptions, RetryPolicy
from progressor.model import (
    Action,
    Decision,
    Disposition,
    Event,
    Failure,
    Intent,
    Outcome,
    ProcessStatus,
    Rejection,
    Remove,
    Reply,
    Success,
    Task,
    TaskType,
)
from progressor.timers import SetTimer, TimerChange, UnsetTimer
from progressor.transitions import (
    BROKEN_IN_INIT,
    EFFECTS,
    RUNS_IN,
    TABLE,
    VERBS,
    End,
    Ending,
    Lost,
    Verb,
    after,
    decide,
    decide_lost,
    retry_interval,
)

POLICY = RetryPolicy()
TIMER = SetTimer(after=timedelta(days=1))
TIMERS = (TaskType.TIMEOUT, TaskType.REMOVE)
BREAKING = (TaskType.INIT, TaskType.CALL, TaskType.NOTIFY)
REJECTION = Rejection("no", {"left": 1})
FAILURE = Failure("ValueError: no", ("ValueError", "Exception"))
LOST = Lost("zombie detected")

ACTIONS: dict[str, Action | tuple[TimerChange, ...] | None] = {
    "no action": None,
    "set timer": TIMER,
    "set timer to remove": SetTimer(after=timedelta(0), remove=True),
    "unset timer": UnsetTimer(),
    "several timers": (SetTimer(after=timedelta(0)), UnsetTimer("dunning")),
    "remove": Remove(),
}
OUTCOMES: dict[str, Outcome] = {
    **{
        name: Success(Intent((Event(b"1", {"name": "paid"}),), action, b"2", b"3", {"k": 4}))
        for name, action in ACTIONS.items()
    },
    "rejection": REJECTION,
    "failure": FAILURE,
    "final failure": Failure("NonRetryable: no", ("NonRetryable", "Exception"), retryable=False),
}


def stands(task_type: TaskType, *, in_init: bool = False) -> dict[str, Any]:
    """A process on which tasks of this type run; whether its init broke it."""
    previous = ProcessStatus.INIT if in_init else ProcessStatus.RUNNING
    return {"status": RUNS_IN[task_type], "previous_status": previous}


def expected(  # an oracle spells things out
    task_type: TaskType, outcome: Outcome, *, in_init: bool = False
) -> End:
    end = _expected(task_type, outcome)
    if in_init and task_type is TaskType.REPAIR and end.status is ProcessStatus.RUNNING:
        return end._replace(status=ProcessStatus.INIT)
    return end


def _expected(task_type: TaskType, outcome: Outcome) -> End:
    match task_type, outcome:
        case TaskType.REMOVE, Success():
            return End(Disposition.REMOVE)
        case _, Success(intent=Intent(action=Remove())):
            return End(Disposition.REMOVE)
        case _, Success(intent=Intent(action=SetTimer())):
            return End(Disposition.REPLACE, ProcessStatus.RUNNING)
        case _, Success(intent=Intent(action=UnsetTimer())):
            return End(Disposition.CANCEL, ProcessStatus.RUNNING)
        case _, Success():
            return End(Disposition.RESUME, ProcessStatus.RUNNING)
        case TaskType.INIT, Rejection():
            return End(Disposition.REMOVE)
        case ((TaskType.CALL | TaskType.NOTIFY), Rejection()):
            return End(Disposition.RESUME)
        case TaskType.REPAIR, _:
            return End(Disposition.HOLD)
        case ((TaskType.TIMEOUT | TaskType.REMOVE), (Rejection() | Failure(retryable=True))):
            return End(Disposition.RETRY)
        case _:
            return End(Disposition.BREAK, ProcessStatus.ERROR)


@pytest.mark.parametrize("in_init", [False, True])
@pytest.mark.parametrize("task_type", TaskType)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_of_every_task(
    make_task: Any, make_snapshot: Any, task_type: TaskType, outcome: str, in_init: bool
) -> None:
    """Each of type x outcome x action ends as the design says, and with all that belongs to it."""
    task, process = make_task(task_type), make_snapshot(**stands(task_type, in_init=in_init))
    decision = decide(process, task, OUTCOMES[outcome], POLICY)
    end = expected(task_type, OUTCOMES[outcome], in_init=in_init)
    assert End(decision.disposition, decision.status) == end
    check_consistency(decision, task, OUTCOMES[outcome])


def check_consistency(decision: Decision, task: Task, outcome: Outcome) -> None:
    task_type = task.task_type
    saved = (decision.events, decision.aux_state, decision.metadata, decision.reply.response)
    match outcome:
        case Success(intent=intent):
            assert saved == (intent.events, intent.aux_state, intent.metadata, intent.response)
            assert decision.reply.error is None
            assert decision.reply.rejection is None
            # What is removed has no timer, whatever was said of one.
            changes = decision.disposition in (Disposition.REPLACE, Disposition.CANCEL)
            assert decision.timer == (intent.action if changes else None)
            several = isinstance(intent.action, tuple) and task_type is not TaskType.REMOVE
            assert decision.changes == (intent.action if several else ())
        case Rejection() | Failure():
            breaks = decision.disposition is Disposition.BREAK
            assert saved == ((), None, None, None)
            # A timer that breaks its process leaves the same one in its place.
            held = SetTimer(at=task.scheduled_time, remove=task_type is TaskType.REMOVE)
            assert decision.timer == (held if breaks and task_type in TIMERS else None)
            refused = isinstance(outcome, Rejection) and task_type not in TIMERS
            assert (decision.reply.rejection is outcome) is refused
            assert (decision.reply.error is None) is refused
    assert (decision.retry_interval is None) is (decision.disposition is not Disposition.RETRY)


def test_the_tables_cover_everything() -> None:
    """No pair of task type and ending is left to chance; only a timer has no rejection."""
    rejected = {(task_type, Ending.REJECTION) for task_type in TIMERS}
    assert set(TABLE) == set(product(TaskType, Ending)) - rejected
    assert set(BROKEN_IN_INIT) < set(TABLE)
    assert set(RUNS_IN) == set(TaskType)
    assert set(VERBS) == set(Verb)
    assert set(EFFECTS) == set(Disposition)


def test_every_line_of_the_table_is_reached(make_task: Any, make_snapshot: Any) -> None:
    """By an outcome of a handler, or by the loss of a worker: nothing stands there that cannot happen."""
    reached: dict[tuple[TaskType, Ending], set[End]] = {}
    again: dict[tuple[TaskType, Ending], set[End]] = {}
    for task in map(make_task, TaskType):
        process = make_snapshot(**stands(task.task_type))
        ends = [(ending_of(task, each), decide(process, task, each, POLICY)) for each in OUTCOMES.values()]
        broken = make_snapshot(**stands(task.task_type, in_init=True))
        for each in OUTCOMES.values():
            key, decision = (task.task_type, ending_of(task, each)), decide(broken, task, each, POLICY)
            again.setdefault(key, set()).add(End(decision.disposition, decision.status))
        policies = [NamespaceOptions(on_zombie=each) for each in ("policy", "retry", "error")]
        ends += [(Ending.LOST, decide_lost(task, LOST, each)) for each in policies]
        for ending, decision in ends:
            end = End(decision.disposition, decision.status)
            reached.setdefault((task.task_type, ending), set()).add(end)
    assert reached == {key: set(rule.ends.values()) for key, rule in TABLE.items()}
    for key, rule in BROKEN_IN_INIT.items():
        assert again[key] == set(rule.ends.values())


def ending_of(task: Task, outcome: Outcome) -> Ending:
    match outcome:
        case Success():
            return Ending.SUCCESS
        case Rejection() if not task.task_type.is_timer:
            return Ending.REJECTION
        case _:
            return Ending.FAILURE


def test_rules_are_told_apart_by_their_names() -> None:
    """No two have one name, and no two say the same."""
    rules = {*TABLE.values(), *BROKEN_IN_INIT.values()}
    assert len({rule.name for rule in rules}) == len(rules)
    assert len({tuple(rule.ends.items()) for rule in rules}) == len(rules)


@pytest.mark.parametrize("task_type", [*BREAKING, TaskType.REPAIR])
def test_the_failure_text_is_the_reply(make_task: Any, make_snapshot: Any, task_type: TaskType) -> None:
    """Whoever asked gets the text of the failure, which is also the detail of a broken process."""
    decision = decide(make_snapshot(), make_task(task_type), FAILURE, POLICY)
    assert decision.reply.error == "ValueError: no"


def test_a_timers_rejection_is_a_failure(make_task: Any, make_snapshot: Any) -> None:
    """Nobody asked a timer, so its Reject is retried, and can be declared non-retryable by name."""
    task, process = make_task(TaskType.TIMEOUT), make_snapshot()
    assert decide(process, task, REJECTION, POLICY).reply.error == "Reject: no"
    final = RetryPolicy(non_retryable=("Reject",))
    assert decide(process, task, REJECTION, final).disposition is Disposition.BREAK


# Retries

durations = st.timedeltas(timedelta(microseconds=1), timedelta(days=3650))
policies = st.builds(
    RetryPolicy,
    initial_interval=durations,
    backoff_coefficient=st.floats(1, 1000),
    max_interval=durations,
    max_attempts=st.none(),
)


@given(policy=policies)
def test_intervals_grow_up_to_the_cap(make_task: Any, policy: RetryPolicy) -> None:
    """Each retry waits at least as long as the one before, and none longer than max_interval."""
    last = None
    for attempts in range(20):
        task = make_task(TaskType.TIMEOUT, attempts_count=attempts, last_retry_interval=last)
        interval = retry_interval(task, FAILURE, policy)
        assert interval is not None
        assert (last or timedelta(0)) <= interval <= policy.max_interval
        if last is None:
            assert interval == min(policy.initial_interval, policy.max_interval)
        last = interval


def test_intervals_follow_the_coefficient(make_task: Any) -> None:
    """With the default policy the waits are 1, 2, 4, 8 ... seconds."""
    waits, last = [], None
    for attempts in range(4):
        task = make_task(TaskType.TIMEOUT, attempts_count=attempts, last_retry_interval=last)
        last = retry_interval(task, FAILURE, POLICY)
        waits.append(last)
    assert waits == [timedelta(seconds=n) for n in (1, 2, 4, 8)]


@given(max_attempts=st.integers(1, 1000), attempts=st.integers(0, 2000))
def test_retries_are_exhausted_exactly_at_max_attempts(
    make_task: Any, max_attempts: int, attempts: int
) -> None:
    """`max_attempts` counts all attempts: the run that is the last of them is not retried."""
    policy = RetryPolicy(max_attempts=max_attempts)
    task = make_task(TaskType.TIMEOUT, attempts_count=attempts)
    retried = retry_interval(task, FAILURE, policy) is not None
    assert retried is (attempts + 1 < max_attempts)


def test_exhausted_retries_break_the_process(make_task: Any, make_snapshot: Any) -> None:
    """After the last attempt the process is in error and says why; the timer is held, as due as it was."""
    task = make_task(TaskType.TIMEOUT, attempts_count=59)
    assert decide(make_snapshot(), task, FAILURE, POLICY) == Decision(
        Disposition.BREAK,
        Reply(error=FAILURE.error),
        status=ProcessStatus.ERROR,
        timer=SetTimer(at=task.scheduled_time),
    )


def test_the_default_policy_outlives_half_a_day() -> None:
    """What fails for twelve hours is still tried: the sum of all waits is what the docs say."""
    waits: list[timedelta] = []
    while (wait := POLICY.interval_after(len(waits) + 1, waits[-1] if waits else None)) is not None:
        waits.append(wait)
    assert len(waits) == 59
    assert sum(waits, timedelta(0)) == timedelta(hours=12, minutes=32, seconds=3)


def test_the_first_retry_is_the_first_whatever_ran_before() -> None:
    """A run that lost its connection is no attempt: its pause lengthens and shortens none of the policy."""
    policy = RetryPolicy(timedelta(minutes=1), 3.0)
    assert policy.interval_after(1, timedelta(seconds=4)) == timedelta(minutes=1)
    assert policy.interval_after(2, timedelta(seconds=4)) == timedelta(seconds=12)


# Lost workers


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_by_default(make_task: Any, task_type: TaskType) -> None:
    """A timer is tried again as after a failure, for as long as the policy has attempts; others end."""
    tries = [
        make_task(task_type),
        make_task(task_type, attempts_count=1, last_retry_interval=timedelta(seconds=1)),
        make_task(task_type, attempts_count=59, last_retry_interval=timedelta(minutes=15)),
    ]
    decisions = [decide_lost(task, LOST, NamespaceOptions()) for task in tries]
    if task_type in TIMERS:
        reply = Reply(error="zombie detected")
        assert decisions[:2] == [
            Decision(Disposition.RETRY, reply, retry_interval=timedelta(seconds=seconds))
            for seconds in (1, 2)
        ]
        assert decisions[2] == ends_lost(tries[2])
    else:
        assert decisions == [ends_lost(task) for task in tries]


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_under_retry(make_task: Any, task_type: TaskType) -> None:
    """Every task goes back so many times, at once, whatever else it failed of; then it ends."""
    task = make_task(task_type, attempts_count=70)
    losses = [Lost("zombie detected", before=count) for count in range(4)]
    again = Decision(Disposition.RETRY, Reply(error="zombie detected"))
    options = NamespaceOptions(on_zombie="retry")
    assert [decide_lost(task, lost, options) for lost in losses] == [again] * 3 + [ends_lost(task)]
    options = NamespaceOptions(on_zombie="retry", zombie_attempts=1)
    assert decide_lost(task, losses[1], options) == ends_lost(task)


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_under_error(make_task: Any, task_type: TaskType) -> None:
    """Every loss ends the task."""
    task = make_task(task_type)
    assert decide_lost(task, LOST, NamespaceOptions(on_zombie="error")) == ends_lost(task)


def ends_lost(task: Task) -> Decision:
    """It breaks its process, with a timer held in its place; what was being repaired is broken anyway."""
    reply = Reply(error="zombie detected")
    if task.task_type is TaskType.REPAIR:
        return Decision(Disposition.HOLD, reply)
    held = SetTimer(at=task.scheduled_time, remove=task.task_type is TaskType.REMOVE)
    timer = held if task.task_type in TIMERS else None
    return Decision(Disposition.BREAK, reply, ProcessStatus.ERROR, timer=timer)


@pytest.mark.parametrize("listed", [KeyError, LookupError, Exception, "KeyError", "LookupError"])
def test_non_retryable_covers_class_base_class_and_name(make_task: Any, listed: Any) -> None:
    """A listed class, base class or name of one stops the retries at once."""
    failure = Failure("KeyError: 1", ("KeyError", "LookupError", "Exception"))
    policy = RetryPolicy(non_retryable=(listed,))
    assert retry_interval(make_task(TaskType.TIMEOUT), failure, policy) is None


def test_other_errors_are_retried(make_task: Any) -> None:
    """What is not listed is retried."""
    policy = RetryPolicy(non_retryable=(KeyError,))
    assert retry_interval(make_task(TaskType.TIMEOUT), FAILURE, policy) is not None


def test_the_largest_interval_does_not_overflow(make_task: Any) -> None:
    """A policy at its bounds still has an interval: its longest."""
    longest = timedelta(days=3650)
    policy = RetryPolicy(backoff_coefficient=1000, initial_interval=longest, max_interval=longest)
    task = make_task(TaskType.TIMEOUT, last_retry_interval=longest)
    assert retry_interval(task, FAILURE, policy) == longest


@pytest.mark.parametrize("outcome", [Success(Intent()), REJECTION, FAILURE])
def test_a_process_keeps_its_group(make_task: Any, make_snapshot: Any, outcome: Outcome) -> None:
    """However the step ends, the next one sees it: a process enters a group once."""
    process, task = make_snapshot(group_no=7), make_task(TaskType.CALL)
    decision = decide(process, task, outcome, POLICY)
    assert after(process, task, decision, now=task.running_time, timers=()).group_no == 7
