"""save_lite: it saves what save_result would have saved, and leaves alone what it cannot save."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from progressor.model import Decision, Disposition, Event, Task
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from progressor.storage.values import LostLease, Saved
from tests.support import (
    SECOND,
    T0,
    Held,
    LossyConnections,
    Tables,
    cancel,
    claim_timers,
    fail_timer,
    hold,
    init,
    left,
    number,
    refuse,
    removed,
    request,
    resume,
    retry,
    set_timer,
    start,
    wait,
)

NOW = T0 + 60 * SECOND

LITE = {
    "resume": resume(),
    "resume with all": resume(
        aux_state=b"new", metadata={"plan": "pro"}, events=(Event(b"1", {"name": "paid"}), Event(b"2"))
    ),
    "replace": set_timer(SECOND, events=(Event(b"1"),)),
    "replace at": set_timer(at=NOW + 5 * SECOND),
    "replace by a removal": set_timer(SECOND, remove=True),
    "replace by one that is due": set_timer(timedelta(0)),
    "replace by one that is overdue": set_timer(at=T0),
    "replace by a removal that is due": set_timer(timedelta(0), remove=True),
    "cancel": cancel(aux_state=b"new"),
}


def full(decision: Decision) -> str:
    """The statement that saves any such step."""
    return "save_result_timeless" if decision.disposition is Disposition.RESUME else "save_result"


KINDS = ("init", "timeout", "a timeout that failed before")


async def begun(storage: Storage, process_id: str, kind: str) -> Held:
    """A step of this kind that its worker holds."""
    if kind == "init":
        return await hold(storage, init(process_id, process_metadata={"tenant": 7}))
    await start(storage, process_id, set_timer(SECOND), process_metadata={"tenant": 7})
    (claimed,) = await claim_timers(storage, now=T0 + SECOND)
    if kind == "timeout":
        return claimed
    await storage.save_result([claimed.step(retry())], now=T0 + SECOND)
    (again,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    return again


def alike(following: Task, step: Held) -> Task:
    """A continuation without what differs from process to process."""
    return following._replace(
        process_id="",
        process_no=0,
        task_id=0,
        idempotency_key=None,
        lease=following.lease - step.task.lease,
    )


async def both_ways(storage: Storage, steps: Sequence[Held], decision: Decision, *, keeps: bool) -> None:
    """Save the first in full and the second as it comes: what is told is the same."""
    told = []
    for step, tried in zip(steps, (True, False), strict=True):
        ended = step.step(decision, keeps_slot=keeps)
        (saved,) = await storage.save_result([ended], now=NOW, tried=tried)
        assert isinstance(saved, Saved)
        if saved.continuation is not None:
            saved = saved._replace(continuation=alike(saved.continuation, step))
        told.append(saved)
    assert told[1] == told[0]


@pytest.mark.share(3)
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps the slot", "gives it back"])
@pytest.mark.parametrize("paused", [False, True], ids=["served", "paused"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decision", list(LITE))
async def test_it_leaves_what_save_result_leaves(
    storage: Storage, tables: Tables, sent: set[str], decision: str, kind: str, paused: bool, keeps: bool
) -> None:
    """Every row is the same, but for numbers and keys; so is what the worker is told."""
    steps = [await begun(storage, process_id, kind) for process_id in ("p1", "p2")]
    if paused:
        tables.execute("UPDATE namespaces SET paused = TRUE")
    sent.clear()
    await both_ways(storage, steps, LITE[decision], keeps=keeps)
    assert sent == {"lock", "saved", "wait_briefly", full(LITE[decision]), "save_lite"}
    assert left(tables, "p2") == left(tables, "p1")


@pytest.mark.parametrize("decision", list(LITE))
@pytest.mark.parametrize("kind", KINDS)
async def test_where_a_call_waits_save_result_does_it(
    storage: Storage, tables: Tables, sent: set[str], decision: str, kind: str
) -> None:
    """The call goes first: nothing was done before that was found."""
    steps = []
    for process_id in ("p1", "p2"):
        steps.append(await begun(storage, process_id, kind))
        await wait(storage, request(process_id), now=NOW)
    sent.clear()
    await both_ways(storage, steps, LITE[decision], keeps=True)
    assert sent == {"lock", "saved", "wait_briefly", full(LITE[decision]), "save_lite"}
    assert left(tables, "p2") == left(tables, "p1")
    assert tables.running("p2") is not None


async def test_a_batch_in_which_calls_wait_on_some(storage: Storage, tables: Tables) -> None:
    """Each gets its own outcome, in its own place, the lost ones too."""
    steps = [await begun(storage, f"p{place}", "timeout") for place in range(6)]
    calls = {place: await wait(storage, request(f"p{place}"), now=NOW) for place in (1, 4)}
    ended = [step.step(set_timer(SECOND, aux_state=b"%d" % place)) for place, step in enumerate(steps)]
    ended[3] = ended[3]._replace(task=ended[3].task._replace(lease=number()))
    outcomes = await storage.save_result(ended, now=NOW)
    assert isinstance(outcomes[3], LostLease)
    for place, outcome in enumerate(outcomes):
        if place == 3:
            continue
        assert isinstance(outcome, Saved)
        following = outcome.continuation
        assert (following and following.task_id) == (calls[place].task_id if place in calls else None)
        row = tables.process(f"p{place}")
        assert row is not None
        assert row["aux_state"] == b"%d" % place


@pytest.mark.parametrize(
    ("kind", "decision"),
    [
        ("init", removed()),
        ("timeout", removed()),
        ("timeout", retry()),
        ("call", resume()),
        ("call", refuse()),
    ],
)
async def test_other_ends_are_not_tried(
    storage: Storage, sent: set[str], kind: str, decision: Decision
) -> None:
    """A step that ends more than its own task, or on whose process there may be more, goes the full way."""
    if kind == "call":
        await start(storage)
        step = await hold(storage, request())
    else:
        step = await begun(storage, "p1", kind)
    sent.clear()
    (saved,) = await storage.save_result([step.step(decision)], now=NOW)
    assert isinstance(saved, Saved)
    assert "save_lite" not in sent


async def test_one_that_breaks_takes_its_company_the_full_way(storage: Storage, sent: set[str]) -> None:
    """A batch goes one way: two statements would cost more than the shorter one saves."""
    steps = [await begun(storage, process_id, "timeout") for process_id in ("p1", "p2")]
    ended = [steps[0].step(resume()), steps[1].step(fail_timer(steps[1].task))]
    sent.clear()
    outcomes = await storage.save_result(ended, now=NOW)
    assert all(isinstance(outcome, Saved) for outcome in outcomes)
    assert "save_lite" not in sent


@pytest.mark.parametrize("lost", ["early", "late"])
@pytest.mark.parametrize("decision", list(LITE))
async def test_a_lost_answer(dsn: str, storage: Storage, tables: Tables, decision: str, lost: str) -> None:
    """Whether it was committed or not, it is saved once, and the worker is told the same."""
    steps = [await begun(storage, process_id, "timeout") for process_id in ("p1", "p2")]
    lossy = LossyConnections(dsn, limit=2)
    other = Storage(lossy, patience=10 * SECOND)
    setattr(lossy, lost, 1)
    (kept,) = await storage.save_result([steps[0].step(LITE[decision])], now=NOW)
    (repeated,) = await other.save_result([steps[1].step(LITE[decision])], now=NOW)
    await lossy.close()
    assert (lossy.early, lossy.late) == (0, 0)
    assert isinstance(kept, Saved)
    assert isinstance(repeated, Saved)
    assert (repeated.continuation is None) == (kept.continuation is None)
    assert repeated.due == kept.due
    assert left(tables, "p2") == left(tables, "p1")


async def test_a_connection_that_is_lost_between_the_two(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of a batch are saved, the others not yet: the repetition tells of all, and saves none twice."""
    steps = [await begun(storage, process_id, "timeout") for process_id in ("p1", "p2")]
    first = await wait(storage, request("p2"), now=NOW)
    transact, seen, later = Session.transact, list[tuple[str, ...]](), list[Held]()

    async def torn(session: Session, statements: Transaction, hints: Hints | None) -> Results:
        seen.append(tuple(statements))
        if len(seen) == 2:
            later.append(await hold(storage, request("p1"), now=NOW))
            raise psycopg.OperationalError("the connection was lost")
        return await transact(session, statements, hints)

    monkeypatch.setattr(Session, "transact", torn)
    outcomes = await storage.save_result([step.step(set_timer(SECOND)) for step in steps], now=NOW)
    assert seen[0] == ("lock", "save_lite")
    assert seen[1] == ("lock", "save_result")
    assert seen[-1] == ("lock", "saved", "save_result")
    ended, goes_on = outcomes
    assert isinstance(ended, Saved)
    assert isinstance(goes_on, Saved)
    assert ended.continuation is None
    going_on = goes_on.continuation
    assert going_on is not None
    assert going_on.task_id == first.task_id
    running = tables.running("p1")
    assert running is not None
    assert running["task_id"] == later[0].task.task_id
    assert [row["status"] for row in tables.schedule("p1")] == ["blocked"]
