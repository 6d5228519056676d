"""save_result: each disposition ends a step and puts the right task in its place."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from progressor.model import Decision, Rejection, Reply, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import LostLease, Saved, TaskRef
from progressor.timers import SetTimer
from tests.support import (
    MICROSECOND,
    NS,
    SECOND,
    T0,
    WORKER,
    Held,
    Tables,
    break_process,
    cancel,
    claim_calls,
    claim_timers,
    events,
    fail,
    fail_repair,
    fail_timer,
    held,
    hint_of,
    hold,
    init,
    refuse,
    refuse_init,
    refuse_repair,
    removed,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

LATER = T0 + timedelta(hours=1)


async def running_timer(storage: Storage, process_id: str = "p1") -> Held:
    """A timer task that runs."""
    first = await hold(storage, init(process_id))
    decision = set_timer(timedelta(0))
    return first.next(await save(storage, first, decision), decision)


async def break_with_timer(storage: Storage, *, by_timer: bool) -> None:
    """A process that is broken, by a call or by its timer, and holds a timer that is due at T0 + SECOND."""
    await start(storage, "p1", set_timer(SECOND))
    if by_timer:
        (step,) = await claim_timers(storage, now=T0 + SECOND)
        await save(storage, step, fail_timer(step.task), now=T0 + SECOND)
    else:
        await save(storage, await hold(storage, request()), fail())


async def repairing(storage: Storage, process_id: str) -> Held:
    """A repair that runs."""
    await break_process(storage, process_id)
    return await hold(storage, repair(process_id))


# What a step leaves behind.


async def test_saves_all_of_a_step(storage: Storage, tables: Tables) -> None:
    """State, metadata, events, response and the finished task are there together."""
    step = await hold(storage, init())
    decision = resume(
        aux_state=b"\x00state",
        metadata={"plan": "pro", "n": [1, None]},
        events=events(3),
        reply=Reply(response=b"\xffanswer"),
    )
    saved = await save(storage, step, decision, now=LATER)
    assert saved == Saved(LATER)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("running", "init")
    assert (row["aux_state"], row["metadata"]) == (b"\x00state", {"plan": "pro", "n": [1, None]})
    assert (row["last_event_id"], row["status_changed_at"], row["created_at"]) == (3, LATER, T0)
    task = tables.task(step.task.task_id)
    assert task is not None
    assert (task["status"], task["response"], task["error"]) == ("finished", b"\xffanswer", None)
    assert (task["running_time"], task["finished_time"]) == (T0, LATER)
    assert [
        (e["event_id"], e["task_id"], e["timestamp"], e["metadata"], e["payload"]) for e in tables.events()
    ] == [(n, step.task.task_id, LATER, {"name": f"e{n - 1}"}, b"payload") for n in (1, 2, 3)]
    assert tables.running() is None


async def test_keeps_what_the_step_did_not_set(storage: Storage, tables: Tables) -> None:
    """None for state and metadata keeps them; an unchanged status keeps the time of its change."""
    await start(storage, "p1", resume(aux_state=b"state", metadata={"plan": "pro"}))
    before = tables.process()
    await save(storage, await hold(storage, request()), resume(), now=LATER)
    assert tables.process() == before


async def test_empty_values_are_values(storage: Storage, tables: Tables) -> None:
    """Empty bytes and empty metadata replace what there was; they are not None."""
    await start(storage, "p1", resume(aux_state=b"state", metadata={"plan": "pro"}))
    decision = resume(aux_state=b"", metadata={}, reply=Reply(response=b""))
    step = await hold(storage, request())
    await save(storage, step, decision)
    row, task = tables.process(), tables.task(step.task.task_id)
    assert row is not None
    assert task is not None
    assert (row["aux_state"], row["metadata"], task["response"]) == (b"", {}, b"")


async def test_events_are_numbered_on(storage: Storage, tables: Tables) -> None:
    """Along a chain of steps the numbers go on without a gap."""
    step = await hold(storage, init())
    for count in (2, 0, 3, 1):
        decision = set_timer(timedelta(0), events=events(count))
        step = step.next(await save(storage, step, decision), decision)
    assert [event["event_id"] for event in tables.events()] == [1, 2, 3, 4, 5, 6]


async def test_numbers_beyond_16_and_32_bits(storage: Storage, tables: Tables) -> None:
    """Event and task numbers are 64 bits wide, in the tables and on their way."""
    tables.execute("ALTER SEQUENCE tasks_task_id_seq RESTART WITH 4611686018427387904")
    await start(storage)
    for last in (2**15 - 2, 2**31 - 2, 2**62):
        tables.execute("UPDATE processes SET last_event_id = %s", last)
        step = await hold(storage, request())
        assert step.process.last_event_id == last
        assert step.task.task_id > 2**62
        await save(storage, step, resume(events=events(3)))
        found = [event["event_id"] for event in tables.events()]
        assert found == [last + 1, last + 2, last + 3]
        tables.execute("DELETE FROM events")
    tables.execute("UPDATE processes SET last_event_id = 0")


async def test_many_events_in_one_step(storage: Storage, tables: Tables) -> None:
    """One step may write more events than 16 bits can count."""
    await save(storage, await hold(storage, init()), resume(events=events(33_000)))
    (row,) = tables.execute("SELECT count(*) AS n, max(event_id) AS high FROM events")
    assert (row["n"], row["high"]) == (33_000, 33_000)


# A new timer: replace.


async def test_replace_due_now(storage: Storage, tables: Tables) -> None:
    """A timer that is due runs at once, on the same worker, under the next lease."""
    step = await hold(storage, init())
    saved = await save(storage, step, set_timer(timedelta(0)), now=LATER)
    task = saved.continuation
    assert task is not None
    assert (task.task_type, task.args, task.name) == (TaskType.TIMEOUT, None, None)
    assert (task.worker_id, task.lease) == (WORKER, step.task.lease + 1)
    assert task.scheduled_time == task.running_time == LATER
    assert saved.due is None
    assert tables.outline() == [("init", "finished"), ("timeout", "running")]


async def test_replace_due_in_the_past(storage: Storage) -> None:
    """A time that has passed is due now; the task keeps the time it was meant for."""
    saved = await save(storage, await hold(storage, init()), set_timer(at=T0 - SECOND))
    assert saved.continuation is not None
    assert saved.continuation.scheduled_time == T0 - SECOND


@pytest.mark.parametrize("remove", [False, True])
async def test_replace_later(storage: Storage, tables: Tables, *, remove: bool) -> None:
    """A timer of the future waits; the answer says when it is due, and the process rests."""
    saved = await save(storage, await hold(storage, init()), set_timer(SECOND, remove=remove))
    assert saved == Saved(T0, due=T0 + SECOND)
    (row,) = tables.schedule()
    assert (row["task_type"], row["status"], row["claimable"]) == (
        "remove" if remove else "timeout",
        "waiting",
        True,
    )
    assert tables.running() is None


async def test_replace_counts_microseconds(storage: Storage) -> None:
    """A timer that is due in a microsecond is not due; a microsecond later it is."""
    saved = await save(storage, await hold(storage, init()), set_timer(MICROSECOND))
    assert saved == Saved(T0, due=T0 + MICROSECOND)
    assert await claim_timers(storage, now=T0) == []
    (step,) = await claim_timers(storage, now=T0 + MICROSECOND)
    assert step.task.scheduled_time == T0 + MICROSECOND


async def test_replace_at_a_given_time(storage: Storage) -> None:
    """`at` is kept to the microsecond, from any time zone, far away too."""
    zone = T0.astimezone(ZoneInfo("Asia/Kathmandu"))
    for process_id, at in (("near", zone + MICROSECOND), ("far", zone.replace(year=9000))):
        saved = await save(storage, await hold(storage, init(process_id)), set_timer(at=at))
        assert saved.due == at


async def test_replace_replaces_the_old_timer(storage: Storage, tables: Tables) -> None:
    """The timer that a call blocked is cancelled when the call sets another."""
    await start(storage, "p1", set_timer(SECOND))
    saved = await save(storage, await hold(storage, request()), set_timer(2 * SECOND))
    assert saved.due == T0 + 2 * SECOND
    assert tables.outline()[1:] == [
        ("timeout", "cancelled"),
        ("call", "finished"),
        ("timeout", "waiting"),
    ]
    assert tables.tasks()[1]["error"] == "timer replaced"


async def test_replace_replaces_the_old_timer_at_once(storage: Storage, tables: Tables) -> None:
    """A new timer that is due at once takes the old one's place too, a removal that of a timeout."""
    await start(storage, "p1", set_timer(SECOND))
    saved = await save(storage, await hold(storage, request()), set_timer(timedelta(0), remove=True))
    assert saved.continuation is not None
    assert saved.continuation.task_type is TaskType.REMOVE
    assert tables.outline()[1:] == [
        ("timeout", "cancelled"),
        ("call", "finished"),
        ("remove", "running"),
    ]


