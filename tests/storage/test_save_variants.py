"""Variants of save_result: each leaves what the statement with all parts would have left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from progressor.model import Decision, Event, Task
from progressor.storage.operations import Storage
from progressor.storage.steps import save as saving
from progressor.storage.values import Saved, Step
from progressor.timers import SetTimer, UnsetTimer
from tests.support import (
    SECOND,
    T0,
    Held,
    Tables,
    change_timers,
    hold,
    left,
    refuse,
    request,
    resume,
    set_timer,
    start,
    wait,
)

NOW = T0 + 60 * SECOND
TIMERS = {
    "no timer": resume(),
    "one to come": set_timer(at=NOW + SECOND),
    "one that is due": set_timer(at=T0 + SECOND),
    "several, one of them due": change_timers(
        SetTimer(at=NOW + SECOND),
        SetTimer(at=T0 + SECOND, name="b"),
        SetTimer(at=T0 + 2 * SECOND, name="c"),
    ),
    "several to come": change_timers(SetTimer(at=NOW + 2 * SECOND), SetTimer(at=NOW + SECOND, name="b")),
}
ENDS = {
    "resume": resume(),
    "resume with all": resume(
        aux_state=b"new", metadata={"plan": "pro"}, events=(Event(b"1"), Event(b"2"))
    ),
    "refuse": refuse(),
    "several changes": change_timers(SetTimer(after=timedelta(0), name="b"), UnsetTimer("c")),
}
BESIDE = {
    "served": (),
    "paused": ("UPDATE namespaces SET paused = TRUE",),
    "in a group": (
        (
            "INSERT INTO groups (group_no, namespace_no, group_key) OVERRIDING SYSTEM VALUE "
            "SELECT 1, namespace_no, 'acme' FROM namespaces"
        ),
        "SELECT setval('groups_group_no_seq', 1)",
        "UPDATE processes SET group_no = 1",
        "UPDATE running SET group_no = 1",
    ),
    "rested before": ("UPDATE processes SET rests_until = now()",),
}


async def begun(storage: Storage, process_id: str, timers: str, calls: int) -> Held:
    """A call that its worker holds, with timers beside it and calls behind it."""
    await start(storage, process_id, process_metadata={"tenant": 7})
    first = await hold(storage, request(process_id))
    (saved,) = await storage.save_result([first.step(TIMERS[timers])], now=T0)
    assert isinstance(saved, Saved)
    step = await hold(storage, request(process_id))
    for priority in range(calls):
        await wait(storage, request(process_id, priority=priority), now=NOW)
    return step


def alike(following: Task | None) -> Task | None:
    """A continuation without what differs from process to process."""
    if following is None:
        return None
    return following._replace(process_id="", process_no=0, task_id=0, idempotency_key=None, lease=0)


async def told(storage: Storage, step: Held, decision: Decision, *, keeps: bool) -> Saved:
    (saved,) = await storage.save_result([step.step(decision, keeps_slot=keeps)], now=NOW)
    assert isinstance(saved, Saved)
    return saved._replace(continuation=alike(saved.continuation))


@pytest.mark.share(4)
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps the slot", "gives it back"])
@pytest.mark.parametrize("calls", [0, 2], ids=["no call", "calls wait"])
@pytest.mark.parametrize("beside", list(BESIDE))
@pytest.mark.parametrize("timers", list(TIMERS))
@pytest.mark.parametrize("end", list(ENDS))
async def test_it_leaves_what_all_parts_leave(
    storage: Storage,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    timers: str,
    beside: str,
    calls: int,
    keeps: bool,
) -> None:
    """Whatever stands beside the step, and the worker is told the same."""
    steps = [await begun(storage, process_id, timers, calls) for process_id in ("p1", "p2", "p3")]
    for change in BESIDE[beside]:
        tables.execute(change)
    chosen, found = saving._variant, list[str]()
    sent = iter(("save_result_pausing", "save_result", "save_result_timeless"))

    def choose(verb: str, steps: Sequence[Step]) -> str:
        found.append(chosen(verb, steps))
        return next(sent)

    monkeypatch.setattr(saving, "_variant", choose)
    answers = [await told(storage, step, ENDS[end], keeps=keeps) for step in steps]
    assert set(found) == {"save_result_timeless"}
    assert answers == [answers[0]] * 3
    assert left(tables, "p2") == left(tables, "p1")
    assert left(tables, "p3") == left(tables, "p1")
