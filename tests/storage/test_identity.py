"""Numbers that a server hands out again, as a standby that lagged: none is taken for an identity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from progressor.inputs import HistoryRange
from progressor.model import Life, TaskStatus
from progressor.storage.operations import Storage
from progressor.storage.queries.reads import Reads
from progressor.storage.values import Gone, Import, TaskKey, TaskOutcome
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    events,
    hold,
    init,
    number,
    request,
    resume,
    save,
    start,
    wait,
)

LOST, UNKNOWN, REMOVED = (TaskOutcome(None, gone=gone) for gone in (Gone.LOST, Gone.UNKNOWN, Gone.REMOVED))
ANSWERED = TaskOutcome(TaskStatus.FINISHED, b"answer")
OTHER = "shop.other"


@pytest.fixture
async def reads(dsn: str) -> AsyncIterator[Reads]:
    reads = Reads(dsn, patience=SECOND)
    yield reads
    await reads.close()


async def test_a_call_of_the_same_number(storage: Storage, tables: Tables) -> None:
    """The task that has the number now is another request's: the one before is lost."""
    await start(storage)
    mark = tables.mark()
    before = await wait(storage, request(worker_id=None))
    tables.fall_back(mark)
    assert await storage.replies([before.key]) == [LOST]
    now = await hold(storage, request())
    assert (now.task.process_no, now.task.task_id) == (before.process_no, before.task_id)
    await save(storage, now, resume())
    assert await storage.replies([before.key, now.ref.key]) == [LOST, ANSWERED]


async def test_other_arguments_under_the_same_key(storage: Storage, tables: Tables) -> None:
    """A key that was lost may be used again, for anything: its answer is not that of the request before."""
    await start(storage)
    mark = tables.mark()
    asked = request(worker_id=None)
    before = await wait(storage, asked)
    tables.fall_back(mark)
    now = await wait(storage, asked._replace(request_hash=b"other arguments"))
    assert now.task_id == before.task_id
    assert await storage.replies([before.key, now.key]) == [LOST, TaskOutcome(TaskStatus.WAITING)]


async def test_the_same_request_asked_again(storage: Storage, tables: Tables) -> None:
    """By its key it is the same request: who waited for it before has its answer."""
    await start(storage)
    mark = tables.mark()
    asked = request(worker_id=None)
    before = await wait(storage, asked)
    tables.fall_back(mark)
    now = await hold(storage, asked._replace(worker_id=1, lease=number()))
    assert now.task.task_id == before.task_id
    await save(storage, now, resume())
    assert await storage.replies([before.key]) == [ANSWERED]


async def test_a_process_of_the_same_number(storage: Storage, tables: Tables) -> None:
    """With the same key and arguments it is another one: of that before nothing is known."""
    mark = tables.mark()
    asked = init("before")
    before = await hold(storage, asked)
    await save(storage, before, resume())
    assert await storage.replies([before.ref.key]) == [ANSWERED]
    tables.fall_back(mark)
    assert await storage.replies([before.ref.key]) == [UNKNOWN]
    now = await hold(storage, asked._replace(process_id="now", lease=number()))
    assert (now.task.process_no, now.task.task_id) == (before.task.process_no, before.task.task_id)
    await save(storage, now, resume())
    assert await storage.replies([before.ref.key, now.ref.key]) == [UNKNOWN, ANSWERED]


async def test_a_removal_of_the_same_number(storage: Storage, tables: Tables) -> None:
    """That the process which has the number now was removed says nothing of the one before."""
    mark = tables.mark()
    before = await hold(storage, init("before"))
    tables.fall_back(mark)
    now = await hold(storage, init("now"))
    await storage.remove(NS, "now")
    assert await storage.replies([before.ref.key, now.ref.key]) == [UNKNOWN, REMOVED]


async def test_who_was_removed_is_known_for_a_day(storage: Storage, tables: Tables) -> None:
    """As removed; later nothing is known of it."""
    step = await hold(storage, init())
    await storage.remove(NS, "p1")
    (row,) = tables.execute(
        "SELECT kept_until - now() > interval '23 hours' AS kept FROM removed_processes"
    )
    assert row["kept"]
    assert await storage.replies([step.ref.key]) == [REMOVED]
    tables.execute("UPDATE removed_processes SET kept_until = now() - interval '1 second'")
    await storage.drop_leftovers()
    assert await storage.replies([step.ref.key]) == [UNKNOWN]


@pytest.mark.parametrize("birth", [None, 1], ids=["of an older release", "of this release"])
async def test_processes_from_before(storage: Storage, tables: Tables, birth: int | None) -> None:
    """Rows without a birth are found by their numbers and keys, and removed; those of others are not."""
    step = await hold(storage, init())
    tables.execute("UPDATE processes SET birth = %s", birth)
    old = step.ref._replace(birth=birth)
    assert await storage.replies([old.key]) == [TaskOutcome(TaskStatus.RUNNING)]
    assert (await storage.remove(NS, "p1")).existed
    # An older release writes no birth there.
    tables.execute("UPDATE removed_processes SET birth = NULL")
    assert await storage.replies([old.key]) == [REMOVED]


async def test_a_removal_tried_again(
    storage: Storage, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the life that it found, and no process that was born under its number since."""
    mark = tables.mark()
    await start(storage, "meant")
    rows = storage._rows

    async def promoted(verb: str, **params: Any) -> Any:
        found = await rows(verb, **params)
        tables.fall_back(mark)
        await start(storage, "innocent")
        return found

    before = tables.process("meant")
    assert before is not None
    with monkeypatch.context() as patched:
        patched.setattr(storage, "_rows", promoted)
        await storage.remove(NS, "meant")
    innocent = tables.process("innocent")
    assert innocent is not None
    assert innocent["process_no"] == before["process_no"]
    assert tables.outline("innocent") == [("init", "finished")]


async def test_a_history_of_the_same_number(storage: Storage, reads: Reads, tables: Tables) -> None:
    """A step that loads the history of its process gets none of another one."""
    await storage.put(Import(NS, "p1", "put-1", events=events(3)), now=T0)
    process = await reads.process(NS, "p1")
    assert process is not None
    assert len(await reads.events(process.life, HistoryRange(), last=3)) == 3
    other = Life(process.process_no, (process.birth or 0) + 1)
    assert await reads.events(other, HistoryRange(), last=3) == ()


async def test_a_captured_task_is_of_the_namespace(storage: Storage, tables: Tables) -> None:
    """A worker that captures by a number of before takes no task of a namespace that it does not serve."""
    tables.set_namespace(OTHER)
    mark = tables.mark()
    before = await wait(storage, init("before", worker_id=None))
    tables.fall_back(mark)
    now = await wait(storage, init("now", namespace=OTHER, worker_id=None))
    assert (now.process_no, now.task_id) == (before.process_no, before.task_id)
    assert await storage.next_task(before.process_no) == now.task_id
    assert await storage.capture_task(before, worker_id=1, lease=number()) is None
    assert await storage.capture_task(now, worker_id=1, lease=number()) is not None


def test_a_fingerprint_tells_requests_apart() -> None:
    """It differs with the process's birth, the key and the arguments; a timer has none."""
    key = TaskKey(1, 1, 2, "key", b"hash")
    others = [key._replace(birth=3), key._replace(idempotency_key="k"), key._replace(request_hash=b"h")]
    assert len({each.fingerprint for each in (key, *others)}) == 4
    assert key.fingerprint == key._replace(process_no=7, task_id=9).fingerprint
    assert key._replace(idempotency_key=None).fingerprint is None
