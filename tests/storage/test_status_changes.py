"""Every statement that writes a status of a process writes what transitions.py says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import progressor
from progressor.config import RetryPolicy
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
    SetTimer,
    Success,
    TaskType,
    UnsetTimer,
)
from progressor.storage.operations import Storage
from progressor.storage.statements import STATEMENTS
from progressor.storage.values import Claimed, Continue, Finished, Import, Saved
from progressor.transitions import BROKEN_IN_INIT, RUNS_IN, TABLE, VERBS, Case, End, Ending, Verb, decide
from tests.support import (
    NS,
    SECOND,
    T0,
    Held,
    Row,
    Tables,
    break_init,
    break_process,
    collect,
    fail,
    fuse,
    hold,
    init,
    repair,
    request,
    save,
    set_timer,
    start,
)

Status = ProcessStatus | None

_WRITES = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM)\s+progressor\.processes\b")
WRITERS = {name for name, sql in STATEMENTS.items() if _WRITES.search(sql)}
LINES = [(*key, case, end) for key, rule in TABLE.items() for case, end in rule.ends.items()]
LINES += [(*key, case, end) for key, rule in BROKEN_IN_INIT.items() for case, end in rule.ends.items()]
CHANGES = [
    (verb, found, becomes)
    for verb, change in VERBS.items()
    for found in change.found
    for becomes in change.becomes
]
LATE = T0 + 60 * SECOND

ACTIONS: dict[Case, Action | None] = {
    Case.ALWAYS: None,
    Case.NO_ACTION: None,
    Case.SET_TIMER: SetTimer(after=SECOND),
    Case.UNSET_TIMER: UnsetTimer(),
    Case.REMOVE: Remove(),
}


# What ends in a statement of fewer parts, at its first try.
_LITE = (TaskType.INIT, TaskType.TIMEOUT), (Disposition.REPLACE, Disposition.RESUME, Disposition.CANCEL)


def writers_of(task_type: TaskType, ending: Ending, end: End, *, tried: bool = False) -> set[str]:
    match ending, end.disposition:
        case Ending.LOST, Disposition.RETRY:
            return set()
        case Ending.LOST, _:
            return {"end_zombies"}
        case _, Disposition.REMOVE:
            return {"remove", "save_result"}
        case Ending.SUCCESS, disposition if task_type in _LITE[0] and disposition in _LITE[1] and not tried:
            return {"save_lite"}
        case _:
            return {"save_result"}


WRITERS_OF_VERBS = {
    Verb.START: {"prepare_init"},
    Verb.PUT: {"put_process"},
    Verb.SIMPLE_REPAIR: {"simple_repair"},
    Verb.REMOVE: {"remove"},
}


# Of requests that are run and saved in one transaction: what makes the process, and what ends the step.
FUSED = {TaskType.INIT: {"fused_make"}, TaskType.CALL: set[str]()}
# All of an end that resumes the timer, or of one that touches it.
SAVES = {True: "fused_save_timeless", False: "fused_save"}


def test_no_other_statement_writes_a_status() -> None:
    """Whatever changes a row of `processes` is driven below; a new statement fails here first."""
    of_steps = [writers_of(task_type, ending, end) for task_type, ending, _, end in LINES]
    assert set().union(*of_steps, *WRITERS_OF_VERBS.values(), *FUSED.values(), {*SAVES.values()}) == WRITERS
    source = Path(progressor.__file__).parent
    # The bench fills a database of its own.
    code = set(source.rglob("*.py")) - {source / "bench" / "rows.py"}
    assert [path for path in code if _WRITES.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("tried", [False, True])
@pytest.mark.parametrize(("task_type", "ending", "case", "end"), LINES)
async def test_the_end_of_a_step(
    storage: Storage,
    tables: Tables,
    sent: set[str],
    task_type: TaskType,
    ending: Ending,
    case: Case,
    end: End,
    tried: bool,
) -> None:
    """Each line of the table, through the operation that saves it: the status is that of the line.

    Also where another try may have saved it, which is asked for nothing short.
    """
    step = await held_by_a_worker(storage, task_type, in_init=end.status is ProcessStatus.INIT)
    before = tables.process()
    assert before is not None
    assert before["status"] == RUNS_IN[task_type]
    sent.clear()
    if ending is Ending.LOST:
        lose_the_worker(tables, again=case is Case.RETRIES_LEFT)
        (zombie,) = await collect(storage, LATE)
        assert zombie.disposition is end.disposition
    else:
        decision = decide(step.process, step.task, outcome_of(ending, case), RetryPolicy())
        assert decision.disposition is end.disposition
        (saved,) = await storage.save_result([step.step(decision)], now=LATE, tried=tried)
        assert isinstance(saved, Saved)
    assert sent & WRITERS == writers_of(task_type, ending, end, tried=tried)
    if end.disposition is Disposition.REMOVE:
        assert tables.process() is None
    else:
        check_row(before, tables.process(), end.status, step.task.task_id)


@pytest.mark.parametrize(
    ("task_type", "ending", "case", "end"),
    [line for line in LINES if line[0] in FUSED and line[1] in (Ending.SUCCESS, Ending.REJECTION)],
)
async def test_the_end_of_a_fused_step(
    storage: Storage,
    tables: Tables,
    sent: set[str],
    task_type: TaskType,
    ending: Ending,
    case: Case,
    end: End,
) -> None:
    """The same lines, of requests that are run and saved in one transaction, where they can be."""
    if task_type is TaskType.CALL:
        await start(storage)
    before = tables.process()
    sent.clear()

    async def run(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [decide(process, task, outcome_of(ending, case), RetryPolicy()) for task, process in claimed]

    asked = init() if task_type is TaskType.INIT else request()
    (outcome,) = await fuse(storage, [asked], run, now=LATE)
    if end.disposition is Disposition.REMOVE:
        assert isinstance(outcome, Continue)
        return
    assert isinstance(outcome, Finished)
    assert sent & WRITERS == FUSED[task_type] | {SAVES[end.disposition is Disposition.RESUME]}
    made = {"status": ProcessStatus.INIT, "previous_status": None, "status_changed_at": LATE}
    check_row(before or made, tables.process(), end.status, outcome.task.task_id)


def check_row(before: Row, after: Row | None, status: Status, task_id: int) -> None:
    """`status` None: all is as it was."""
    assert after is not None
    if status is None:
        assert after == before
        return
    changed = before["status"] != status
    assert after["status"] == status
    assert after["previous_status"] == (before["status"] if changed else before["previous_status"])
    assert after["status_changed_at"] == (LATE if changed else before["status_changed_at"])
    is_broken = status is ProcessStatus.ERROR
    assert (after["corrupted_by"], after["detail"] is not None) == (
        (task_id, True) if is_broken else (None, False)
    )


async def held_by_a_worker(storage: Storage, task_type: TaskType, *, in_init: bool = False) -> Held:
    """A running task of this type, on a process in the status in which such tasks run."""
    match task_type:
        case TaskType.INIT:
            return await hold(storage, init())
        case TaskType.TIMEOUT | TaskType.REMOVE:
            first = await hold(storage, init())
            decision = set_timer(at=T0, remove=task_type is TaskType.REMOVE)
            return first.next(await save(storage, first, decision), decision)
        case TaskType.REPAIR:
            await (break_init(storage) if in_init else break_process(storage))
            return await hold(storage, repair())
        case TaskType.CALL | TaskType.NOTIFY:
            await start(storage)
            return await hold(storage, request("p1", task_type))


def outcome_of(ending: Ending, case: Case) -> Outcome:
    match ending:
        case Ending.SUCCESS:
            return Success(Intent(action=ACTIONS[case]))
        case Ending.REJECTION:
            return Rejection("no")
        case _:
            return Failure("ValueError: no", retryable=case is not Case.NO_RETRIES_LEFT)


def lose_the_worker(tables: Tables, *, again: bool) -> None:
    tables.set_namespace(on_zombie="retry" if again else "error")
    tables.set_worker()
    tables.set_collector()


# Without a step.


@pytest.mark.parametrize(("verb", "found", "becomes"), CHANGES)
async def test_a_verb(
    storage: Storage, tables: Tables, sent: set[str], verb: Verb, found: Status, becomes: Status
) -> None:
    """Each verb makes of each status what its line says, and has no other statement for it."""
    await found_in(storage, found, in_init=becomes is ProcessStatus.INIT)
    before = tables.process()
    sent.clear()
    await say(storage, verb, becomes)
    after = tables.process()
    assert sent & WRITERS == WRITERS_OF_VERBS[verb]
    assert (after and after["status"]) == becomes
    if after is not None:
        assert after["previous_status"] == (before and before["status"])
        assert (after["status_changed_at"], after["corrupted_by"]) == (LATE, None)


@pytest.mark.parametrize(
    ("verb", "status"),
    [(verb, each) for verb in Verb for each in (None, *ProcessStatus) if each not in VERBS[verb].found],
)
async def test_a_verb_in_any_other_status(
    storage: Storage, tables: Tables, verb: Verb, status: Status
) -> None:
    """Elsewhere it changes nothing at all."""
    await found_in(storage, status)
    before = tables.everything()
    await say(storage, verb, VERBS[verb].becomes[-1])
    assert tables.everything() == before


async def found_in(storage: Storage, status: Status, *, in_init: bool = False) -> None:
    match status:
        case None:
            pass
        case ProcessStatus.INIT:
            await hold(storage, init())
        case ProcessStatus.RUNNING:
            await start(storage)
        case ProcessStatus.ERROR:
            await (break_init(storage) if in_init else break_process(storage))


async def say(storage: Storage, verb: Verb, becomes: Status) -> None:
    match verb:
        case Verb.START:
            await storage.prepare_init([init()], now=LATE)
        case Verb.PUT:
            broken = becomes is ProcessStatus.ERROR
            status, detail = ("error", "why") if broken else ("running", None)
            await storage.put(Import(NS, "p1", "key", status, detail), now=LATE)  # type: ignore[arg-type]
        case Verb.SIMPLE_REPAIR:
            await storage.simple_repair([repair(worker_id=None)], now=LATE)
        case Verb.REMOVE:
            await storage.remove(NS, "p1")


async def test_simple_repair_does_to_the_timer_what_its_disposition_says(
    storage: Storage, tables: Tables
) -> None:
    """As resume: what was held waits for its own time again."""
    assert VERBS[Verb.SIMPLE_REPAIR].disposition is Disposition.RESUME
    await start(storage, "p1", set_timer(SECOND))
    await save(storage, await hold(storage, request()), fail())
    (held,) = tables.schedule()
    await say(storage, Verb.SIMPLE_REPAIR, ProcessStatus.RUNNING)
    assert tables.schedule() == [{**held, "status": "waiting", "claimable": True}]


@pytest.mark.parametrize(("status", "stands"), [("running", "waiting"), ("error", "held")])
async def test_the_timer_of_an_import(storage: Storage, tables: Tables, status: Any, stands: str) -> None:
    """It is held if the process is put as broken."""
    detail = "why" if status == "error" else None
    await storage.put(Import(NS, "p1", "key", status, detail, timer=SetTimer(after=SECOND)), now=T0)
    assert [row["status"] for row in tables.schedule()] == [stands]
