"""Transfers: a process is exported as of one moment, and imported as it was, but for its numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from progressor.archive.pages import ImportOutcome
from progressor.archive.records import WholeProcess
from progressor.inputs import redo_key
from progressor.model import Event, Life, TaskStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import Duplicate, TaskRef
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    LossyConnections,
    Tables,
    break_process,
    change_timers,
    claim_calls,
    claim_timers,
    events,
    eventually,
    hold,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)
from tests.transfers import lives, outline, renamed


async def exported(storage: Storage, tables: Tables) -> list[WholeProcess]:
    """All processes there are."""
    return await storage.whole(lives(tables))


async def copied(storage: Storage, tables: Tables) -> list[WholeProcess]:
    """Import a copy of each process under another name, and return the copies as they are exported."""
    before = await exported(storage, tables)
    outcomes = await storage.import_processes([renamed(each) for each in before], now=T0)
    assert outcomes == [ImportOutcome.IMPORTED] * len(before)
    copies = (await exported(storage, tables))[len(before) :]
    assert [outline(each) for each in copies] == [outline(each) for each in before]
    return copies


async def test_a_history_with_answers(storage: Storage, tables: Tables) -> None:
    """State, events, answers and keys are those of the original, whatever bytes they are."""
    await start(
        storage, decision=resume(events=events(2), aux_state=b"\x00state", metadata={"plan": "pro"})
    )
    step = await hold(storage, request(key="once", args=b'{"amount":3}'))
    await save(storage, step, resume(events=(Event(b"\xff", {"name": "paid"}),), aux_state=b'{"paid":3}'))
    await copied(storage, tables)
    (again,) = await storage.prepare_call([request("copy-p1", key="once")], now=T0)
    assert isinstance(again, Duplicate)
    assert (again.answer.status, again.answer.response) == (TaskStatus.FINISHED, b"answer")
    assert [each["event_id"] for each in tables.events("copy-p1")] == [1, 2, 3]


async def test_what_waits_is_done_in_its_order(storage: Storage, tables: Tables) -> None:
    """The step that ran goes first, then the mailbox, then the timers, each at its own time."""
    timers = change_timers(SetTimer(after=SECOND, name="b"), SetTimer(after=5 * SECOND, name="a"))
    await start(storage, decision=timers)
    ran = await hold(storage, request(args=b"ran"))
    await wait(storage, request(args=b"first"))
    await wait(storage, request(args=b"second", priority=7))
    await copied(storage, tables)
    await save(storage, ran, resume(), keeps_slot=False)
    order = []
    for _ in range(3):
        for claimed in await claim_calls(storage, now=T0 + SECOND / 2):
            if claimed.task.process_id == "copy-p1":
                order.append(claimed.task.args)
            await save(storage, claimed, resume(), keeps_slot=False, now=T0 + SECOND / 2)
    assert order == [b"ran", b"first", b"second"]
    assert not await claim_timers(storage, now=T0 + SECOND / 2)
    fired = await claim_timers(storage, now=T0 + SECOND)
    assert {(each.task.process_id, each.task.name) for each in fired} == {("p1", "b"), ("copy-p1", "b")}


async def test_a_broken_process_is_repaired(storage: Storage, tables: Tables) -> None:
    """It is broken by the same task, holds its timer, and goes on with it after a repair."""
    await break_process(storage, by_timer=True)
    await copied(storage, tables)
    step = await hold(storage, repair("copy-p1"))
    await save(storage, step, resume(), keeps_slot=False)
    (fired,) = [e for e in await claim_timers(storage) if e.task.process_id == "copy-p1"]
    assert fired.task.task_type is TaskType.TIMEOUT


async def test_a_redo_stays_the_redo_of_its_task(storage: Storage, tables: Tables) -> None:
    """Its key has the number of the task that it runs again, which is another one in the copy."""
    await start(storage)
    step = await hold(storage, request(args=b"stored", name="pay"))
    await save(storage, step, resume())
    old = TaskRef.of(step.task, step.process)
    again = request(key=redo_key(old.task_id), worker_id=None, args=None, name="pay")
    await storage.redo([again._replace(redoes=old.key, request_hash=old.request_hash or b"")], now=T0)
    await copied(storage, tables)
    first, second = [each for each in tables.tasks("copy-p1") if each["name"] == "pay"]
    assert second["idempotency_key"] == redo_key(first["task_id"])


async def test_a_redo_of_what_retention_deleted(storage: Storage, tables: Tables) -> None:
    """It can be moved again: its key has a number that no task has."""
    await start(storage)
    step = await hold(storage, request(args=b"stored", name="pay"))
    await save(storage, step, resume())
    old = TaskRef.of(step.task, step.process)
    again = request(key=redo_key(old.task_id), worker_id=None, args=None, name="pay")
    await storage.redo([again._replace(redoes=old.key, request_hash=old.request_hash or b"")], now=T0)
    tables.execute("DELETE FROM tasks WHERE task_id = %s", old.task_id)
    tables.execute("INSERT INTO task_marks SELECT now() - interval '2 hours', max(task_id) FROM tasks")
    tables.execute("UPDATE processes SET swept_until = %s", old.task_id)
    (copy,) = await copied(storage, tables)
    assert copy.tasks[-1].idempotency_key == redo_key(0)
    assert await storage.import_processes([renamed(copy)], now=T0) == [ImportOutcome.IMPORTED]


async def test_what_retention_left(storage: Storage, tables: Tables) -> None:
    """Events and tasks that are gone stay gone; those that are left keep their numbers in the history."""
    await start(storage, decision=resume(events=events(3)))
    await save(storage, await hold(storage, request()), resume(events=events(2)))
    tables.execute("DELETE FROM tasks WHERE task_type = 'init'")
    tables.execute("DELETE FROM events WHERE event_id <= 2")
    tables.execute("UPDATE processes SET first_event_id = 3")
    tables.execute("INSERT INTO task_marks SELECT now() - interval '2 hours', max(task_id) FROM tasks")
    tables.execute("UPDATE processes SET swept_until = (SELECT min(task_id) - 1 FROM tasks)")
    (copy,) = await copied(storage, tables)
    assert [each.event_id for each in copy.events] == [3, 4, 5]


async def test_a_name_that_is_taken(storage: Storage, tables: Tables) -> None:
    """What is there is left alone, and the others of the batch are imported."""
    await start(storage, "p1")
    await start(storage, "p2")
    wholes = await exported(storage, tables)
    before = tables.tasks("p1")
    other = renamed(wholes[1])
    outcomes = await storage.import_processes([wholes[0], other], now=T0)
    assert outcomes == [ImportOutcome.TAKEN, ImportOutcome.IMPORTED]
    assert tables.tasks("p1") == before
    unknown = other._replace(process=other.process.model_copy(update={"namespace": "nobody.serves"}))
    assert await storage.import_processes([unknown]) == [ImportOutcome.NO_NAMESPACE]


async def test_the_order_of_processes(storage: Storage, tables: Tables) -> None:
    """The numbers of several are in the order in which they were given, whatever their names."""
    for name in "bca":
        await start(storage, name)
    await copied(storage, tables)


async def test_a_process_that_is_gone(storage: Storage, tables: Tables) -> None:
    """It is left out; so is another life under its number."""
    await start(storage)
    (life,) = lives(tables)
    assert await storage.whole([Life(life.process_no, (life.birth or 0) + 1)]) == []
    await storage.remove(NS, "p1")
    assert await storage.whole([life]) == []


async def test_those_that_fit(storage: Storage, tables: Tables) -> None:
    """Tasks and events count, and the bytes of their values; the first process fits, whatever it has."""
    for name, many in (("p1", 1), ("p2", 4), ("p3", 0)):
        await start(storage, name, resume(events=events(many)))
    rows = [2, 2 + 5, 2 + 5 + 1]
    for limit in range(1, 10):
        wanted = max(1, sum(each <= limit for each in rows))
        assert await storage.fitting(lives(tables), rows=limit, size=1 << 20) == wanted
    large = await hold(storage, request(process_id="p3", args=b"1" * 1000))
    await save(storage, large, resume(aux_state=b"2" * 10_000))
    assert await storage.fitting(lives(tables), rows=100, size=1 << 20) == 3
    assert await storage.fitting(lives(tables), rows=100, size=11_000) == 2
    assert await storage.fitting(lives(tables), rows=100, size=0) == 1


async def test_one_moment(storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is saved between two reads of an export is in none of them."""
    await start(storage, decision=resume(events=events(1)))
    send = Session._send

    async def slowly(session: Session, statements: object, hints: object = None) -> object:
        if "whole_tasks" in statements:  # type: ignore[operator]
            monkeypatch.setattr(Session, "_send", send)
            await save(storage, await hold(storage, request()), resume(events=events(1)))
        return await send(session, statements, hints)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_send", slowly)
    (whole,) = await exported(storage, tables)
    assert (len(whole.tasks), len(whole.events), whole.process.last_event_id) == (1, 1, 1)
    assert len(tables.tasks()) == 2


