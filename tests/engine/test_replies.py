"""Who waits for which task: hints, polls, and nothing left behind."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Engine, Namespace, Process
from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.model import Reply, TaskStatus
from progressor.node import replies as replies_module
from progressor.node.replies import Replies
from progressor.storage import operations
from progressor.storage.operations import Storage
from progressor.storage.values import Gone, TaskOutcome, TaskRef
from tests.support import NS, Tables, eventually, hold, init, resume, save, start

CLIENT = 61
HOUR = timedelta(hours=1)
ANSWER = TaskOutcome(TaskStatus.FINISHED, b"1")

Make = Callable[..., Replies]


@pytest.fixture
async def make(storage: Storage) -> AsyncIterator[Make]:
    made: list[Replies] = []

    def make(
        poll_interval: timedelta = HOUR, announced: list[tuple[int, str, int]] | None = None
    ) -> Replies:
        said = [] if announced is None else announced
        replies = Replies(storage, poll_interval=poll_interval, announce=lambda *each: said.append(each))
        replies.start()
        made.append(replies)
        return replies

    yield make
    for replies in made:
        await replies.stop()


def is_empty(replies: Replies) -> bool:
    return not (replies._waiters or replies._by_id or replies._early or replies._wanted)


def ref(task_id: int, reply_to: int | None = None) -> TaskRef:
    return TaskRef(NS, 1, task_id, reply_to)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_an_answer_reaches_all_who_wait_for_the_task(make: Make) -> None:
    """Any number of callers may wait for one task; afterwards nothing is kept."""
    replies, announced = make(), []
    waiting = [asyncio.create_task(replies.wait(ref(1))) for _ in range(3)]
    other = asyncio.create_task(replies.wait(ref(2)))
    await turn()
    replies.resolve(ref(1), ANSWER)
    assert await asyncio.gather(*waiting) == [ANSWER] * 3
    assert not other.done()
    replies.resolve(ref(2), ANSWER)
    assert await other == ANSWER
    assert announced == []
    assert is_empty(replies)


async def test_a_call_whose_answer_cannot_be_read(dsn: str, tables: Tables) -> None:
    """Its caller hears that the task has ended, not that there was no reply in time."""
    large = Namespace(NS)

    @large.init
    async def begin(process: Process[Any]) -> None: ...

    @large.call
    async def answer(process: Process[Any]) -> str:
        return os.urandom(5_000).hex()

    async with Engine(dsn, [large]) as engine, Client(dsn) as client:
        await engine.client.start(NS, "p")
        with tables.damaged("tasks"):
            receipt = await client.submit_call(NS, "p", "answer")
            ended = "SELECT task_id FROM tasks WHERE status = 'finished' AND task_id = %s"
            await eventually(lambda: tables.execute(ended, receipt.task_id), "it has ended")
        with pytest.raises(StorageUnavailable, match=r"^PostgreSQL cannot read the answer: .*chunk"):
            await client.answer(receipt)


async def test_an_answer_that_cannot_be_read(make: Make, storage: Storage, tables: Tables) -> None:
    """Who waits for it hears so; who waits for others gets theirs."""
    kept = await hold(storage, init("p1"))
    lost = await hold(storage, init("p2"))
    await save(storage, kept, resume())
    with tables.damaged("tasks"):
        await save(storage, lost, resume(reply=Reply(response=os.urandom(5_000))))
    replies = make()
    refs = [each.ref for each in (lost, kept)]
    waiting = [asyncio.create_task(replies.wait(each)) for each in refs]
    await turn()
    replies.look_at_all()
    with pytest.raises(StorageUnavailable, match=r"^PostgreSQL cannot read the answer: .*chunk"):
        await waiting[0]
    assert (await waiting[1]).response == b"answer"
    assert is_empty(replies)


async def test_an_answer_for_somebody_elsewhere_is_announced(make: Make) -> None:
    """On its caller's channel, if it has one."""
    announced: list[tuple[int, str, int]] = []
    replies = make(announced=announced)
    replies.announce(ref(1, CLIENT))
    replies.look(ref(2, CLIENT))
    replies.announce(ref(3))
    assert announced == [(CLIENT, NS, 1), (CLIENT, NS, 2)]
    assert is_empty(replies)


async def test_a_waiter_that_gives_up_leaves_nothing(make: Make) -> None:
    """Callers that give up are forgotten; the last one takes the waiter with it."""
    replies = make()
    first, second = (asyncio.create_task(replies.wait(ref(1))) for _ in range(2))
    await turn()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not is_empty(replies)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert is_empty(replies)


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(make: Make) -> None:
    """A cancelled caller leaves the other callers of the task waiting, and answered."""
    replies = make()
    first, second = (asyncio.create_task(replies.wait(ref(1))) for _ in range(2))
    await turn()
    first.cancel()
    await turn()
    replies.resolve(ref(1), ANSWER)
    assert await second == ANSWER
    assert is_empty(replies)


