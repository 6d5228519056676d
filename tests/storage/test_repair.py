"""prepare_repair and simple_repair: a broken process gets one repair at a time."""

from __future__ import annotations

from progressor.config import RetryPolicy
from progressor.model import Intent, ProcessStatus, Success, TaskStatus, TaskType, TimerStatus
from progressor.storage.operations import Storage
from progressor.storage.values import (
    Continue,
    Duplicate,
    Import,
    LostLease,
    NotPrepared,
    Postpone,
    Reason,
    Saved,
    Step,
    TaskOutcome,
)
from progressor.timers import SetTimer
from progressor.transitions import after, decide
from tests.support import (
    NS,
    SECOND,
    T0,
    Held,
    Tables,
    break_init,
    break_process,
    claim_calls,
    claim_timers,
    collect,
    events,
    fail,
    fail_repair,
    fail_timer,
    hold,
    init,
    refuse_init,
    refuse_repair,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

NOT_BROKEN = NotPrepared(Reason.NOT_BROKEN)


async def test_with_a_worker_it_runs(storage: Storage, tables: Tables) -> None:
    """The repair gets the process as it broke: status, reason and the task that broke it."""
    broken_by = await break_process(storage)
    step = await hold(storage, repair(args=b"how"))
    assert (step.task.task_type, step.task.args) == (TaskType.REPAIR, b"how")
    assert step.process.status is ProcessStatus.ERROR
    assert (step.process.detail, step.process.corrupted_by) == ("ValueError: no", broken_by)
    assert tables.outline()[-1] == ("repair", "running")


async def test_without_a_worker_it_waits(storage: Storage) -> None:
    """A repair can wait, and is claimed as calls are."""
    await break_process(storage)
    ref = await wait(storage, repair(worker_id=None))
    (step,) = await claim_calls(storage)
    assert step.task.task_id == ref.task_id
    assert step.process.corrupted_by is not None


async def test_refusals(storage: Storage, tables: Tables) -> None:
    """Only a process in status error is repaired; nothing is written for others."""
    await start(storage, "fine")
    await hold(storage, init("new"))
    before = tables.everything()
    items = [repair("missing"), repair("fine"), repair("new")]
    expected = [NotPrepared(Reason.NOT_FOUND), NOT_BROKEN, NOT_BROKEN]
    assert await storage.prepare_repair(items, now=T0) == expected
    assert await storage.simple_repair(items, now=T0) == expected
    assert tables.everything() == before


async def test_one_repair_at_a_time(storage: Storage) -> None:
    """While a repair runs or waits, another is refused, of either kind."""
    await break_process(storage, "running")
    await break_process(storage, "waiting")
    await hold(storage, repair("running"))
    await wait(storage, repair("waiting", worker_id=None))
    for process_id in ("running", "waiting"):
        refused = NotPrepared(Reason.IN_REPAIR)
        assert await storage.prepare_repair([repair(process_id)], now=T0) == [refused]
        assert await storage.simple_repair([repair(process_id)], now=T0) == [refused]


async def test_two_repairs_in_one_batch(storage: Storage) -> None:
    """Of two repairs of a process in one batch the first is accepted."""
    await break_process(storage)
    results = await storage.prepare_repair([repair(), repair()], now=T0)
    assert isinstance(results[0], Continue)
    assert results[1] == NotPrepared(Reason.IN_REPAIR)


async def test_batch_of_all_outcomes(storage: Storage) -> None:
    """Each item of a batch gets its own outcome, in the order of the items."""
    for process_id in ("a", "b", "c"):
        await break_process(storage, process_id)
    await start(storage, "fine")
    first = await hold(storage, repair("c", key="k"))
    results = await storage.prepare_repair(
        [repair("fine"), repair("b"), repair("c", key="k"), repair("a", worker_id=None)], now=T0
    )
    assert [type(result) for result in results] == [NotPrepared, Continue, Duplicate, Postpone]
    assert results[2].task.task_id == first.task.task_id  # type: ignore[union-attr]


async def test_batch_of_many(storage: Storage) -> None:
    """Two hundred repairs are one transaction."""
    names = [f"p{place}" for place in range(200)]
    results = await storage.prepare_init([init(name) for name in names], now=T0)
    steps = [Step(result.task, result.process, fail()) for result in results]  # type: ignore[union-attr]
    await storage.save_result(steps, now=T0)
    repaired = await storage.prepare_repair([repair(name) for name in names[:100]], now=T0)
    assert [type(result) for result in repaired] == [Continue] * 100
    simple = await storage.simple_repair([repair(name) for name in names[100:]], now=T0)
    assert [type(result) for result in simple] == [Duplicate] * 100


async def test_duplicates(storage: Storage) -> None:
    """A repair's key leads to it: while it runs, and when the process is not broken any more."""
    await break_process(storage)
    step = await hold(storage, repair(key="k"))
    (running,) = await storage.prepare_repair([repair(key="k")], now=T0)
    assert isinstance(running, Duplicate)
    assert running.answer == TaskOutcome(TaskStatus.RUNNING)
    await save(storage, step, resume())
    (finished,) = await storage.prepare_repair([repair(key="k")], now=T0)
    assert isinstance(finished, Duplicate)
    assert finished.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")
    conflict = repair(key="k", request_hash=b"other")
    assert await storage.prepare_repair([conflict], now=T0) == [NotPrepared(Reason.CONFLICT)]
    assert await storage.simple_repair([conflict], now=T0) == [NotPrepared(Reason.CONFLICT)]


async def test_failed_repair_changes_nothing(storage: Storage, tables: Tables) -> None:
    """A repair that fails or is refused leaves status, detail and corrupted_by as they were."""
    await break_process(storage)
    before = tables.process()
    await save(storage, await hold(storage, repair()), fail_repair())
    assert tables.process() == before
    await save(storage, await hold(storage, repair()), refuse_repair())
    assert tables.process() == before
    assert isinstance((await storage.prepare_repair([repair()], now=T0))[0], Continue)


async def test_repair_clears_the_fault(storage: Storage, tables: Tables) -> None:
    """A repair that succeeds puts the process back to running, without detail and corrupted_by."""
    await break_process(storage)
    now = T0 + SECOND
    await save(storage, await hold(storage, repair(), now=now), resume(), now=now)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("running", "error")
    assert (row["detail"], row["corrupted_by"], row["status_changed_at"]) == (None, None, now)
    await hold(storage, request())


async def test_simple_repair_after_a_call(storage: Storage, tables: Tables) -> None:
    """A process that a call broke is just back to running; the repair has its answer at once."""
    await break_process(storage)
    now = T0 + SECOND
    (result,) = await storage.simple_repair([repair(context=b"ctx")], now=now)
    assert isinstance(result, Duplicate)
    assert result.answer == TaskOutcome(TaskStatus.FINISHED)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("running", "error")
    assert (row["detail"], row["corrupted_by"], row["status_changed_at"]) == (None, None, now)
    assert tables.schedule() == []
    task = tables.task(result.task.task_id)
    assert task is not None
    assert (task["task_type"], task["status"], task["context"]) == ("repair", "finished", b"ctx")
    assert task["finished_time"] == now


async def test_simple_repair_after_a_timer(storage: Storage, tables: Tables) -> None:
    """A process that a timer broke has a fresh one of its kind, which is due: as that one was."""
    await break_process(storage, by_timer=True)
    now = T0 + SECOND
    await storage.simple_repair([repair()], now=now)
    (row,) = tables.schedule()
    assert (row["task_type"], row["status"], row["claimable"]) == ("timeout", "waiting", True)
    assert row["scheduled_time"] == T0
    (step,) = await claim_timers(storage, now=now)
    assert (step.task.attempts_count, step.process.status) == (0, ProcessStatus.RUNNING)


async def test_simple_repair_runs_the_init_anew(storage: Storage, tables: Tables) -> None:
    """A process that its init broke is in init again: the same task waits, with its arguments and key."""
    init_id = await break_init(storage, key="k", args=b"how", reply_to=61)
    now = T0 + SECOND
    (result,) = await storage.simple_repair([repair()], now=now)
    assert result.answer == TaskOutcome(TaskStatus.FINISHED)  # type: ignore[union-attr]
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("init", "error")
    assert (row["detail"], row["corrupted_by"], row["status_changed_at"]) == (None, None, now)
    assert tables.outline() == [("init", "waiting"), ("repair", "finished")]
    (step,) = await claim_calls(storage, now=now)
    task, process = step.task, step.process
    assert (task.task_id, task.task_type, task.args) == (init_id, TaskType.INIT, b"how")
    assert (task.idempotency_key, task.reply_to, task.attempts_count) == ("k", 61, 1)
    assert (process.status, process.previous_status) == (ProcessStatus.INIT, ProcessStatus.ERROR)
    await save(storage, step, resume(), now=now)
    (again,) = await storage.prepare_init([init(key="k", args=b"how")], now=now)
    assert isinstance(again, Duplicate)
    assert again.answer == TaskOutcome(TaskStatus.FINISHED, b"answer")


async def test_a_start_asked_again_attaches_to_the_init_that_runs_anew(storage: Storage) -> None:
    """Its key leads to the task that waits, not to the answer of the first run."""
    await break_init(storage, key="k")
    await storage.simple_repair([repair()], now=T0)
    (again,) = await storage.prepare_init([init(key="k")], now=T0)
    assert isinstance(again, Duplicate)
    assert again.answer.status is TaskStatus.WAITING
    (other,) = await storage.prepare_init([init(key="other")], now=T0)
    assert other == NotPrepared(Reason.EXISTS)


async def test_calls_wait_for_the_init_that_runs_anew(storage: Storage, tables: Tables) -> None:
    """As for any init; and if it fails again, they are cancelled and the process is broken as before."""
    init_id = await break_init(storage)
    await storage.simple_repair([repair()], now=T0)
    await wait(storage, request())
    (step,) = await claim_calls(storage)
    assert step.task.task_id == init_id
    await save(storage, step, fail("ValueError: again"))
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"]) == ("error", "init")
    assert (row["detail"], row["corrupted_by"]) == ("ValueError: again", init_id)
    assert tables.outline() == [("init", "error"), ("repair", "finished"), ("call", "cancelled")]
    await storage.simple_repair([repair()], now=T0)
    assert tables.outline()[0] == ("init", "waiting")


async def test_an_init_that_runs_anew_may_be_refused(storage: Storage, tables: Tables) -> None:
    """Then there is no process, and its start may be asked anew under another key."""
    await break_init(storage)
    await storage.simple_repair([repair()], now=T0)
    (step,) = await claim_calls(storage)
    await save(storage, step, refuse_init())
    assert tables.process() is None
    await hold(storage, init())


async def test_an_init_whose_worker_was_lost_runs_anew(storage: Storage, tables: Tables) -> None:
    """It may be lost as often again, and whoever lost it saves nothing."""
    tables.set_worker()
    tables.set_collector()
    tables.set_namespace(on_zombie="error")
    lost = await hold(storage, init())
    (zombie,) = await collect(storage, T0 + 60 * SECOND)
    assert zombie.task.task_id == lost.task.task_id
    await storage.simple_repair([repair()], now=T0)
    (step,) = await claim_calls(storage)
    assert (step.task.task_id, tables.task(lost.task.task_id)["zombie_count"]) == (lost.task.task_id, None)  # type: ignore[index]
    assert (await storage.save_result([lost.step(resume())], now=T0)) == [LostLease()]
    await save(storage, step, resume())
    assert (await storage.save_result([lost.step(resume())], now=T0)) == [LostLease()]


async def test_a_handler_s_repair_lets_the_init_run_anew(storage: Storage, tables: Tables) -> None:
    """What the repair did is saved, its worker goes on with the init, and a timer it set waits behind."""
    init_id = await break_init(storage, args=b"how")
    step = await hold(storage, repair())
    decision = decide(
        step.process,
        step.task,
        Success(Intent(events(1), SetTimer(after=SECOND), b"mended", b"state")),
        RetryPolicy(),
    )
    saved = await save(storage, step, decision)
    assert isinstance(saved, Saved)
    assert saved.continuation is not None
    left = after(step.process, step.task, decision, now=saved.now, timers=saved.timers)
    anew = Held(saved.continuation, left)
    assert (anew.task.task_id, anew.task.task_type, anew.task.args) == (init_id, TaskType.INIT, b"how")
    assert (anew.process.status, anew.process.aux_state) == (ProcessStatus.INIT, b"state")
    (timer,) = anew.process.timers
    assert timer.status is TimerStatus.BLOCKED
    assert tables.outline() == [("init", "running"), ("repair", "finished"), ("timeout", "blocked")]
    await save(storage, anew, resume())
    assert tables.outline() == [("init", "finished"), ("repair", "finished"), ("timeout", "waiting")]


async def test_a_handler_s_repair_without_a_slot_leaves_the_init_waiting(
    storage: Storage, tables: Tables
) -> None:
    """Then any worker claims it."""
    init_id = await break_init(storage)
    step = await hold(storage, repair())
    decision = decide(step.process, step.task, Success(Intent()), RetryPolicy())
    await storage.save_result([step.step(decision, keeps_slot=False)], now=T0)
    assert tables.outline() == [("init", "waiting"), ("repair", "finished")]
    (anew,) = await claim_calls(storage)
    assert anew.task.task_id == init_id


async def test_an_import_that_is_broken_has_no_init_to_run(storage: Storage, tables: Tables) -> None:
    """It never was in init: simple_repair makes it running, as it was put."""
    await storage.put(Import(NS, "p1", "key", "error", "why", aux_state=b"state"), now=T0)
    await storage.simple_repair([repair()], now=T0)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["aux_state"]) == ("running", b"state")
    assert tables.outline() == [("init", "finished"), ("repair", "finished")]