@pytest.mark.parametrize("after", [timedelta(0), SECOND])
async def test_replace_lets_a_call_go_first(storage: Storage, tables: Tables, after: timedelta) -> None:
    """A waiting call runs first, and the new timer is blocked behind it, due or not."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    waiting = await wait(storage, request(args=b"2"))
    saved = await save(storage, step, set_timer(after))
    assert saved.continuation is not None
    assert (saved.continuation.task_id, saved.continuation.args) == (waiting.task_id, b"2")
    assert saved.due is None
    assert tables.outline()[1:] == [
        ("timeout", "cancelled"),
        ("call", "finished"),
        ("call", "running"),
        ("timeout", "blocked"),
    ]


# No action: resume.


async def test_resume_without_anything(storage: Storage, tables: Tables) -> None:
    """Without timer and mail the process rests."""
    assert await save(storage, await hold(storage, init()), resume()) == Saved(T0)
    assert tables.schedule() == []


async def test_resume_resumes_the_timer(storage: Storage, tables: Tables) -> None:
    """The blocked timer waits again, for the time that it had."""
    await start(storage, "p1", set_timer(SECOND))
    saved = await save(storage, await hold(storage, request()), resume())
    assert saved == Saved(T0, due=T0 + SECOND)
    (row,) = tables.schedule()
    assert (row["status"], row["claimable"], row["scheduled_time"]) == ("waiting", True, T0 + SECOND)


async def test_resume_runs_a_timer_that_fell_due(storage: Storage, tables: Tables) -> None:
    """A timer that fell due under the call runs at once, as itself."""
    await start(storage, "p1", set_timer(SECOND))
    timer_id = tables.schedule()[0]["task_id"]
    step = await hold(storage, request())
    saved = await save(storage, step, resume(), now=T0 + SECOND)
    task = saved.continuation
    assert task is not None
    assert (task.task_id, task.task_type) == (timer_id, TaskType.TIMEOUT)
    assert (task.scheduled_time, task.running_time) == (T0 + SECOND, T0 + SECOND)
    assert task.lease == step.task.lease + 1
    assert tables.schedule() == []


async def test_resume_runs_the_next_call(storage: Storage, tables: Tables) -> None:
    """The oldest waiting call runs next, with all that it brought; the timer stays blocked."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    asked = request(key="k2", args=b"2", context=b"ctx", name="pay", reply_to=9)
    second = await wait(storage, asked)
    third = await wait(storage, request("p1", TaskType.NOTIFY, args=b"3"))
    saved = await save(storage, step, resume(), now=LATER)
    task = saved.continuation
    assert task is not None
    assert (task.task_id, task.args, task.context) == (second.task_id, b"2", b"ctx")
    assert (task.name, task.reply_to, task.idempotency_key) == ("pay", 9, "k2")
    assert (task.scheduled_time, task.running_time) == (T0, LATER)
    saved = await save(storage, step.next(saved, resume()), resume(), now=LATER)
    assert saved.continuation is not None
    assert (saved.continuation.task_id, saved.continuation.task_type) == (
        third.task_id,
        TaskType.NOTIFY,
    )
    assert tables.outline()[1][1] == "blocked"