async def test_a_hint_makes_it_look(storage: Storage, make: Make) -> None:
    """A hint says where to look; the answer comes from the tables."""
    replies, step = make(), await hold(storage, init())
    waiting = asyncio.create_task(replies.wait(step.ref))
    await turn()
    replies.hint([step.task.task_id])
    await turn()
    assert not waiting.done()
    await save(storage, step, resume())
    replies.hint([step.task.task_id, 999])
    assert (await waiting).response == b"answer"
    # A hint for nobody is kept, in case its waiter is on the way.
    replies.hint([])
    assert list(replies._early) == [999]


async def test_an_early_hint_is_not_lost(storage: Storage, make: Make) -> None:
    """A task may end before its request's answer is back: its hint waits for the waiter."""
    replies, step = make(), await hold(storage, init())
    await save(storage, step, resume())
    replies.hint([step.task.task_id])
    assert (await replies.wait(step.ref)).status is TaskStatus.FINISHED
    assert is_empty(replies)


async def test_early_hints_are_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints for nobody do not pile up: the oldest go."""
    monkeypatch.setattr(replies_module, "_MOST_EARLY", 3)
    replies = make()
    replies.hint(range(1, 6))
    assert list(replies._early) == [3, 4, 5]


async def test_the_poll_needs_no_hint(storage: Storage, make: Make) -> None:
    """Every waiter is looked after by a poll."""
    replies, step = make(timedelta(milliseconds=5)), await hold(storage, init())
    waiting = asyncio.create_task(replies.wait(step.ref))
    await save(storage, step, resume())
    assert (await waiting).status is TaskStatus.FINISHED
    await eventually(lambda: is_empty(replies), "nothing is kept")


async def test_a_defect_leaves_nobody_waiting(
    storage: Storage, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the look-up meets does not end it: who waits is answered by the next one."""
    read = storage.replies

    async def fail_once(keys: object) -> object:
        monkeypatch.setattr(storage, "replies", read)
        raise KeyError("a defect")

    monkeypatch.setattr(storage, "replies", fail_once)
    replies, step = make(timedelta(milliseconds=5)), await hold(storage, init())
    await save(storage, step, resume())
    assert (await replies.wait(step.ref)).status is TaskStatus.FINISHED
    said = [record.part for record in caplog.records if message_of(record) == "background task failed"]
    assert said == ["replies"]


async def test_a_task_that_is_gone(storage: Storage, tables: Tables, make: Make) -> None:
    """The row of a removed process's task is gone: the answer says so by having no status."""
    replies = make(timedelta(milliseconds=5))
    await start(storage)
    (task,), process = tables.tasks(), tables.process()
    assert process is not None
    await storage.remove(NS, "p1")
    gone = TaskRef(
        NS,
        task["process_no"],
        task["task_id"],
        birth=process["birth"],
        idempotency_key=task["idempotency_key"],
        request_hash=bytes(task["request_hash"]),
    )
    assert await replies.wait(gone) == TaskOutcome(None, gone=Gone.REMOVED)


async def test_stop_tells_who_waits(make: Make) -> None:
    """Who still waits when it stops gets an error of ours, not a cancellation."""
    replies = make()
    waiting = asyncio.create_task(replies.wait(ref(1)))
    await turn()
    await replies.stop()
    with pytest.raises(StorageUnavailable):
        await waiting
    assert is_empty(replies)


async def test_nobody_waits_after_the_stop(make: Make) -> None:
    """Whoever comes after the stop is told at once, as there is nobody left to look."""
    replies = make()
    await replies.stop()
    with pytest.raises(StorageUnavailable, match="closed"):
        await replies.wait(ref(1))


async def test_answers_for_which_there_was_no_room(
    make: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one look cannot bring the next one does, without a hint or a poll."""
    monkeypatch.setattr(operations, "ROOM", 1)
    replies = make()
    refs = []
    for name in ("p1", "p2", "p3"):
        step = await hold(storage, init(name))
        await save(storage, step, resume())
        refs.append(step.ref)
    waiting = [asyncio.create_task(replies.wait(each)) for each in refs]
    await turn()
    replies.hint(each.task_id for each in refs)
    async with asyncio.timeout(30):
        assert [answer.response for answer in await asyncio.gather(*waiting)] == [b"answer"] * 3
    assert is_empty(replies)
