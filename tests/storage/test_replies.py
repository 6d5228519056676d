"""replies: how the tasks that somebody waits for stand."""

from __future__ import annotations

import pytest

from progressor.model import Reply, TaskStatus
from progressor.storage import operations
from progressor.storage.operations import Storage
from progressor.storage.values import Gone, TaskOutcome
from tests.support import fail, hold, init, removed, request, resume, save, start, wait


async def test_each_status(storage: Storage) -> None:
    """Answers come in the order of the questions, one for each, repeated ones too."""
    await start(storage, "done")
    done = await hold(storage, request("done"))
    await save(storage, done, resume())
    running = await hold(storage, init("busy"))
    waiting = await wait(storage, request("busy"))
    await start(storage, "broken")
    broken = await hold(storage, request("broken"))
    cancelled = await wait(storage, request("broken"))
    await save(storage, broken, fail("KeyError: 'x'"))
    refs = [cancelled, done.ref, waiting, broken.ref, done.ref, running.ref]
    assert await storage.replies([ref.key for ref in refs]) == [
        TaskOutcome(TaskStatus.CANCELLED, None, "KeyError: 'x'"),
        TaskOutcome(TaskStatus.FINISHED, b"answer"),
        TaskOutcome(TaskStatus.WAITING),
        TaskOutcome(TaskStatus.ERROR, None, "KeyError: 'x'"),
        TaskOutcome(TaskStatus.FINISHED, b"answer"),
        TaskOutcome(TaskStatus.RUNNING),
    ]


async def test_removed(storage: Storage) -> None:
    """What went with its process has no status; the step that removed it has its answer."""
    await start(storage)
    step = await hold(storage, request())
    gone = await wait(storage, request())
    await save(storage, step, removed())
    never = gone._replace(process_no=gone.process_no + 1)
    assert await storage.replies([gone.key, step.ref.key, never.key]) == [
        TaskOutcome(None, gone=Gone.REMOVED),
        TaskOutcome(TaskStatus.FINISHED, b"answer"),
        TaskOutcome(None, gone=Gone.UNKNOWN),
    ]


async def test_nothing(storage: Storage) -> None:
    """No question, no answer."""
    assert await storage.replies([]) == []


async def test_so_many_as_have_room(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are handed out from the first one on until they are too large together."""
    monkeypatch.setattr(operations, "ROOM", 1500)
    refs = []
    for name in ("p1", "p2", "p3"):
        step = await hold(storage, init(name))
        await save(storage, step, resume(reply=Reply(response=name.encode() * 500)))
        refs.append(step.ref.key)
    sizes = [len(answer.response or b"") for answer in await storage.replies(refs)]
    assert sizes == [1000, 1000]
    assert len(await storage.replies(refs[2:])) == 1
