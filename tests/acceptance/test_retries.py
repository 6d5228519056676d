"""Failing timers: tried again as the retry policy says, until they succeed or break the process."""

from datetime import timedelta

import pytest

from progressor import NonRetryable, Reject, RetryPolicy
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted, timers, until, until_events, until_status

MILLISECONDS = timedelta(milliseconds=1)


class CardDeclined(Exception):
    """A failure that no repetition mends."""


class CardExpired(CardDeclined):
    """A special case of it."""


def policy(**fields: object) -> RetryPolicy:
    return RetryPolicy(**{"initial_interval": 5 * MILLISECONDS, **fields})


async def test_a_failing_timer_is_tried_again(serve: MakeClient) -> None:
    """The same timer task runs again until it succeeds; the process stays running all the while."""
    scripted = Scripted(retry_policy=policy())
    scripted.faults["p"].extend([ValueError("one"), ValueError("two")])
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0))
    await until_events(client, "p", "fired")
    (timer,) = await timers(client, "p")
    assert (timer.status, timer.attempts_count, timer.error) == ("finished", 2, None)
    assert scripted.ran == [("p", "init"), ("p", "fault"), ("p", "fault"), ("p", "timeout")]


async def test_intervals_grow_up_to_the_longest(serve: MakeClient) -> None:
    """The n-th retry waits initial_interval * backoff_coefficient ** (n - 1), at most max_interval."""
    intervals = []
    for count in range(1, 5):
        scripted = Scripted(
            f"bank.n{count}",
            retry_policy=policy(backoff_coefficient=3.0, max_interval=40 * MILLISECONDS),
        )
        scripted.faults["p"].extend([ValueError("no")] * count)
        client = await serve(scripted.namespace)
        await client.start(scripted.name, "p", Act(after=0))
        await until_events(client, "p", "fired", namespace=scripted.name)
        (timer,) = await timers(client, "p", namespace=scripted.name)
        intervals.append(timer.last_retry_interval)
    assert intervals == [5 * MILLISECONDS, 15 * MILLISECONDS, 40 * MILLISECONDS, 40 * MILLISECONDS]


async def test_exhausted_retries_break_the_process(serve: MakeClient) -> None:
    """After max_attempts attempts the process is broken by that task, with the last error as detail."""
    scripted = Scripted(retry_policy=policy(max_attempts=3))
    scripted.faults["p"].extend([ValueError("one"), ValueError("two"), ValueError("three")])
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0))
    await until_status(client, "p", "error")
    process, (timer, held) = await client.get(NS, "p"), await timers(client, "p")
    assert (process.detail, process.corrupted_by) == ("ValueError: three", timer.task_id)
    assert (timer.status, timer.attempts_count, timer.error) == ("error", 2, "ValueError: three")
    assert (held.status, held.attempts_count, held.scheduled_time) == ("held", 0, timer.scheduled_time)
    assert len(scripted.ran) == 4


@pytest.mark.parametrize(
    ("listed", "raised"),
    [
        ((), NonRetryable("give up")),
        ((CardDeclined,), CardDeclined("no")),
        ((CardDeclined,), CardExpired("no")),
        (("CardDeclined",), CardExpired("no")),
        (("Reject",), Reject("no")),
    ],
    ids=["NonRetryable", "by class", "by base class", "by name", "Reject by name"],
)
async def test_what_is_not_retried(
    engine: MakeClient, listed: tuple[object, ...], raised: Exception
) -> None:
    """NonRetryable, and what the policy lists by class or by name, break the process at once."""
    scripted = Scripted(retry_policy=policy(non_retryable=listed))
    scripted.faults["p"].append(raised)
    client = (await engine(scripted.namespace)).client
    await client.start(NS, "p", Act(after=0))
    await until_status(client, "p", "error")
    timer, _ = await timers(client, "p")
    assert timer.attempts_count == 0
    assert timer.error.startswith(type(raised).__name__)


async def test_a_refusing_timer_is_tried_again(serve: MakeClient) -> None:
    """A timeout handler that rejects has nobody to refuse: it is tried again like any failure."""
    scripted = Scripted(retry_policy=policy())
    scripted.faults["p"].append(Reject("not yet"))
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0))
    await until_events(client, "p", "fired")
    (timer,) = await timers(client, "p")
    assert (timer.attempts_count, timer.status) == (1, "finished")


async def test_a_call_runs_between_two_attempts(serve: MakeClient) -> None:
    """While a failed timer waits for its next attempt the process takes calls, and keeps the attempt."""
    scripted = Scripted(retry_policy=policy(initial_interval=timedelta(minutes=5)))
    scripted.faults["p"].append(ValueError("once"))
    client = await serve(scripted.namespace)
    await client.start(NS, "p", Act(after=0))
    (before,) = await until(lambda: timers(client, "p"), lambda timers: timers[0].attempts_count)
    assert await client.call(NS, "p", "act", Act(add=1)) == 1
    (after,) = await timers(client, "p")
    assert (before.status, before.error) == ("waiting", "ValueError: once")
    assert after == before
    assert after.scheduled_time - after.running_time >= timedelta(minutes=5)