async def test_refused_call_changes_nothing(storage: Storage, tables: Tables) -> None:
    """A refused call leaves its rejection; process and timer are as before."""
    await start(storage, "p1", set_timer(SECOND))
    before = (tables.process(), tables.schedule())
    step = await hold(storage, request())
    assert await save(storage, step, refuse("poor", missing=3)) == Saved(T0, due=T0 + SECOND)
    assert (tables.process(), tables.schedule()) == before
    task = tables.task(step.task.task_id)
    assert task is not None
    assert (task["status"], task["error"]) == ("error", "rejected: poor")
    (answer,) = await storage.replies([step.ref.key])
    assert answer.rejection() == Rejection("poor", {"missing": 3})


# No timer: cancel.


async def test_cancel_cancels_the_timer(storage: Storage, tables: Tables) -> None:
    """The timer is cancelled; nothing is due any more, even if it fell due meanwhile."""
    await start(storage, "p1", set_timer(SECOND))
    saved = await save(storage, await hold(storage, request()), cancel(), now=LATER)
    assert saved == Saved(LATER)
    assert tables.schedule() == []
    timer = tables.tasks()[1]
    assert (timer["status"], timer["error"], timer["finished_time"]) == (
        "cancelled",
        "timer unset",
        LATER,
    )


async def test_cancel_without_a_timer(storage: Storage) -> None:
    """There need not be a timer to unset."""
    assert await save(storage, await hold(storage, init()), cancel()) == Saved(T0)


