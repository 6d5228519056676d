"""What the end of a step does to task, timer and mailbox is what transitions.EFFECTS says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from itertools import product
from typing import NamedTuple

import pytest

from progressor.model import Decision, Disposition, Task, TaskType
from progressor.storage.operations import Storage
from progressor.transitions import EFFECTS, OnMailbox, OnTask, OnTimer
from tests.support import (
    SECOND,
    T0,
    Held,
    Tables,
    cancel,
    collect,
    fail,
    fail_repair,
    fail_timer,
    hold,
    init,
    refuse,
    removed,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

LATE = T0 + 60 * SECOND


class Timer(Enum):
    """How the timer of the process stands when the step ends, at LATE."""

    NONE = "no timer"
    TO_COME = "a timer to come"
    DUE = "a timer that is due"
    IS_THE_TASK = "the timer itself"


def break_it(task: Task) -> Decision:
    return fail_timer(task) if task.task_type.is_timer else fail()


# By name: the decision that a step ends with; and what becomes of one whose worker was lost.
DECISIONS: dict[str, Callable[[Task], Decision]] = {
    "replace, to come": lambda _: set_timer(at=LATE + SECOND),
    "replace, due": lambda _: set_timer(timedelta(0)),
    "resume": lambda _: resume(),
    "resume, rejected": lambda _: refuse(),
    "cancel": lambda _: cancel(),
    "retry": lambda _: retry(SECOND),
    "break": break_it,
    "hold": lambda _: fail_repair(),
    "remove": lambda _: removed(),
}
LOSSES = ("retry", "break", "hold")


def can_be(end: str, timer: Timer, *, mail: bool) -> bool:
    """A failed repair is of a broken process, which takes no request; no timer is rejected."""
    match end:
        case "hold":
            return not mail and timer is not Timer.IS_THE_TASK
        case "resume, rejected":
            return timer is not Timer.IS_THE_TASK
        case _:
            return True


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
    storage: Storage, tables: Tables, task_type: TaskType, timer: Timer, *, mail: bool
) -> Scene:
    if timer is Timer.IS_THE_TASK:
        first = await hold(storage, init())
        decision = set_timer(at=T0)
        step = first.next(await save(storage, first, decision), decision)
    else:
        at = T0 + SECOND if timer is Timer.DUE else LATE + SECOND
        await start(storage, "p1", resume() if timer is Timer.NONE else set_timer(at=at))
        if task_type is TaskType.REPAIR:
            await save(storage, await hold(storage, request()), fail())
        step = await hold(storage, request("p1", task_type))
    who = {row["task_id"]: "past" for row in tables.tasks()}
    who |= {row["task_id"]: "timer" for row in tables.schedule()}
    who[step.task.task_id] = "task"
    if mail:
        who[(await wait(storage, request(reply_to=61))).task_id] = "request"
    return Scene(step, who)


class Meant(NamedTuple):
    """What is to become of each, by EFFECTS alone. Who goes on runs at once, unless the worker is lost."""

    disposition: Disposition
    timer: Timer
    mail: bool
    lost: bool = False
    new_is_due: bool = False

    def all(self) -> dict[str, str]:
        stand = {"task": self._task(), "request": self._request(), "timer": self._timer()}
        stand["new timer"] = self._new_timer()
        return {who: status for who, status in stand.items() if status is not None}

    @property
    def _task_is_next(self) -> bool:
        return EFFECTS[self.disposition].task is OnTask.WAITS_AGAIN and self.timer is not Timer.IS_THE_TASK

    @property
    def _request_is_next(self) -> bool:
        goes_on = EFFECTS[self.disposition].mailbox is OnMailbox.GOES_ON
        return self.mail and goes_on and not self._task_is_next

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
        if not self.mail:
            return None
        match EFFECTS[self.disposition].mailbox:
            case OnMailbox.GOES_ON:
                return self._at_once if self._request_is_next else "waiting"
            case OnMailbox.CANCELLED:
                return "cancelled"
            case OnMailbox.GONE:
                return None
            case OnMailbox.EMPTY:
                pytest.fail("a broken process took a request")

    def _timer(self) -> str | None:
        if self.timer in (Timer.NONE, Timer.IS_THE_TASK):
            return None
        match EFFECTS[self.disposition].timer:
            case OnTimer.REPLACED | OnTimer.CANCELLED:
                return "cancelled"
            case OnTimer.RESUMED | OnTimer.STAYS:
                return self._behind_requests(due=self.timer is Timer.DUE)
            case OnTimer.HELD:
                return "held"
            case OnTimer.GONE:
                return None

    def _new_timer(self) -> str | None:
        match EFFECTS[self.disposition].timer:
            case OnTimer.REPLACED:
                return self._behind_requests(due=self.new_is_due)
            case OnTimer.HELD if self.timer is Timer.IS_THE_TASK:
                return "held"
            case _:
                return None


@pytest.mark.parametrize(
    ("end", "timer", "mail"),
    [
        each
        for each in product(DECISIONS, Timer, (False, True))
        if can_be(each[0], each[1], mail=each[2]) and (each[0] != "retry" or each[1] is Timer.IS_THE_TASK)
    ],
)
async def test_a_saved_step(storage: Storage, tables: Tables, end: str, timer: Timer, mail: bool) -> None:
    """Each disposition, whatever timer there is and whether or not a request waits."""
    task_type = TaskType.REPAIR if end == "hold" else TaskType.CALL
    scene = await set_up(storage, tables, task_type, timer, mail=mail)
    decision = DECISIONS[end](scene.step.task)
    saved = await save(storage, scene.step, decision, now=LATE)
    stand = scene.stand(tables)
    meant = Meant(decision.disposition, timer, mail, new_is_due=end == "replace, due")
    assert stand == meant.all()
    runs = [who for who, status in stand.items() if status == "running"]
    assert (saved.continuation is not None) == bool(runs)
    effect = EFFECTS[decision.disposition].mailbox
    told = mail and effect in (OnMailbox.CANCELLED, OnMailbox.GONE)
    assert [scene.who[ref.task_id] for ref in saved.cancelled] == ["request"] * told


@pytest.mark.parametrize(
    ("end", "timer", "mail"),
    [each for each in product(LOSSES, Timer, (False, True)) if can_be(each[0], each[1], mail=each[2])],
)
async def test_a_lost_step(storage: Storage, tables: Tables, end: str, timer: Timer, mail: bool) -> None:
    """The same of one whose worker was lost: what could go on at once waits for another worker."""
    task_type = TaskType.REPAIR if end == "hold" else TaskType.CALL
    scene = await set_up(storage, tables, task_type, timer, mail=mail)
    tables.set_namespace(on_zombie="retry" if end == "retry" else "error")
    tables.set_worker()
    tables.set_collector()
    (zombie,) = await collect(storage, LATE)
    assert zombie.disposition == end
    stand = scene.stand(tables)
    assert stand == Meant(zombie.disposition, timer, mail, lost=True).all()
    told = mail and EFFECTS[zombie.disposition].mailbox is OnMailbox.CANCELLED
    assert [scene.who[ref.task_id] for ref in zombie.cancelled] == ["request"] * told


def test_all_dispositions_are_tried() -> None:
    """Names begin with the disposition."""
    assert {name.partition(",")[0] for name in DECISIONS} == set(Disposition)