async def test_simple_repair_brings_the_timer_back(storage: Storage, tables: Tables) -> None:
    """The timer of a process that a call broke waits again, for its own time."""
    await start(storage, "p1", set_timer(SECOND))
    (before,) = tables.schedule()
    await save(storage, await hold(storage, request()), fail())
    await storage.simple_repair([repair()], now=T0)
    assert tables.schedule() == [before]
    assert await claim_timers(storage, now=T0) == []
    assert len(await claim_timers(storage, now=T0 + SECOND)) == 1


async def test_simple_repair_leaves_the_timers_of_others_held(storage: Storage, tables: Tables) -> None:
    """Repaired is who is named: the timers of other broken processes stay held."""
    for name in ("a", "b", "c"):
        await start(storage, name, set_timer(SECOND))
        await save(storage, await hold(storage, request(name)), fail())
    await hold(storage, repair("b"))
    await storage.simple_repair([repair("a"), repair("b")], now=T0)
    assert [tables.outline(name)[1] for name in ("a", "b", "c")] == [
        ("timeout", "waiting"),
        ("timeout", "held"),
        ("timeout", "held"),
    ]


async def test_simple_repair_after_a_removal(storage: Storage, tables: Tables) -> None:
    """A process whose removal failed for good is due to be removed again."""
    first = await hold(storage, init())
    decision = set_timer(SECOND * 0, remove=True)
    removal = first.next(await save(storage, first, decision), decision)
    await save(storage, removal, fail_timer(removal.task))
    await storage.simple_repair([repair()], now=T0)
    assert tables.outline()[1:] == [("remove", "error"), ("remove", "waiting"), ("repair", "finished")]


async def test_simple_repair_is_idempotent(storage: Storage, tables: Tables) -> None:
    """The same key gets the same answer, and no second timer."""
    await break_process(storage, by_timer=True)
    (first,) = await storage.simple_repair([repair(key="k")], now=T0)
    before = tables.everything()
    (second,) = await storage.simple_repair([repair(key="k")], now=T0)
    assert (first.task, first.answer) == (second.task, second.answer)
    assert (first.is_own, second.is_own) == (True, False)
    assert tables.everything() == before


async def test_paused_namespace(storage: Storage, tables: Tables) -> None:
    """In a paused namespace a repair is accepted and waits."""
    await break_process(storage)
    tables.set_namespace(paused=True)
    await wait(storage, repair())
    assert await claim_calls(storage) == []
