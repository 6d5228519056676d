"""remove: a process goes with all its rows, whatever it does just now."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.storage.admin import leftovers
from progressor.storage.operations import Storage
from progressor.storage.values import (
    Continue,
    Duplicate,
    Gone,
    Import,
    LostLease,
    Removed,
    Saved,
    TaskOutcome,
    TaskRef,
    most_cancelled,
)
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    check_invariants,
    claim_calls,
    claim_timers,
    events,
    hint_of,
    hold,
    init,
    number,
    postponed,
    removed,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)


async def test_takes_everything(storage: Storage, tables: Tables) -> None:
    """Process, events, timer and finished tasks are gone; others stay."""
    await start(storage, "p1", set_timer(SECOND, events=events(3)))
    await start(storage, "p2", set_timer(SECOND, events=events(3)))
    kept = (tables.process("p2"), tables.tasks("p2"), tables.events("p2"), tables.schedule("p2"))
    assert await storage.remove(NS, "p1") == Removed(existed=True, cancelled=())
    for rows in (tables.tasks(), tables.events(), tables.schedule()):
        assert rows == []
    assert tables.process() is None
    assert (
        tables.process("p2"),
        tables.tasks("p2"),
        tables.events("p2"),
        tables.schedule("p2"),
    ) == kept


LARGE = 1001


def imported(process_id: str, **fields: object) -> Import:
    return Import(NS, process_id, f"put-{number()}", **fields)  # type: ignore[arg-type]


AGE = timedelta(seconds=30)


async def large(storage: Storage, tables: Tables, process_id: str = "p1", *, of: str) -> None:
    """A process with many rows, in the one table or the other."""
    await storage.put(imported(process_id, events=events(LARGE if of == "events" else 2)), now=T0)
    if of == "tasks":
        tables.execute(
            """
            INSERT INTO tasks (
                process_no, task_type, status, scheduled_time, finished_time, idempotency_key, request_hash,
                response
            )
            SELECT process_no, 'call', 'finished', %s, %s, 'key-' || n, 'hash', 'answer'
            FROM processes, generate_series(1, 1001) AS n WHERE process_id = %s
            """,
            T0,
            T0,
            process_id,
        )


def assert_forgotten(tables: Tables) -> None:
    """Nothing is left but the number and the birth, of which nobody can tell the name."""
    (row,) = tables.everything()["removed"]
    assert (row["namespace"], row["process_id"], row["has_events"]) == (None, None, False)
    assert {name for name, rows in tables.everything().items() if rows} == {"removed"}


def rows_left(tables: Tables) -> dict[str, int]:
    return {name: len(rows) for name, rows in tables.everything().items()}


@pytest.mark.parametrize("of", ["events", "tasks"])
async def test_a_large_process_is_gone_at_once_and_its_rows_later(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Its name is free, its callers are told, its keys are forgotten; rows go piece by piece."""
    monkeypatch.setattr(leftovers, "_MOST_ROWS", 400)
    await large(storage, tables, of=of)
    running = await hold(storage, request(reply_to=61))
    waiting = await wait(storage, request(reply_to=62))
    removed_ = await storage.remove(NS, "p1")
    assert set(removed_.cancelled) == {hint_of(running.ref, 61), hint_of(waiting, 62)}
    left = rows_left(tables)
    assert (left["processes"], left["running"], left["schedule"]) == (0, 0, 0)
    assert left[of] >= LARGE
    # The next life has nothing of it, and is not touched.
    await start(storage, "p1", set_timer(SECOND, events=events(1)))
    again = await hold(storage, request(key="key-1"))
    await save(storage, again, resume())
    mine = (tables.process(), tables.tasks(), tables.events(), tables.schedule())
    later, rounds = T0 + SECOND, 1
    while await storage.drop_leftovers(now=later):
        rounds += 1
    assert rounds == 1 + (LARGE + 1) // 400
    await storage.drop_leftovers(now=later)
    assert (tables.process(), tables.tasks(), tables.events(), tables.schedule()) == mine
    assert rows_left(tables)["removed"] == 0
    assert rows_left(tables)["events"] == 1