async def test_a_lost_answer(dsn: str, storage: Storage, tables: Tables) -> None:
    """The import that was committed is found again, and makes nothing twice."""
    await start(storage, decision=set_timer(SECOND))
    (whole,) = await exported(storage, tables)
    lossy = LossyConnections(dsn, limit=1)
    lossy.late = 1
    other = Storage(lossy, patience=timedelta(seconds=10))
    outcomes = await other.import_processes([renamed(whole)], now=T0)
    await lossy.close()
    assert outcomes == [ImportOutcome.IMPORTED]
    assert len(tables.tasks("copy-p1")) == 2


class HeldCommit(SessionPool):
    """Keeps its first connection, whatever becomes of it: the transaction there is not rolled back."""

    first: Session | None = None

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        if self.first is None:
            self.first = await self.take()
            yield self.first
            return
        async with super().acquire() as session:
            yield session


async def test_a_commit_under_way(
    dsn: str, storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed while the repetition waits for it is found again, too."""
    await start(storage, decision=set_timer(SECOND))
    (whole,) = await exported(storage, tables)
    connections, commit = HeldCommit(dsn, limit=2), Session.commit

    async def lost(_session: Session, _statements: object) -> None:
        monkeypatch.setattr(Session, "commit", commit)
        raise psycopg.OperationalError("the connection was lost at COMMIT")

    monkeypatch.setattr(Session, "commit", lost)
    other = Storage(connections, patience=timedelta(seconds=10))
    asking = asyncio.create_task(other.import_processes([renamed(whole)], now=T0))
    await eventually(tables.waiting, "the repetition does not wait")
    assert connections.first is not None
    await connections.first.commit({})
    assert await asking == [ImportOutcome.IMPORTED]
    await connections.give_back(connections.first, ended=False)
    await connections.close()
    assert len(tables.tasks("copy-p1")) == 2


async def test_large_ones_come_in_pieces(storage: Storage, tables: Tables) -> None:
    """More rows than one statement takes."""
    await start(storage, decision=resume(events=events(11_000)))
    await copied(storage, tables)
    assert len(tables.events("copy-p1")) == 11_000


async def test_a_step_that_runs(storage: Storage, tables: Tables) -> None:
    """The copy begins it anew, while the original still runs."""
    await start(storage)
    await hold(storage, request())
    (copy,) = await copied(storage, tables)
    assert [task.waits for task in copy.tasks] == [False, True]
    (claimed,) = await claim_calls(storage)
    assert claimed.task.process_id == "copy-p1"
