"""Who waits for which task, and how they learn that it ended.

Rule: an answer is read from the tables or comes from a step of this process that has committed; a hint
only says where to look. Every waiter is looked after by a slow poll, so no hint is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import timedelta

from progressor.errors import ProgressorError
from progressor.storage.batching import GroupCommit
from progressor.storage.items import Answer, TaskRef

log = logging.getLogger("progressor.replies")

Key = tuple[str, str, int]
_MOST_EARLY = 10_000


class _Waiter:
    __slots__ = ("answer", "callers")

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.callers = 0


class Replies:
    """The waiters of one process. `announce` tells a client of another process where to look."""

    def __init__(
        self,
        storage: GroupCommit,
        *,
        poll_interval: timedelta,
        announce: Callable[[str, str, int], None],
    ) -> None:
        self._storage = storage
        self._poll_interval = poll_interval.total_seconds()
        self._announce = announce
        self._waiters: dict[Key, _Waiter] = {}
        self._by_id: dict[int, Key] = {}
        # Hints that came before their waiter: a task can end before its request's answer is back.
        self._early: OrderedDict[int, bool] = OrderedDict()
        self._poller: asyncio.Task[None] | None = None
        self._lookups: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._poller = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        tasks = [task for task in (self._poller, *self._lookups) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiter in list(self._waiters.values()):
            waiter.answer.cancel()

    async def wait(self, ref: TaskRef) -> Answer:
        """The answer of a task, once it is final; any number of callers may wait for one task."""
        key = (ref.namespace, ref.process_id, ref.task_id)
        waiter = self._waiters.get(key)
        if waiter is None:
            waiter = self._waiters[key] = _Waiter()
            self._by_id[ref.task_id] = key
            if self._early.pop(ref.task_id, False):
                self._look([key])
        waiter.callers += 1
        try:
            # A caller that gives up must not take the answer from the others.
            return await asyncio.shield(waiter.answer)
        finally:
            waiter.callers -= 1
            if not waiter.callers:
                del self._waiters[key]
                self._by_id.pop(key[2], None)

    def tell(self, ref: TaskRef, answer: Answer) -> None:
        """Hand out an answer that is committed, here or, by a hint, in the caller's process."""
        if not self._resolve(ref, answer) and ref.reply_to is not None:
            self._announce(ref.reply_to, ref.namespace, ref.task_id)

    def _resolve(self, ref: TaskRef, answer: Answer) -> bool:
        waiter = self._waiters.get(ref[:3])
        if waiter is None:
            return False
        if not waiter.answer.done():
            waiter.answer.set_result(answer)
        return True

    def hint(self, task_ids: Iterable[int]) -> None:
        """Some tasks are said to have ended: look."""
        keys = []
        for task_id in task_ids:
            key = self._by_id.get(task_id)
            if key is not None:
                keys.append(key)
            else:
                self._early[task_id] = True
        while len(self._early) > _MOST_EARLY:
            self._early.popitem(last=False)
        self._look(keys)

    def look(self, ref: TaskRef) -> None:
        """A task may have ended: look, here or, by a hint, in its caller's process."""
        if ref[:3] in self._waiters:
            self._look([ref[:3]])
        elif ref.reply_to is not None:
            self._announce(ref.reply_to, ref.namespace, ref.task_id)

    def look_at_all(self) -> None:
        """Hints may have been missed: look for every waiter."""
        self._look(list(self._waiters))

    def _look(self, keys: list[Key]) -> None:
        for key in keys:
            task = asyncio.create_task(self._look_up(key))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)

    async def _look_up(self, key: Key) -> None:
        ref = TaskRef(*key)
        try:
            answer = await self._storage.reply(ref)
        except ProgressorError as error:
            log.warning("reply not read", extra={"error": type(error).__name__})
            return
        if answer.status is None or answer.status.is_final:
            self._resolve(ref, answer)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval)
            self.look_at_all()
