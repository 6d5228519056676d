"""The transition table, over the whole of its domain."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    SetTimer,
    Success,
    Task,
    TaskType,
    UnsetTimer,
)
from progressor.transitions import (
    RUNS_IN,
    TABLE,
    GoesBack,
    Loss,
    OutcomeKind,
    decide,
    diagram,
    judge,
    retry_interval,
)

POLICY = RetryPolicy()
TIMER = SetTimer(after=timedelta(days=1))
ACTIONS: list[Action | None] = [None, TIMER, SetTimer(after=timedelta(0), remove=True)]
ACTIONS += [UnsetTimer(), Remove()]
TIMERS = (TaskType.TIMEOUT, TaskType.REMOVE)
BREAKING = (TaskType.INIT, TaskType.CALL, TaskType.NOTIFY)
REJECTION = Rejection("no", {"left": 1})
FAILURE = Failure("ValueError: no", ("ValueError", "Exception"))
OUTCOMES: list[Outcome] = [
    *(
        Success(Intent((Event(b"1", {"name": "paid"}),), action, b"2", b"3", {"k": 4}))
        for action in ACTIONS
    ),
    REJECTION,
    FAILURE,
    Failure("NonRetryable: no", ("NonRetryable", "Exception"), retryable=False),
]


def expected(task_type: TaskType, outcome: Outcome) -> Disposition:  # an oracle spells things out
    match task_type, outcome:
        case TaskType.REMOVE, Success():
            return Disposition.REMOVE
        case _, Success(intent=intent):
            by_action = {
                type(None): Disposition.RESUME,
                SetTimer: Disposition.REPLACE,
                UnsetTimer: Disposition.CANCEL,
                Remove: Disposition.REMOVE,
            }
            return by_action[type(intent.action)]
        case ((TaskType.TIMEOUT | TaskType.REMOVE), Failure(retryable=False)):
            return Disposition.BREAK
        case ((TaskType.TIMEOUT | TaskType.REMOVE), (Failure() | Rejection())):
            return Disposition.RETRY
        case TaskType.INIT, Rejection():
            return Disposition.REMOVE
        case ((TaskType.CALL | TaskType.NOTIFY), Rejection()):
            return Disposition.RESUME
        case TaskType.REPAIR, (Failure() | Rejection()):
            return Disposition.HOLD
        case ((TaskType.INIT | TaskType.CALL | TaskType.NOTIFY), Failure()):
            return Disposition.BREAK
        case _:
            pytest.fail("the oracle has a hole")


def test_the_table_covers_every_task_type_and_outcome() -> None:
    """No pair of task type and outcome is left to chance."""
    assert set(TABLE) == set(product(TaskType, OutcomeKind))
    assert set(RUNS_IN) == set(TaskType)


@pytest.mark.parametrize("task_type", TaskType)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_disposition(make_task: Any, task_type: TaskType, outcome: Outcome) -> None:
    """Each of type x outcome x action ends as the design says."""
    task = make_task(task_type)
    decision = decide(task, outcome, POLICY)
    assert decision.disposition is expected(task_type, outcome)
    check_consistency(decision, task, outcome)


def check_consistency(decision: Decision, task: Task, outcome: Outcome) -> None:
    task_type = task.task_type
    saved = (decision.events, decision.aux_state, decision.metadata, decision.reply.response)
    match outcome:
        case Success(intent=intent):
            expected = None if task_type is TaskType.REMOVE else ProcessStatus.RUNNING
            assert decision.status is expected
            assert saved == (intent.events, intent.aux_state, intent.metadata, intent.response)
            assert decision.reply.error is None
            assert decision.reply.rejection is None
            # What is removed has no timer, whatever was said of one.
            sets = decision.disposition is Disposition.REPLACE
            assert decision.timer == (intent.action if sets else None)
        case Rejection() | Failure():
            breaks = decision.disposition is Disposition.BREAK
            assert decision.status is (ProcessStatus.ERROR if breaks else None)
            assert saved == ((), None, None, None)
            # A timer that breaks its process leaves the same one in its place.
            held = SetTimer(at=task.scheduled_time, remove=task_type is TaskType.REMOVE)
            assert decision.timer == (held if breaks and task_type in TIMERS else None)
            refused = isinstance(outcome, Rejection) and task_type not in TIMERS
            assert (decision.reply.rejection is outcome) is refused
            assert (decision.reply.error is None) is refused
    assert (decision.retry_interval is None) is (decision.disposition is not Disposition.RETRY)


@pytest.mark.parametrize("task_type", [*BREAKING, TaskType.REPAIR])
def test_the_failure_text_is_the_reply(make_task: Any, task_type: TaskType) -> None:
    """Whoever asked gets the text of the failure, which is also the detail of a broken process."""
    decision = decide(make_task(task_type), FAILURE, POLICY)
    assert decision.reply.error == "ValueError: no"


def test_a_failed_repair_changes_nothing(make_task: Any) -> None:
    """After a failed repair the process is broken as before, its timer held."""
    decision = decide(make_task(TaskType.REPAIR), FAILURE, POLICY)
    assert (decision.status, decision.disposition) == (None, Disposition.HOLD)


def test_a_timer_refusal_is_a_failure(make_task: Any) -> None:
    """Nobody asked a timer, so its Reject is retried, and can be declared non-retryable by name."""
    task = make_task(TaskType.TIMEOUT)
    assert decide(task, REJECTION, POLICY).reply.error == "Reject: no"
    final = RetryPolicy(non_retryable=("Reject",))
    assert decide(task, REJECTION, final).disposition is Disposition.BREAK


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


@pytest.mark.parametrize("task_type", TIMERS)
def test_exhausted_retries_break_the_process(make_task: Any, task_type: TaskType) -> None:
    """After the last attempt the process is in error and says why; the timer is held, as due as it was."""
    task = make_task(task_type, attempts_count=59)
    decision = decide(task, FAILURE, POLICY)
    assert decision == Decision(
        Disposition.BREAK,
        Reply(error=FAILURE.error),
        status=ProcessStatus.ERROR,
        timer=SetTimer(at=task.scheduled_time, remove=task_type is TaskType.REMOVE),
    )


def test_the_default_policy_outlives_half_a_day() -> None:
    """What fails for twelve hours is still tried: the sum of all waits is what the docs say."""
    waits: list[timedelta] = []
    while (wait := POLICY.interval_after(len(waits) + 1, waits[-1] if waits else None)) is not None:
        waits.append(wait)
    assert len(waits) == 59
    assert sum(waits, timedelta(0)) == timedelta(hours=12, minutes=32, seconds=3)


# Lost workers


def judged(loss: Loss, **options: Any) -> GoesBack | None:
    return judge(loss, NamespaceOptions(**options))


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_by_default(task_type: TaskType) -> None:
    """A timer is tried again as after a failure, for as long as the policy has attempts; others break."""
    first, second = Loss(task_type, 0, None, 0), Loss(task_type, 1, timedelta(seconds=1), 1)
    last = Loss(task_type, 59, timedelta(minutes=15), 59)
    if task_type in TIMERS:
        assert judged(first) == GoesBack(timedelta(seconds=1))
        assert judged(second) == GoesBack(timedelta(seconds=2))
    else:
        assert judged(first) is None
    assert judged(last) is None


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_under_retry(task_type: TaskType) -> None:
    """Every task goes back so many times, whatever else it failed of."""
    losses = [Loss(task_type, 70, None, count) for count in range(4)]
    assert [judged(loss, on_zombie="retry") for loss in losses] == [GoesBack()] * 3 + [None]
    assert judged(losses[1], on_zombie="retry", zombie_attempts=1) is None


@pytest.mark.parametrize("task_type", TaskType)
def test_a_lost_worker_under_error(task_type: TaskType) -> None:
    """Every loss breaks the process."""
    assert judged(Loss(task_type, 0, None, 0), on_zombie="error") is None


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


# The diagram


def test_the_diagram_is_deterministic_and_complete() -> None:
    """Every task type, outcome and disposition of the table stands in the diagram."""
    text = diagram()
    assert text == diagram()
    assert text.startswith("stateDiagram-v2\n    [*] --> init : start\n")
    words = {word.strip(",") for word in text.split()}
    assert words >= {*TaskType, *OutcomeKind, *Disposition, *ProcessStatus, "removed"}


@pytest.mark.parametrize(
    "edge",
    [
        "init --> running : init / success / resume, replace, cancel",
        "init --> removed : init / rejection / remove",
        "running --> error : call, notify / failure / break",
        "running --> running : timeout, remove / failure / retry",
        "error --> error : repair / failure / hold",
        "error --> running : repair / success / resume, replace, cancel",
    ],
)
def test_the_diagram_draws(edge: str) -> None:
    """The edges that the guarantees speak of are drawn."""
    assert f"    {edge}\n" in diagram()
