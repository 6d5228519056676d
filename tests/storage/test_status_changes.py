"""Status, task, timer and mailbox become what transitions.py says, by each statement that changes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

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
    Success,
    TaskType,
)
from progressor.storage.operations import Storage
from progressor.storage.statements import STATEMENTS
from progressor.storage.values import Claimed, Continue, Finished, Import, Saved, Zombie
from progressor.timers import SetTimer, TimerChange, UnsetTimer
from progressor.transitions import (
    BROKEN_IN_INIT,
    EFFECTS,
    RUNS_IN,
    TABLE,
    VERBS,
    Case,
    End,
    Ending,
    OnMailbox,
    OnTask,
    OnTimer,
    Verb,
    decide,
)
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
    resume,
    save,
    set_timer,
    start,
    wait,
)

Status = ProcessStatus | None

_WRITES = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM)\s+progressor\.processes\b")
# Those that feed have the same parts, and one that writes to the feed alone.
WRITERS = {
    name for name, sql in STATEMENTS.items() if _WRITES.search(sql) and not name.endswith("_feeding")
}
Line = tuple[TaskType, Ending, Case, End]
LINES: list[Line] = [
    (*key, case, end)
    for table in (TABLE, BROKEN_IN_INIT)
    for key, rule in table.items()
    for case, end in rule.ends.items()
]
CHANGES = [
    (verb, found, becomes)
    for verb, change in VERBS.items()
    for found in change.found
    for becomes in change.becomes
]
LATE = T0 + 60 * SECOND

ACTIONS: dict[Case, Action | tuple[TimerChange, ...] | None] = {
    Case.ALWAYS: None,
    Case.NO_ACTION: None,
    Case.SET_TIMER: SetTimer(after=SECOND),
    Case.UNSET_TIMER: UnsetTimer(),
    # Of timers that it has not: all that it has stays as it is.
    Case.SEVERAL_TIMERS: (UnsetTimer("one"), UnsetTimer("other")),
    Case.REMOVE: Remove(),
}


# What ends in a statement of fewer parts, at its first try.
_LITE = (TaskType.INIT, TaskType.TIMEOUT), (Disposition.REPLACE, Disposition.RESUME, Disposition.CANCEL)


def writers_of(
    task_type: TaskType, ending: Ending, case: Case, end: End, *, tried: bool = False, mail: bool = False
) -> set[str]:
    tried = tried or case is Case.SEVERAL_TIMERS
    full = "save_result_timeless" if end.disposition is Disposition.RESUME else "save_result"
    match ending, end.disposition:
        case Ending.LOST, Disposition.RETRY:
            return set()
        case Ending.LOST, _:
            return {"end_zombies"}
        case _, Disposition.REMOVE:
            return {"remove", "save_result"}
        case Ending.SUCCESS, disposition if task_type in _LITE[0] and disposition in _LITE[1] and not tried:
            return {"save_lite", full} if mail else {"save_lite"}
        case _:
            return {full}


WRITERS_OF_VERBS = {
    Verb.START: {"prepare_init"},
    Verb.PUT: {"put_process"},
    Verb.SIMPLE_REPAIR: {"simple_repair"},
    Verb.REMOVE: {"remove"},
}


# Of requests that are run and saved in one transaction: what makes the process, and what ends the step.
FUSED = {TaskType.INIT: {"fused_make"}, TaskType.CALL: set[str]()}
# Of an end that touches no timer, the only one, or one of several.
SAVES = ("fused_save_timeless", "fused_save_one_timer", "fused_save")
# Of steps that are followed by a pause.
PAUSING = {"save_result_pausing", "save_lite_pausing"}
# Of an init that waits for room in its group: the process gets the group, and no other status.
ENTERS = {"enter_group"}
# Of what a retention has deleted: where the history and the tasks begin.
SWEEPS = {"sweep_tasks", "sweep_events"}
# Of a process that was exported: it has the status that it had.
IMPORTS = {"import_processes"}
# Of values of another key: the state in other bytes.
RENEWS = {"renew_states"}


def test_no_other_statement_writes_a_status() -> None:
    """Whatever changes a row of `processes` is driven below; a new statement fails here first."""
    of_steps = [writers_of(*line) for line in LINES]
    others = (*WRITERS_OF_VERBS.values(), *FUSED.values(), SAVES, PAUSING, ENTERS, SWEEPS, IMPORTS, RENEWS)
    assert set().union(*of_steps, *others) == WRITERS
    assert not any(
        "status =" in STATEMENTS[name].partition("UPDATE progressor.tasks")[0]
        for name in (*ENTERS, *SWEEPS, *RENEWS)
    )
    source = Path(progressor.__file__).parent
    # The bench fills a database of its own.
    code = set(source.rglob("*.py")) - {source / "bench" / "rows.py"}
    assert [path for path in code if _WRITES.search(path.read_text(encoding="utf-8"))] == []


class Timer(Enum):
    """How the timer of the process stands when the step ends, at LATE."""

    NONE = "no timer"
    TO_COME = "a timer to come"
    DUE = "a timer that is due"
    IS_THE_TASK = "the timer itself"


class Stage(NamedTuple):
    """What stands around a step that ends."""

    timer: Timer
    mail: bool = False
    """Whether a request waits behind it."""
    new_is_due: bool = False
    """Whether the timer that it sets is due at once."""
    tried: bool = False
    """Whether another try may have saved it, which is asked for nothing short."""


def stages(line: Line) -> Iterator[Stage]:
    """Every line, also at a second try; one of each disposition with each timer, and with a request."""
    task_type, _, case, end = line
    own = (Timer.IS_THE_TASK,) if task_type.is_timer else tuple(Timer)[:-1]
    yield Stage(own[0], tried=True)
    if task_type is TaskType.REPAIR and end.disposition is Disposition.HOLD:
        yield from map(Stage, own)
    elif task_type in (TaskType.CALL, TaskType.TIMEOUT):
        new_is_due = (False, True) if case is Case.SET_TIMER else (False,)
        yield from (Stage(*each) for each in product(own, (False, True), new_is_due))
    else:
        yield Stage(own[0])


def name_of(case: Line | Stage) -> str:
    return "-".join(
        getattr(each, "name", str(each)).lower() for each in case[:4] if not isinstance(each, End)
    )


@pytest.mark.parametrize(
    ("line", "stage"), [(line, stage) for line in LINES for stage in stages(line)], ids=name_of
)
async def test_the_end_of_a_step(
    storage: Storage, tables: Tables, sent: set[str], line: Line, stage: Stage
) -> None:
    """Each line of the table, through the operation that saves it: the status is that of the line.

    Task, timer and mailbox are what its disposition makes of them.
    """
    task_type, ending, case, end = line
    in_init = end.status is ProcessStatus.INIT
    scene = await set_up(storage, tables, task_type, stage, in_init=in_init)
    before = tables.process()
    assert before is not None
    assert before["status"] == RUNS_IN[task_type]
    sent.clear()
    is_lost = ending is Ending.LOST
    ended: Saved | Zombie
    if is_lost:
        lose_the_worker(tables, again=case is Case.RETRIES_LEFT)
        (ended,) = await collect(storage, LATE)
        assert ended.disposition is end.disposition
    else:
        outcome = outcome_of(ending, case, new_is_due=stage.new_is_due)
        decision = decide(scene.step.process, scene.step.task, outcome, RetryPolicy())
        assert decision.disposition is end.disposition
        (saved,) = await storage.save_result([scene.step.step(decision)], now=LATE, tried=stage.tried)
        assert isinstance(saved, Saved)
        ended = saved
    assert sent & WRITERS == writers_of(*line, tried=stage.tried, mail=stage.mail)
    if end.disposition is Disposition.REMOVE:
        assert tables.process() is None
    else:
        check_row(before, tables.process(), end.status, scene.step.task.task_id)
    check_effects(scene, tables, Meant(end.disposition, stage, is_lost), ended, in_init=in_init)


@pytest.mark.parametrize("kind", [TaskType.INIT, TaskType.CALL])
async def test_the_end_of_a_step_before_a_pause(
    storage: Storage, tables: Tables, sent: set[str], kind: TaskType
) -> None:
    """The process runs on, and rests."""
    if kind is TaskType.CALL:
        await start(storage)
    step = await hold(storage, init() if kind is TaskType.INIT else request())
    sent.clear()
    ended = step.step(resume())._replace(pause=SECOND)
    (saved,) = await storage.save_result([ended], now=LATE)
    assert isinstance(saved, Saved)
    assert saved.due == LATE + SECOND
    (way,) = sent & WRITERS
    assert way == ("save_lite_pausing" if kind is TaskType.INIT else "save_result_pausing")
    row = tables.process()
    assert row is not None
    assert (row["status"], row["rests_until"]) == (ProcessStatus.RUNNING, LATE + SECOND)


def check_effects(
    scene: Scene, tables: Tables, meant: Meant, ended: Saved | Zombie, *, in_init: bool
) -> None:
    stand = scene.stand(tables)
    if in_init:
        # The init that waits again is the next task, and a timer waits behind it.
        stand = {who: "waiting" if status == "blocked" else status for who, status in stand.items()}
    assert stand == meant.all()
    if isinstance(ended, Saved):
        assert (ended.continuation is not None) == ("running" in stand.values() or in_init)
    is_notified = meant.stage.mail and meant.mailbox in (OnMailbox.CANCELLED, OnMailbox.GONE)
    assert [scene.who[ref.task_id] for ref in ended.cancelled] == ["request"] * is_notified


def test_the_table_has_all_dispositions() -> None:
    """So that each is tried above."""
    assert {end.disposition for *_, end in LINES} == set(Disposition)


@pytest.mark.parametrize(
    ("task_type", "ending", "case", "end"),
    [line for line in LINES if line[0] in FUSED and line[1] in (Ending.SUCCESS, Ending.REJECTION)],
)
@pytest.mark.parametrize("others", [False, True])
async def test_the_end_of_a_fused_step(
    storage: Storage,
    tables: Tables,
    sent: set[str],
    task_type: TaskType,
    ending: Ending,
    case: Case,
    end: End,
    others: bool,
) -> None:
    """The same lines, of requests that are run and saved in one transaction, where they can be."""
    if task_type is TaskType.CALL:
        await start(storage, "p1", set_timer(at=LATE + SECOND, name="other") if others else resume())
    before = tables.process()
    sent.clear()

    async def run(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [decide(process, task, outcome_of(ending, case), RetryPolicy()) for task, process in claimed]

    asked = init() if task_type is TaskType.INIT else request()
    (outcome,) = await fuse(storage, [asked], run, now=LATE)
    if end.disposition is Disposition.REMOVE or case is Case.SEVERAL_TIMERS:
        assert isinstance(outcome, Continue)
        return
    assert isinstance(outcome, Finished)
    touches = end.disposition is not Disposition.RESUME
    has_others = others and task_type is TaskType.CALL
    assert sent & WRITERS == FUSED[task_type] | {SAVES[touches + (touches and has_others)]}
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


class Scene(NamedTuple):
    """A step that runs, and who stood there when it ended: task ids and what they are."""

    step: Held
    who: dict[int, str]

    def stand(self, tables: Tables) -> dict[str, str]:
        """How each of them stands now, and what was not there before."""
        ids = [row["task_id"] for row in tables.tasks()]
        statuses = [status for _, status in tables.outline()]
        return {
            self.who.get(task_id, "new timer"): "ended" if status in ("finished", "error") else status
            for task_id, status in zip(ids, statuses, strict=True)
            if self.who.get(task_id) != "past"
        }


async def set_up(
    storage: Storage, tables: Tables, task_type: TaskType, stage: Stage, *, in_init: bool
) -> Scene:
    """Hold a task of this type, on a process in the status in which such tasks run."""
    at = T0 + SECOND if stage.timer is Timer.DUE else LATE + SECOND
    first = resume() if stage.timer is Timer.NONE else set_timer(at=at)
    match task_type:
        case TaskType.INIT:
            step = await hold(storage, init())
        case TaskType.TIMEOUT | TaskType.REMOVE:
            made, decision = (
                await hold(storage, init()),
                set_timer(at=T0, remove=task_type is TaskType.REMOVE),
            )
            step = made.next(await save(storage, made, decision), decision)
        case TaskType.REPAIR:
            if in_init:
                await break_init(storage)
            else:
                await start(storage, "p1", first)
                await save(storage, await hold(storage, request()), fail())
            step = await hold(storage, repair())
        case TaskType.CALL | TaskType.NOTIFY:
            await start(storage, "p1", first)
            step = await hold(storage, request("p1", task_type))
    who = {row["task_id"]: "past" for row in tables.tasks()}
    who |= {row["task_id"]: "timer" for row in tables.schedule()}
    who[step.task.task_id] = "task"
    if stage.mail:
        who[(await wait(storage, request(reply_to=61))).task_id] = "request"
    return Scene(step, who)


class Meant(NamedTuple):
    """What is to become of each, by EFFECTS alone. Who goes on runs at once, unless the worker is lost."""

    disposition: Disposition
    stage: Stage
    lost: bool

    @property
    def mailbox(self) -> OnMailbox:
        return EFFECTS[self.disposition].mailbox

    def all(self) -> dict[str, str]:
        stand = {"task": self._task(), "request": self._request(), "timer": self._timer()}
        stand["new timer"] = self._new_timer()
        return {who: status for who, status in stand.items() if status is not None}

    @property
    def _task_is_next(self) -> bool:
        return (
            EFFECTS[self.disposition].task is OnTask.WAITS_AGAIN
            and self.stage.timer is not Timer.IS_THE_TASK
        )

    @property
    def _request_is_next(self) -> bool:
        goes_on = self.mailbox is OnMailbox.GOES_ON
        return self.stage.mail and goes_on and not self._task_is_next

    @property
    def _at_once(self) -> str:
        return "waiting" if self.lost else "running"

    def _behind_requests(self, *, due: bool) -> str:
        if self._request_is_next or self._task_is_next:
            return "blocked"
        return self._at_once if due else "waiting"

    def _task(self) -> str:
        match EFFECTS[self.disposition].task:
            case OnTask.ENDS:
                return "ended"
            case OnTask.WAITS_AGAIN:
                return "waiting" if self._task_is_next else self._behind_requests(due=False)

    def _request(self) -> str | None:
        if not self.stage.mail:
            return None
        match self.mailbox:
            case OnMailbox.GOES_ON:
                return self._at_once if self._request_is_next else "waiting"
            case OnMailbox.CANCELLED:
                return "cancelled"
            case OnMailbox.GONE:
                return None
            case OnMailbox.EMPTY:
                pytest.fail("a broken process took a request")

    def _timer(self) -> str | None:
        if self.stage.timer in (Timer.NONE, Timer.IS_THE_TASK):
            return None
        match EFFECTS[self.disposition].timer:
            case OnTimer.REPLACED | OnTimer.CANCELLED:
                return "cancelled"
            case OnTimer.RESUMED | OnTimer.STAYS:
                return self._behind_requests(due=self.stage.timer is Timer.DUE)
            case OnTimer.HELD:
                return "held"
            case OnTimer.GONE:
                return None

    def _new_timer(self) -> str | None:
        match EFFECTS[self.disposition].timer:
            case OnTimer.REPLACED:
                return self._behind_requests(due=self.stage.new_is_due)
            case OnTimer.HELD if self.stage.timer is Timer.IS_THE_TASK:
                return "held"
            case _:
                return None


def outcome_of(ending: Ending, case: Case, *, new_is_due: bool = False) -> Outcome:
    match ending:
        case Ending.SUCCESS:
            return Success(Intent(action=SetTimer(after=timedelta(0)) if new_is_due else ACTIONS[case]))
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
    await storage.put(Import(NS, "p1", "key", status, detail, timers=(SetTimer(after=SECOND),)), now=T0)
    assert [row["status"] for row in tables.schedule()] == [stands]
