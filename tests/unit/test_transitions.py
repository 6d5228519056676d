"""The transition table, over the whole of its domain."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from progressor.config import RetryPolicy
from progressor.model import (
    Action,
    Decision,
    Disposition,
    Event,
    Failure,
    Intent,
    Outcome,
    ProcessStatus,
    Refusal,
    Remove,
    SetTimer,
    Success,
    TaskType,
    UnsetTimer,
)
from progressor.transitions import RUNS_IN, TABLE, OutcomeKind, decide, diagram, retry_interval

POLICY = RetryPolicy()
TIMER = SetTimer(after=timedelta(days=1))
ACTIONS: list[Action | None] = [None, TIMER, SetTimer(after=timedelta(0), remove=True)]
ACTIONS += [UnsetTimer(), Remove()]
TIMERS = (TaskType.TIMEOUT, TaskType.REMOVE)
BREAKING = (TaskType.INIT, TaskType.CALL, TaskType.NOTIFY)
REFUSAL = Refusal("no", {"left": 1})
FAILURE = Failure("ValueError: no", ("ValueError", "Exception"))
OUTCOMES: list[Outcome] = [
    *(
        Success(Intent((Event(b"1", {"name": "paid"}),), action, b"2", b"3", {"k": 4}))
        for action in ACTIONS
    ),
    REFUSAL,
    FAILURE,
    Failure("NonRetryable: no", ("NonRetryable", "Exception"), retryable=False),
]
PROCESSES = list(product(ProcessStatus, (None, 5)))


def expected(  # an oracle spells things out
    task_type: TaskType, corrupted_by: int | None, outcome: Outcome
) -> Disposition:
    match task_type, outcome:
        case TaskType.REMOVE, Success():
            return Disposition.REMOVE
        case TaskType.REPAIR, Success(intent=Intent(action=None)) if corrupted_by is not None:
            return Disposition.RERUN
        case _, Success(intent=intent):
            by_action = {
                type(None): Disposition.UNLOCK,
                SetTimer: Disposition.CONTINUE,
                UnsetTimer: Disposition.SUSPEND,
                Remove: Disposition.REMOVE,
            }
            return by_action[type(intent.action)]
        case ((TaskType.TIMEOUT | TaskType.REMOVE), Failure(retryable=False)):
            return Disposition.FAIL
        case ((TaskType.TIMEOUT | TaskType.REMOVE), (Failure() | Refusal())):
            return Disposition.RETRY
        case TaskType.INIT, Refusal():
            return Disposition.REMOVE
        case ((TaskType.CALL | TaskType.NOTIFY | TaskType.REPAIR), Refusal()):
            return Disposition.UNLOCK
        case TaskType.REPAIR, Failure():
            return Disposition.UNLOCK
        case ((TaskType.INIT | TaskType.CALL | TaskType.NOTIFY), Failure()):
            return Disposition.FAIL
        case _:
            pytest.fail("the oracle has a hole")


def test_the_table_covers_every_task_type_and_outcome() -> None:
    """No pair of task type and outcome is left to chance."""
    assert set(TABLE) == set(product(TaskType, OutcomeKind))
    assert set(RUNS_IN) == set(TaskType)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("task_type", TaskType)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_disposition(
    make_task: Any,
    make_snapshot: Any,
    process: tuple[ProcessStatus, int | None],
    task_type: TaskType,
    outcome: Outcome,
) -> None:
    """Each of status x corrupted_by x type x outcome x action ends as the design says."""
    status, corrupted_by = process
    snapshot = make_snapshot(status, corrupted_by=corrupted_by)
    decision = decide(snapshot, make_task(task_type), outcome, POLICY)
    assert decision.disposition is expected(task_type, corrupted_by, outcome)
    check_consistency(decision, task_type, outcome)


def check_consistency(decision: Decision, task_type: TaskType, outcome: Outcome) -> None:
    saved = (decision.events, decision.aux_state, decision.metadata, decision.reply.response)
    match outcome:
        case Success(intent=intent):
            expected = None if task_type is TaskType.REMOVE else ProcessStatus.RUNNING
            assert decision.status is expected
            assert saved == (intent.events, intent.aux_state, intent.metadata, intent.response)
            assert decision.reply.error is None
            assert decision.reply.refusal is None
            assert decision.timer == (intent.action if isinstance(intent.action, SetTimer) else None)
        case Refusal() | Failure():
            breaks = decision.disposition is Disposition.FAIL
            assert decision.status is (ProcessStatus.ERROR if breaks else None)
            assert saved == ((), None, None, None)
            assert decision.timer is None
            refused = isinstance(outcome, Refusal) and task_type not in TIMERS
            assert (decision.reply.refusal is outcome) is refused
            assert (decision.reply.error is None) is refused
    assert (decision.retry_interval is None) is (decision.disposition is not Disposition.RETRY)


@pytest.mark.parametrize("task_type", [*BREAKING, TaskType.REPAIR])
def test_the_failure_text_is_the_reply(make_task: Any, make_snapshot: Any, task_type: TaskType) -> None:
    """Whoever asked gets the text of the failure, which is also the detail of a broken process."""
    decision = decide(make_snapshot(), make_task(task_type), FAILURE, POLICY)
    assert decision.reply.error == "ValueError: no"


def test_a_failed_repair_changes_nothing(make_task: Any, make_snapshot: Any) -> None:
    """After a failed repair the process is broken as before, with its first detail."""
    process = make_snapshot(ProcessStatus.ERROR, corrupted_by=5, detail="first")
    decision = decide(process, make_task(TaskType.REPAIR), FAILURE, POLICY)
    assert (decision.status, decision.disposition) == (None, Disposition.UNLOCK)


def test_a_timer_refusal_is_a_failure(make_task: Any, make_snapshot: Any) -> None:
    """Nobody asked a timer, so its Reject is retried, and can be declared non-retryable by name."""
    task = make_task(TaskType.TIMEOUT)
    assert decide(make_snapshot(), task, REFUSAL, POLICY).reply.error == "Reject: no"
    final = RetryPolicy(non_retryable=("Reject",))
    assert decide(make_snapshot(), task, REFUSAL, final).disposition is Disposition.FAIL


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
    """After the last attempt the process is in error, and says why."""
    task = make_task(TaskType.TIMEOUT, attempts_count=9)
    decision = decide(make_snapshot(), task, FAILURE, POLICY)
    assert decision == Decision(
        Disposition.FAIL, decision.reply, status=ProcessStatus.ERROR, retry_interval=None
    )
    assert decision.reply.error == FAILURE.error


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
        "init --> running : init / success / unlock, continue, suspend",
        "init --> removed : init / refusal / remove",
        "running --> error : call, notify / failure / fail",
        "running --> running : timeout, remove / failure / retry",
        "error --> error : repair / failure / unlock",
        "error --> running : repair / success / unlock, continue, suspend, rerun",
    ],
)
def test_the_diagram_draws(edge: str) -> None:
    """The edges that the guarantees speak of are drawn."""
    assert f"    {edge}\n" in diagram()
