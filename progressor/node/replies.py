"""The callers in this process that wait for tasks, and the replies that reach them.

Rule: an answer is read from the tables or comes from a committed step of this process; a hint only says
where to look. A slow poll looks for every waiter, so no hint is needed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import timedelta

from progressor.errors import ProgressorError, StorageUnavailable
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage import BatchRefused, Signals, Storage, TaskKey, TaskOutcome, TaskRef
from progressor.supervision import Background

log = Logger("progressor.replies")

_LINES = OutageLines("replies not read, a poll will", "replies still not read", "replies are read again")

# Task ids: the most early hints, and the most followed tasks, that are kept.
_MOST_EARLY = 10_000
_MOST_LOOKED_AT = 500


class Replies:
    """The waiters of one process.

    `announce` hints to a client of another process that its task has ended.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        poll_interval: timedelta,
        announce: Callable[[int, str, int], None],
    ) -> None:
        self._storage = storage
        self._poll_interval = poll_interval.total_seconds()
        self._announce = announce
        self.signals: Signals | None = None
        """The hints to and from the followers of tasks; None with signals off."""
        # The callers of each task, each with a future of its own.
        self._waiters: dict[TaskKey, list[asyncio.Future[TaskOutcome]]] = {}
        # Several keys for one id: a promoted server may draw the number of another task again.
        self._by_id: dict[int, list[TaskKey]] = {}
        # The first asker of each task that is waited for here; the tasks of this process that others
        # follow.
        self._first_askers: dict[TaskKey, int] = {}
        self._followed: OrderedDict[int, bool] = OrderedDict()
        # Hints that came before their waiter: a task can end before its request's answer is back.
        self._early: OrderedDict[int, bool] = OrderedDict()
        self._wanted: set[TaskKey] = set()
        self._asked = asyncio.Event()
        self._background = Background()
        self._outage = Outage(log, _LINES)
        self._stopped = False

    def start(self) -> None:
        self._background.keep("replies", self._look_forever)
        self._background.keep("replies poll", self._poll)

    async def stop(self) -> None:
        """Stop waiting.

        Callers that still wait get StorageUnavailable, because their tasks have not failed.
        """
        self._stopped = True
        for key in list(self._waiters):
            for caller in self._forget(key):
                caller.set_exception(_closed())
        await self._background.stop()

    async def wait(self, ref: TaskRef) -> TaskOutcome:
        """Return the outcome of a task once it is final; any number of callers may wait for one task.

        StorageUnavailable if this process stops first.
        """
        if self._stopped:
            raise _closed()
        key = ref.key
        callers = self._waiters.get(key)
        if callers is None:
            callers = self._waiters[key] = []
            self._by_id.setdefault(ref.task_id, []).append(key)
            if ref.reply_to is not None and self.signals is not None:
                self._first_askers[key] = ref.reply_to
                self.signals.follow(ref.reply_to, ref.task_id)
            if self._early.pop(ref.task_id, False):
                self._look([key])
        answer: asyncio.Future[TaskOutcome] = asyncio.get_running_loop().create_future()
        callers.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            callers.remove(answer)
            if not callers and self._waiters.get(key) is callers:
                self._forget(key)
            raise

    def _forget(self, key: TaskKey) -> list[asyncio.Future[TaskOutcome]]:
        """Drop the callers of a task; return those that still wait."""
        callers = self._waiters.pop(key, None)
        if callers is None:
            return []
        same = self._by_id[key.task_id]
        same.remove(key)
        if not same:
            del self._by_id[key.task_id]
        first_asker = self._first_askers.pop(key, None)
        if first_asker is not None and self.signals is not None:
            self.signals.unfollow(first_asker, key.task_id)
        return [caller for caller in callers if not caller.done()]

    def resolve(self, ref: TaskRef, answer: TaskOutcome) -> None:
        """Hand a committed answer to the callers here; a hint to another process left behind its step."""
        self._hand_out(ref.key, answer)
        self._tell_followers(ref.task_id)

    def followed(self, task_id: int) -> None:
        """Remember that another process waits for a task that was asked for here first."""
        self._followed[task_id] = True
        while len(self._followed) > _MOST_EARLY:
            self._followed.popitem(last=False)
        if task_id not in self._by_id and self.signals is not None:
            # The task may have ended before: its follower looks now. If it still runs here, `resolve` hints
            # again.
            self.signals.ended(task_id)

    def _tell_followers(self, task_id: int) -> None:
        if self._followed.pop(task_id, False) and self.signals is not None:
            self.signals.ended(task_id)

    def _hand_out(self, key: TaskKey, answer: TaskOutcome) -> None:
        for caller in self._forget(key):
            caller.set_result(answer)

    def hint(self, task_ids: Iterable[int]) -> None:
        """Look at tasks that a hint says have ended; remember those that nobody waits for yet."""
        keys: list[TaskKey] = []
        for task_id in task_ids:
            found = self._by_id.get(task_id)
            if found is None:
                self._early[task_id] = True
            else:
                keys += found
        while len(self._early) > _MOST_EARLY:
            self._early.popitem(last=False)
        self._look(keys)

    def announce(self, ref: TaskRef) -> None:
        """Hint to the process of a caller, whose hint did not leave behind the step."""
        if ref.reply_to is not None:
            self._announce(ref.reply_to, ref.namespace, ref.task_id)

    def look(self, ref: TaskRef) -> None:
        """Look at a task that may have ended, and hint to the process of its caller."""
        self._look(self._by_id.get(ref.task_id, ()))
        self.announce(ref)
        self._tell_followers(ref.task_id)

    def look_at_all(self) -> None:
        """Look at every task that is waited for, because hints may have been missed."""
        self._look(self._waiters)

    def _look(self, keys: Iterable[TaskKey]) -> None:
        self._wanted.update(keys)
        if self._wanted:
            self._asked.set()

    async def _look_forever(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            # Tasks that are asked for meanwhile go together in the next round.
            wanted, self._wanted = list(self._wanted), set()
            for start in range(0, len(wanted), _MOST_LOOKED_AT):
                await self._look_at(wanted[start : start + _MOST_LOOKED_AT])

    async def _look_at(self, keys: list[TaskKey]) -> None:
        try:
            answers = await self._storage.replies(keys)
        except BatchRefused as error:
            await self._look_apart(keys, error)
            return
        except ProgressorError as error:
            self._outage.failed(cause_of(error))
            return
        self._outage.worked()
        # The answers of the rest had no room: ask again.
        self._look(keys[len(answers) :])
        for key, answer in zip(keys, answers, strict=False):
            if answer.status is None or answer.status.is_final:
                self._hand_out(key, answer)
                self._tell_followers(key.task_id)

    async def _look_apart(self, keys: list[TaskKey], error: BatchRefused) -> None:
        """Look at tasks one by one, as one answer cannot be read: StorageUnavailable for its callers."""
        if len(keys) > 1:
            for key in keys:
                await self._look_at([key])
            return
        for caller in self._forget(keys[0]):
            caller.set_exception(StorageUnavailable(f"PostgreSQL cannot read the answer: {error}"))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval)
            self.look_at_all()


def _closed() -> StorageUnavailable:
    return StorageUnavailable("closed before the answer came: ask again with the same key")
