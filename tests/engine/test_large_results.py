"""Many large results at once: an engine holds no more of them than its budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from progressor import Engine, Intent, Namespace, Process, StorageUnavailable, Task
from progressor.storage import ROOM, Finished, Step
from progressor.storage.operations import Storage
from progressor.worker.worker import Worker
from tests.support import NS, check_invariants, eventually

LARGE = bytes(8 << 20)
COUNT = 2 * ROOM // len(LARGE)


class Held:
    """The bytes of results that a handler has returned, and whose save has not come back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.now = self.most = 0
        save = Worker._save
        saved_at_once, saved_with_claim = Worker.saved_at_once, Worker.saved_with_claim

        async def counted(worker: Worker, step: Step, *rest: Any) -> Any:
            try:
                return await save(worker, step, *rest)
            finally:
                self._less(step)

        def counted_at_once(worker: Worker, finished: Finished, *, since: float) -> Any:
            self._less(finished.step)
            return saved_at_once(worker, finished, since=since)

        def counted_with_claim(worker: Worker, step: Step, *rest: Any, since: float) -> Any:
            self._less(step)
            return saved_with_claim(worker, step, *rest, since=since)

        monkeypatch.setattr(Worker, "_save", counted)
        monkeypatch.setattr(Worker, "saved_at_once", counted_at_once)
        # What found no slot at once is claimed, as soon as one is free.
        monkeypatch.setattr(Worker, "saved_with_claim", counted_with_claim)

    def _less(self, step: Step) -> None:
        self.now -= len(step.decision.aux_state or b"")

    async def process(self, task: Task, process: Process[Any]) -> Intent:
        if task.name is None:
            return Intent()
        self.begun += 1
        self.now += len(LARGE)
        self.most = max(self.most, self.now)
        return Intent(aux_state=LARGE)


async def start_all(engine: Engine) -> None:
    for number in range(COUNT):
        await engine.client.start(NS, str(number))


@pytest.mark.parametrize("fuse", ["always", "never"])
async def test_many_large_results(
    fuse: Literal["always", "never"], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers begin as results are saved: however many ask, no more wait than the budget has room for."""
    held = Held(monkeypatch)
    async with Engine(dsn, [Namespace(NS, handler=held)], fuse=fuse) as engine:
        await start_all(engine)
        calls = (engine.client.call(NS, str(number), "grow") for number in range(COUNT))
        await asyncio.gather(*calls)
        # An answer that is looked up may come before its save has come back.
        await eventually(lambda: held.now == 0, "all saves have come back")
        assert 0 < held.most <= ROOM
        await eventually(lambda: engine.pools[NS]._budget.used == 0, "there is room")
    check_invariants(dsn)


async def test_a_save_that_fails_makes_room(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be saved is held no longer: other steps begin."""
    save_result = Storage.save_result

    async def refuse(storage: Storage, steps: Sequence[Step], **options: Any) -> list[Any]:
        if any(step.decision.aux_state for step in steps):
            raise StorageUnavailable("no")
        return list(await save_result(storage, steps, **options))

    monkeypatch.setattr(Storage, "save_result", refuse)
    held = Held(monkeypatch)
    async with Engine(dsn, [Namespace(NS, handler=held)], fuse="never") as engine:
        await start_all(engine)
        for number in range(COUNT):
            await engine.client.notify(NS, str(number), "grow")
        await eventually(lambda: held.begun == COUNT, "all handlers have begun")
        await eventually(lambda: engine.pools[NS].is_idle, "and their steps have ended")
        await eventually(lambda: engine.pools[NS]._budget.used == 0, "there is room")