async def test_cancel_runs_the_next_call(storage: Storage, tables: Tables) -> None:
    """Only timers are cancelled: a waiting call runs."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request())
    waiting = await wait(storage, request())
    saved = await save(storage, step, cancel())
    assert saved.continuation is not None
    assert saved.continuation.task_id == waiting.task_id
    assert tables.schedule() == []


# A process that breaks: its timer is held, until a repair.


async def test_fail_holds_the_timer(storage: Storage, tables: Tables) -> None:
    """The timer of a process that a call breaks stays as it is, but nobody may claim it."""
    await start(storage, "p1", set_timer(SECOND))
    (before,) = tables.schedule()
    assert await save(storage, await hold(storage, request()), fail(), now=LATER) == Saved(LATER)
    (timer,) = tables.schedule()
    assert timer == {**before, "status": "held", "claimable": False}
    assert tables.outline()[1] == ("timeout", "held")
    assert await claim_timers(storage, now=LATER) == []
    ref = TaskRef(NS, timer["process_no"], timer["task_id"])
    assert await storage.capture_task(ref, worker_id=WORKER, lease=1, now=LATER) is None


async def test_fail_of_a_timer_holds_another_one(storage: Storage, tables: Tables) -> None:
    """A timer that breaks its process leaves the same one in its place: fresh, and as due as it was."""
    step = await running_timer(storage)
    retried = await save(storage, step, retry(SECOND), now=LATER)
    assert retried.due is not None
    (again,) = await claim_timers(storage, now=retried.due)
    assert again.task.attempts_count == 1
    saved = await save(storage, again, fail_timer(again.task), now=LATER + 2 * SECOND)
    assert saved == Saved(LATER + 2 * SECOND)
    assert tables.outline()[1:] == [("timeout", "error"), ("timeout", "held")]
    (timer,) = tables.schedule()
    assert (timer["scheduled_time"], timer["claimable"]) == (retried.due, False)
    task = tables.task(timer["task_id"])
    assert task is not None
    assert (task["attempts_count"], task["last_retry_interval"], task["error"]) == (None, None, None)


@pytest.mark.parametrize("by_timer", [False, True])
@pytest.mark.parametrize("end", [fail_repair(), refuse_repair()])
async def test_a_failed_repair_leaves_the_timer_held(
    storage: Storage, tables: Tables, end: Decision, by_timer: bool
) -> None:
    """A repair that fails or is refused changes nothing: the timer is due, and stays held."""
    await break_with_timer(storage, by_timer=by_timer)
    before = (tables.process(), tables.schedule())
    assert await save(storage, await hold(storage, repair()), end, now=LATER) == Saved(LATER)
    assert (tables.process(), tables.schedule()) == before
    assert before[1][0]["status"] == "held"


async def test_a_repair_lets_the_timer_go_on(storage: Storage, tables: Tables) -> None:
    """After a repair without an action the timer that was held comes back, at its own time."""
    await break_with_timer(storage, by_timer=False)
    saved = await save(storage, await hold(storage, repair()), resume())
    assert saved == Saved(T0, due=T0 + SECOND)
    assert tables.outline()[1] == ("timeout", "waiting")
    assert len(await claim_timers(storage, now=T0 + SECOND)) == 1


@pytest.mark.parametrize("by_timer", [False, True])
async def test_a_repair_goes_on_with_a_due_timer(storage: Storage, tables: Tables, by_timer: bool) -> None:
    """What was due meanwhile runs at once: the timer that waited, or the one that broke the process."""
    await break_with_timer(storage, by_timer=by_timer)
    (timer,) = tables.schedule()
    saved = await save(storage, await hold(storage, repair(), now=LATER), resume(), now=LATER)
    task = saved.continuation
    assert task is not None
    assert (task.task_id, task.task_type, task.attempts_count) == (timer["task_id"], TaskType.TIMEOUT, 0)
    assert task.scheduled_time == T0 + SECOND
    row = tables.process()
    assert row is not None
    assert (row["status"], row["detail"], row["corrupted_by"]) == ("running", None, None)
    assert tables.schedule() == []


async def test_a_repair_of_a_failed_removal_removes(storage: Storage) -> None:
    """A repair of a process whose removal failed removes it again."""
    await start(storage, "p1", set_timer(SECOND, remove=True))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, fail_timer(step.task), now=T0 + SECOND)
    saved = await save(storage, await hold(storage, repair(), now=LATER), resume(), now=LATER)
    assert saved.continuation is not None
    assert saved.continuation.task_type is TaskType.REMOVE


async def test_a_repair_without_a_timer(storage: Storage, tables: Tables) -> None:
    """A process that had no timer has none after its repair; the call that broke it is not run again."""
    await break_process(storage)
    assert await save(storage, await hold(storage, repair()), resume()) == Saved(T0)
    assert tables.schedule() == []


async def test_a_repair_without_a_slot(storage: Storage, tables: Tables) -> None:
    """A worker that gives its slot back leaves the timer to be claimed."""
    await break_process(storage, by_timer=True)
    saved = await save(storage, await hold(storage, repair()), resume(), keeps_slot=False)
    assert saved == Saved(T0, due=T0)
    assert tables.outline()[2:] == [("timeout", "waiting"), ("repair", "finished")]


@pytest.mark.parametrize("by_timer", [False, True])
@pytest.mark.parametrize(
    ("end", "reason"), [(set_timer(2 * SECOND), "timer replaced"), (cancel(), "timer unset")]
)
async def test_a_repair_replaces_the_timer(
    storage: Storage, tables: Tables, end: Decision, reason: str, by_timer: bool
) -> None:
    """A repair that sets or unsets a timer means the one that was held."""
    await break_with_timer(storage, by_timer=by_timer)
    (timer,) = tables.schedule()
    await save(storage, await hold(storage, repair(), now=LATER), end, now=LATER)
    cancelled = tables.task(timer["task_id"])
    assert cancelled is not None
    assert (cancelled["status"], cancelled["error"]) == ("cancelled", reason)
    waiting = [] if not isinstance(end.timer, SetTimer) else [("timeout", LATER + 2 * SECOND)]
    assert [(row["task_type"], row["scheduled_time"]) for row in tables.schedule()] == waiting


# A failed timer: retry.


async def test_retry_later(storage: Storage, tables: Tables) -> None:
    """The same task waits for its next attempt; its process is as it was."""
    step = await running_timer(storage)
    before = tables.process()
    saved = await save(storage, step, retry(SECOND, "OSError: down"), now=LATER)
    assert saved == Saved(LATER, due=LATER + SECOND)
    row = tables.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["error"], row["finished_time"]) == ("waiting", "OSError: down", None)
    assert (row["attempts_count"], row["last_retry_interval"]) == (1, SECOND)
    assert tables.process() == before
    assert await claim_timers(storage, now=LATER) == []
    (again,) = await claim_timers(storage, now=LATER + SECOND)
    assert again.task.task_id == step.task.task_id
    assert (again.task.attempts_count, again.task.last_retry_interval) == (1, SECOND)


async def test_retry_lets_calls_go_first(storage: Storage, tables: Tables) -> None:
    """A call that came meanwhile runs; the retry is blocked behind it."""
    step = await running_timer(storage)
    waiting = await wait(storage, request())
    saved = await save(storage, step, retry())
    assert saved.continuation is not None
    assert saved.continuation.task_id == waiting.task_id
    assert tables.outline()[1:] == [("timeout", "blocked"), ("call", "running")]
    resumed = await save(storage, step.next(saved, retry()), resume(), now=LATER)
    assert resumed.continuation is not None
    assert resumed.continuation.task_id == step.task.task_id
    assert resumed.continuation.attempts_count == 1


async def test_retry_succeeds(storage: Storage, tables: Tables) -> None:
    """A retry that succeeds finishes the task; the error of the earlier attempt is gone."""
    step = await running_timer(storage)
    await save(storage, step, retry(SECOND))
    (again,) = await claim_timers(storage, now=LATER)
    await save(storage, again, resume(), now=LATER)
    row = tables.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["error"], row["attempts_count"]) == ("finished", None, 1)


# A fault: fail.


async def test_fail_breaks_the_process(storage: Storage, tables: Tables) -> None:
    """The process says why and by what it broke; its state is the last that was saved."""
    await start(storage, "p1", resume(aux_state=b"state", events=events(1)))
    step = await hold(storage, request())
    assert await save(storage, step, fail("KeyError: 'x'"), now=LATER) == Saved(LATER)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"], row["status_changed_at"]) == (
        "error",
        "running",
        LATER,
    )
    assert (row["detail"], row["corrupted_by"]) == ("KeyError: 'x'", step.task.task_id)
    assert (row["aux_state"], row["last_event_id"]) == (b"state", 1)
    task = tables.task(step.task.task_id)
    assert task is not None
    assert (task["status"], task["error"]) == ("error", "KeyError: 'x'")


async def test_fail_cancels_requests(storage: Storage, tables: Tables) -> None:
    """The mailbox is cancelled, and the callers who wait are named."""
    await start(storage, "p1", set_timer(SECOND))
    await start(storage, "p2", set_timer(SECOND))
    step = await hold(storage, request())
    told = await wait(storage, request(reply_to=61))
    await wait(storage, request("p1", TaskType.NOTIFY))
    saved = await save(storage, step, fail("KeyError: 'x'"))
    assert saved.cancelled == (hint_of(told),)
    assert tables.outline()[1:] == [
        ("timeout", "held"),
        ("call", "error"),
        ("call", "cancelled"),
        ("notify", "cancelled"),
    ]
    errors = {row["error"] for row in tables.tasks() if row["status"] == "cancelled"}
    assert errors == {"KeyError: 'x'"}
    assert tables.outline("p2")[1:] == [("timeout", "waiting")]


async def test_fail_of_an_init(storage: Storage, tables: Tables) -> None:
    """A failed init leaves a broken process, and the calls that waited for it are cancelled."""
    step = await hold(storage, init())
    await wait(storage, request())
    await save(storage, step, fail())
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("error", "init")
    assert tables.outline() == [("init", "error"), ("call", "cancelled")]


# The end: remove.


async def test_remove_leaves_only_answers(storage: Storage, tables: Tables) -> None:
    """Process, events and waiting tasks are gone; the answers of the last day stay for their callers."""
    await start(storage, "p1", set_timer(SECOND, events=events(2)))
    await start(storage, "p2", set_timer(SECOND, events=events(2)))
    step = await hold(storage, request())
    told = await wait(storage, request(reply_to=61))
    await wait(storage, request())
    saved = await save(storage, step, removed())
    assert saved.cancelled == (hint_of(told),)
    assert (saved.continuation, saved.due) == (None, None)
    assert (tables.process(), tables.events(), tables.schedule()) == (None, [], [])
    assert [(row["task_type"], row["response"]) for row in tables.tasks()] == [
        ("init", b"answer"),
        ("call", b"answer"),
    ]
    assert len(tables.events("p2")) == 2
    (answer,) = await storage.replies([step.ref.key])
    assert answer.response == b"answer"


async def test_refused_init_leaves_no_process(storage: Storage, tables: Tables) -> None:
    """A refused init leaves no process, and the calls that waited for it are told."""
    step = await hold(storage, init())
    told = await wait(storage, request(reply_to=61))
    saved = await save(storage, step, refuse_init("no such plan"))
    assert [ref.task_id for ref in saved.cancelled] == [told.task_id]
    assert tables.process() is None
    (row,) = tables.tasks()
    assert (row["status"], row["error"]) == ("error", "rejected: no such plan")


async def test_second_life(storage: Storage, tables: Tables) -> None:
    """A process that was removed can be made again: its history begins at 1, old answers stay."""
    await start(storage, "p1", resume(events=events(3)))
    await save(storage, await hold(storage, request(key="k")), removed())
    await start(storage, "p1", resume(events=events(1)))
    assert [event["event_id"] for event in tables.events()] == [1]
    await save(storage, await hold(storage, request()), removed())
    assert tables.outline() == [("init", "finished"), ("call", "finished")] * 2


# Giving the slot back.


@pytest.mark.parametrize("decision", [resume(), set_timer(timedelta(0)), cancel()])
async def test_without_a_slot_a_call_waits(storage: Storage, tables: Tables, decision: Decision) -> None:
    """A worker that gives its slot back gets no continuation: the next call can be claimed."""
    step = await hold(storage, init())
    waiting = await wait(storage, request())
    saved = await save(storage, step, decision, keeps_slot=False)
    assert saved.continuation is None
    assert tables.running() is None
    (claimed,) = await claim_calls(storage)
    assert claimed.task.task_id == waiting.task_id


async def test_without_a_slot_a_due_timer_waits(storage: Storage) -> None:
    """A worker that gives its slot back leaves a due timer to be claimed, and says that it is due."""
    step = await hold(storage, init())
    saved = await save(storage, step, set_timer(timedelta(0)), keeps_slot=False)
    assert saved == Saved(T0, due=T0)
    assert len(await claim_timers(storage)) == 1


# Batches.


async def test_batch_of_all_dispositions(storage: Storage, tables: Tables) -> None:
    """Steps that end in every way are one transaction, and each has its own outcome."""
    timer = await running_timer(storage, "retry")
    steps = {
        "lost": await hold(storage, init("lost")),
        "fail": await hold(storage, init("fail")),
        "fail timer": await running_timer(storage, "fail timer"),
        "hold": await repairing(storage, "hold"),
        "remove": await hold(storage, init("remove")),
        "now": await hold(storage, init("now")),
        "retry": timer,
        "later": await hold(storage, init("later")),
        "refused": await hold(storage, init("refused")),
        "resume": await hold(storage, init("resume")),
    }
    await storage.remove(NS, "lost")
    cancelled = await wait(storage, request("fail", reply_to=9))
    decisions = {
        "lost": fail(),
        "fail": fail(),
        "fail timer": fail_timer(steps["fail timer"].task),
        "hold": fail_repair(),
        "remove": removed(),
        "now": set_timer(timedelta(0), events=events(2)),
        "retry": retry(),
        "later": set_timer(SECOND, events=events(1)),
        "refused": refuse_init(),
        "resume": resume(),
    }
    results = await storage.save_result(
        [step.step(decisions[name]) for name, step in steps.items()], now=T0
    )
    saved = dict(zip(steps, results, strict=True))
    assert saved["lost"] == LostLease(removed=True)
    assert [ref.task_id for ref in saved["fail"].cancelled] == [cancelled.task_id]  # type: ignore[union-attr]
    for name in ("fail timer", "hold", "remove", "refused", "resume"):
        assert saved[name] == Saved(T0), name
    assert tables.outline("fail timer")[-1] == ("timeout", "held")
    assert saved["now"].continuation.task_type is TaskType.TIMEOUT  # type: ignore[union-attr]
    assert saved["retry"].due == saved["later"].due == T0 + SECOND  # type: ignore[union-attr]
    assert {name: row and row["status"] for name in steps for row in [tables.process(name)]} == {
        "lost": None,
        "fail": "error",
        "fail timer": "error",
        "hold": "error",
        "remove": None,
        "now": "running",
        "retry": "running",
        "later": "running",
        "refused": None,
        "resume": "running",
    }
    assert len(tables.events("now")) == 2


async def test_batch_of_many(storage: Storage, tables: Tables) -> None:
    """Chains of two hundred processes go on together, each with its own events and answers."""
    items = [init(f"p{place}") for place in range(200)]
    steps = [held(result) for result in await storage.prepare_init(items, now=T0)]
    for turn in range(3):
        decisions = [
            set_timer(timedelta(0), events=events(place % 3), aux_state=f"{place}/{turn}".encode())
            for place in range(200)
        ]
        results = await storage.save_result(
            [step.step(decision) for step, decision in zip(steps, decisions, strict=True)], now=T0
        )
        steps = [
            step.next(result, decision)
            for step, result, decision in zip(steps, results, decisions, strict=True)
        ]
    rows = tables.execute("SELECT process_id, aux_state, last_event_id FROM processes")
    assert {row["process_id"]: (row["aux_state"], row["last_event_id"]) for row in rows} == {
        f"p{place}": (f"{place}/2".encode(), place % 3 * 3) for place in range(200)
    }


async def test_a_batch_is_in_the_order_of_its_items(storage: Storage) -> None:
    """Outcomes come back in the order of the steps, whatever order PostgreSQL found them in."""
    names = ["m", "a", "z", "b", "y"]
    steps = [await hold(storage, init(name)) for name in names]
    results = await storage.save_result([step.step(set_timer(timedelta(0))) for step in steps], now=T0)
    assert [result.continuation.process_id for result in results] == names  # type: ignore[union-attr]


async def test_clock_is_that_of_postgresql(storage: Storage, tables: Tables) -> None:
    """Without an injected time, PostgreSQL's counts, and a delay begins at the commit's."""
    (result,) = await storage.prepare_init([init()])
    (saved,) = await storage.save_result([held(result).step(set_timer(SECOND))])
    assert isinstance(saved, Saved)
    assert saved.due == saved.now + SECOND
    (row,) = tables.execute("SELECT now() - pg_postmaster_start_time() AS age")
    assert tables.process()["status_changed_at"] == saved.now  # type: ignore[index]
    assert row["age"] > timedelta(0)


async def test_paused_namespace_stops_chains(storage: Storage, tables: Tables) -> None:
    """A step that runs when its namespace is paused is saved; what would follow it waits."""
    await start(storage, "timer", set_timer(SECOND))
    chain = await running_timer(storage, "chain")
    mail = await hold(storage, init("mail"))
    resumed = await hold(storage, request("timer"))
    await wait(storage, request("mail"))
    tables.set_namespace(paused=True)
    steps = [
        chain.step(set_timer(timedelta(0))),
        mail.step(resume()),
        resumed.step(resume()),
    ]
    results = await storage.save_result(steps, now=LATER)
    assert [result.continuation for result in results] == [None, None, None]  # type: ignore[union-attr]
    assert await claim_calls(storage, now=LATER) == []
    assert await claim_timers(storage, now=LATER) == []
    tables.set_namespace(paused=False)
    assert len(await claim_calls(storage, now=LATER)) == 1
    assert len(await claim_timers(storage, now=LATER)) == 2