@pytest.mark.parametrize("of", ["events", "tasks"])
async def test_a_process_of_few_large_rows_is_large(storage: Storage, tables: Tables, of: str) -> None:
    """What would take long to delete is left for later, also where it is not many rows."""
    column, rows = ("payload", 17) if of == "events" else ("response", 2)
    for mebibytes, left in ((60, 0), (68, rows)):
        await storage.put(imported("p1", events=events(17)), now=T0)
        await save(storage, await hold(storage, request()), resume())
        value = f"convert_to(repeat('x', {mebibytes * 1024 * 1024 // rows}), 'UTF8')"
        tables.execute(f"UPDATE {of} SET {column} = {value}".encode())
        await storage.remove(NS, "p1")
        assert rows_left(tables)[of] == left
    while await storage.drop_leftovers(now=T0 + SECOND):
        pass
    assert (rows_left(tables)["events"], rows_left(tables)["tasks"]) == (0, 0)


@pytest.mark.parametrize("of", ["events", "tasks"])
async def test_large_values_go_in_many_rounds(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """A round deletes so many bytes, however few rows they are, and one row at least."""
    await large(storage, tables, of=of)
    column = "payload" if of == "events" else "response"
    tables.execute(f"UPDATE {of} SET {column} = convert_to(repeat('x', 1000), 'UTF8')".encode())
    await storage.remove(NS, "p1")
    before = rows_left(tables)[of]
    for most, gone in ((100_000, 100), (1, 101)):
        monkeypatch.setattr(leftovers, "_MOST_BYTES", most)
        assert await storage.drop_leftovers(now=T0 + SECOND)
        assert rows_left(tables)[of] == before - gone
    monkeypatch.undo()
    assert not await storage.drop_leftovers(now=T0 + SECOND)
    assert rows_left(tables)[of] == 0


@pytest.mark.parametrize("of", ["events", "tasks"])
async def test_a_large_process_that_removes_itself(storage: Storage, tables: Tables, of: str) -> None:
    """Its events go soon, its answers are kept as those of a small one, and all ends after a day."""
    await large(storage, tables, of=of)
    step = await hold(storage, request(key="last", reply_to=61))
    waiting = await wait(storage, request(reply_to=62))
    saved = await save(storage, step, removed())
    assert saved.cancelled == (hint_of(waiting, 62),)
    assert tables.process() is None
    while await storage.drop_leftovers(now=T0 + SECOND):
        pass
    assert tables.everything()["events"] == []
    await start(storage)
    (again,) = await storage.prepare_call([request(key="last")], now=T0 + SECOND)
    assert isinstance(again, Duplicate)
    assert again.answer.response == b"answer"
    await storage.remove(NS, "p1")
    day = timedelta(days=1, seconds=1)
    for _ in range(2):
        await storage.drop_leftovers(now=T0 + day)
    assert set(rows_left(tables).values()) == {0}


async def test_large_processes_of_one_batch(storage: Storage, tables: Tables) -> None:
    """Small and large ones that end in one transaction: each as it would by itself."""
    for name in ("small", "large"):
        await storage.put(imported(name, events=events(3 if name == "small" else LARGE)), now=T0)
    steps = [await hold(storage, request(name)) for name in ("small", "large")]
    saved = await storage.save_result([step.step(removed()) for step in steps], now=T0)
    assert [type(each) for each in saved] == [Saved, Saved]
    assert [row["has_events"] for row in tables.everything()["removed"]] == [False, True]
    assert len(tables.everything()["events"]) == LARGE


async def test_of_many_callers_some_are_told(storage: Storage) -> None:
    """A removal names a bounded number of callers; the others look for themselves, and find nothing."""
    await start(storage)
    running = await hold(storage, request())
    asked = [request(reply_to=60, worker_id=None) for _ in range(1200)]
    waiting = await storage.prepare_call(asked, now=T0)
    told = (await storage.remove(NS, "p1")).cancelled
    assert len(told) == 1000
    refs = [postponed(each) for each in waiting]
    assert {ref.task_id for ref in told} < {ref.task_id for ref in refs}
    gone = TaskOutcome(None, gone=Gone.REMOVED)
    assert await storage.replies([refs[0].key, refs[-1].key]) == [gone, gone]
    assert await storage.save_result([running.step(resume())], now=T0) == [LostLease(removed=True)]


_FILL = """
WITH filled AS (
    INSERT INTO tasks (
        process_no, task_type, status, scheduled_time, idempotency_key, request_hash, reply_to
    )
    SELECT p.process_no, 'notify', 'waiting', %s, 'filled-' || n, 'hash', 61
    FROM processes AS p CROSS JOIN generate_series(1, %s) AS n
    RETURNING process_no, task_id, scheduled_time
)
INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT f.process_no, f.task_id, p.namespace_no, 'notify', f.scheduled_time, FALSE
FROM filled AS f JOIN processes AS p USING (process_no)
RETURNING task_id
"""


@pytest.mark.parametrize("by_itself", [False, True])
async def test_a_mailbox_too_long_for_one_transaction(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch, dsn: str, by_itself: bool
) -> None:
    """The process is gone at once for all who wait; what nobody can claim is deleted piece by piece."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request(key="last"))
    birth = step.ref.birth
    filled = [row["task_id"] for row in tables.execute(_FILL, T0, most_cancelled(1) + 50)]
    if by_itself:
        await save(storage, step, removed())
    else:
        assert (await storage.remove(NS, "p1")).existed
    assert 0 < len(tables.everything()["schedule"]) <= 51
    check_invariants(dsn)
    late = T0 + SECOND
    assert (await claim_calls(storage, now=late), await claim_timers(storage, now=late)) == ([], [])
    keys = [
        TaskRef(NS, step.task.process_no, task_id, None, birth, f"filled-{place}", b"hash").key
        for place, task_id in ((1, min(filled)), (len(filled), max(filled)))
    ]
    gone = TaskOutcome(None, gone=Gone.REMOVED)
    assert await storage.replies(keys) == [gone, gone]
    # The next life of the name has nothing of it.
    await start(storage, "p1")
    monkeypatch.setattr(leftovers, "_MOST_ROWS", 20)
    rounds = 1
    while await storage.drop_leftovers(now=late):
        rounds += 1
        check_invariants(dsn)
    assert rounds >= 3
    await storage.drop_leftovers(now=late)
    assert tables.schedule() == []
    await storage.remove(NS, "p1")
    (again,) = await storage.prepare_init([init(key="last")], now=late)
    assert isinstance(again, Duplicate if by_itself else Continue)
    for _ in range(2):
        await storage.drop_leftovers(now=T0 + timedelta(days=1, seconds=2))
    assert rows_left(tables)["removed"] == 0


async def test_missing_process(storage: Storage) -> None:
    """There is nothing to remove, and the answer says so."""
    assert await storage.remove(NS, "p1") == Removed(existed=False, cancelled=())


async def test_other_namespace(storage: Storage, tables: Tables) -> None:
    """A process of the same id in another namespace stays."""
    await start(storage)
    assert not (await storage.remove("shop.other", "p1")).existed
    assert tables.process() is not None


async def test_callers_are_told(storage: Storage) -> None:
    """Those who wait for a task that runs or waits are named; those who have their answer are not."""
    await start(storage)
    done = await hold(storage, request(reply_to=60))
    await save(storage, done, resume())
    running = await hold(storage, request(reply_to=61))
    waiting = await wait(storage, request(reply_to=62))
    await wait(storage, request())
    answer = await storage.remove(NS, "p1")
    assert set(answer.cancelled) == {
        hint_of(running.ref, 61),
        hint_of(waiting, 62),
    }


async def test_running_step_is_fenced_off(storage: Storage, tables: Tables) -> None:
    """The step that runs meanwhile saves nothing, and does not bring the process back."""
    await start(storage)
    step = await hold(storage, request())
    await storage.remove(NS, "p1")
    result = await storage.save_result([step.step(set_timer(SECOND, events=events(1)))], now=T0)
    assert result == [LostLease(removed=True)]
    assert_forgotten(tables)


async def test_fenced_off_from_the_next_life(storage: Storage, tables: Tables) -> None:
    """A step of the removed life does not touch a process that was made anew under the id."""
    old = await hold(storage, init())
    await storage.remove(NS, "p1")
    new = await hold(storage, init())
    before = tables.everything()
    for decision in (removed(), resume(events=events(1))):
        assert await storage.save_result([old.step(decision)], now=T0) == [LostLease(removed=True)]
    assert tables.everything() == before
    await save(storage, new, resume())


@pytest.mark.parametrize("state", ["broken", "repairing", "init", "init waiting"])
async def test_in_any_status(storage: Storage, tables: Tables, state: str) -> None:
    """A process can be removed in any status."""
    match state:
        case "broken":
            await break_process(storage)
        case "repairing":
            await break_process(storage)
            await hold(storage, repair())
        case "init":
            await hold(storage, init())
        case "init waiting":
            await storage.prepare_init([init(worker_id=None)], now=T0)
    assert (await storage.remove(NS, "p1")).existed
    assert_forgotten(tables)


async def test_answers_of_an_earlier_life_stay(storage: Storage, tables: Tables) -> None:
    """What an earlier removal kept for its caller is not taken by a later one."""
    await start(storage)
    step = await hold(storage, request())
    await save(storage, step, removed())
    kept = tables.tasks()
    await start(storage)
    await storage.remove(NS, "p1")
    assert tables.tasks() == kept
