"""Worlds: the real engine on a real PostgreSQL, in virtual time.

Rule: the clock of a world stands still while anything runs, and jumps from one due time to the next. So
each step runs at its exact due time, and a year costs its steps. A world is quiet when no step runs, no
request is on its way, and the tables hold nothing that is due. Retention walks have no due times of their
own: they run before the steps of the next one, and at the end of an advance.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from progressor.app.app import App, Lifespan, app_of
from progressor.app.middleware import CallNext, StepView
from progressor.app.resources import check_names
from progressor.client.engine_client import EngineClient
from progressor.errors import InvalidRequest, NonRetryable
from progressor.handlers.namespace import Namespace
from progressor.inputs import check_moment
from progressor.model import Intent, TaskType
from progressor.storage import Clock
from progressor.testing.engine import VirtualEngine
from progressor.testing.failures import (
    BrokenInWorld,
    BrokenProcess,
    HandlerError,
    RunawayWorld,
    WorldError,
)
from progressor.testing.old_states import read_old_states

MOST_STEPS = 100_000
"""The steps of one advance, unless a world states another number."""
# Turns of the event loop without work after which nothing that was under way can begin any.
_TURNS = 2
# Seconds between two looks at work that is due and cannot be claimed: another session holds its row, say.
_LOOK_AGAIN = 0.05
_WITHOUT_CALLER = (TaskType.TIMEOUT, TaskType.REMOVE, TaskType.NOTIFY)
_AT_ONCE = timedelta(0)


class World:
    """The processes of one database in virtual time: `async with World(dsn, [billing]) as world: …`.

    `now` is the time at which it begins, with a zone (default: the present). With `resources`, handlers get
    these by name, and the lifespan of the app is not entered. `most_steps` bounds the steps of one
    `advance` or `settle`. Further keywords are those of EngineOptions. The database must have the
    tables, and nobody else may work on it.
    """

    def __init__(
        self,
        dsn: str,
        namespaces: App | Iterable[Namespace[Any]],
        *,
        now: datetime | None = None,
        resources: Mapping[str, Any] | None = None,
        most_steps: int = MOST_STEPS,
        **options: Any,
    ) -> None:
        begin = datetime.now(UTC) if now is None else check_moment("now", now).astimezone(UTC)
        self._clock = Clock(begin)
        self._most_steps = most_steps
        self._steps = 0
        self._runaway: HandlerError | None = None
        self._errors: list[HandlerError] = []
        self._checked = 0
        self._advancing = asyncio.Lock()
        # The time at which a retention walk is due next, as far as this advance knows.
        self._walks_at: datetime | None = None
        # The time at which a timer is due next, by namespace, at the last look.
        self._due: dict[str, datetime] = {}
        app = app_of(namespaces)
        lifespan = app.lifespan if resources is None else _yielding(resources)
        options = {"stop_grace": timedelta(seconds=2), **options}
        watched = App(app.namespaces, lifespan, (self._watch, *app.middleware))
        self._engine = VirtualEngine(dsn, watched, clock=self._clock, **options)

    @property
    def now(self) -> datetime:
        """The time of this world, in UTC."""
        return self._clock.now

    @property
    def client(self) -> EngineClient:
        """The client, whose requests are made at `now`; InvalidRequest unless the world is entered."""
        return self._engine.client

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()

    async def settle(self) -> None:
        """Run all that is due now until nothing is. Raises as `advance` does."""
        await self._run(self.now)

    async def advance(self, by: timedelta | None = None, *, to: datetime | None = None) -> None:
        """Run all that is due until then, each at its due time and in that order; then it is then.

        Raise BrokenInWorld, at the end, if a timer or a notice broke its process; RunawayWorld if more
        than `most_steps` steps ran; and InvalidRequest for a time in the past.
        """
        if (by is None) is (to is None):
            raise InvalidRequest("advance takes a timedelta, or to=datetime", field="by")
        if by is not None and not isinstance(by, timedelta):
            raise InvalidRequest(f"by must be a timedelta, not {type(by).__name__}", field="by")
        target = self.now + (by or _AT_ONCE) if to is None else check_moment("to", to).astimezone(UTC)
        if target < self.now:
            raise InvalidRequest(
                f"a world goes forward only: it is {self.now}, later than {target}",
                field="to" if to is not None else "by",
            )
        await self._run(target)

    def twice(self) -> None:
        """From now on run each handler twice, the first time as if its worker died before the save.

        State, events, timer, answer and rows of the first run are dropped, as after a death. What it did
        outside stays done: so a test finds an effect that has no idempotency key.
        """
        self._engine.repeat()

    def old_states(self, file: str | Path) -> int:
        """Read states that an older version stored as the types of today; return how many there are.

        `file` has what `progressor search --json` printed. UnreadableStates names the process, field and
        rule of each that cannot be read; InvalidRequest if the file has no states of these namespaces.
        """
        return read_old_states(file, self._engine.namespaces)

    async def broken(self) -> list[BrokenProcess]:
        """Return the processes that are broken now, each with the traceback of its handler."""
        found: list[BrokenProcess] = []
        texts = {each.key: each.traceback for each in self._errors}
        cursor: str | None = None
        while True:
            page = await self.client.search(status="error", cursor=cursor)
            for process in page.items:
                key = process.namespace, process.process_id
                found.append(BrokenProcess(*key, process.detail, texts.get(key)))
            cursor = page.cursor
            if cursor is None:
                return found

    async def _run(self, target: datetime) -> None:
        if self._advancing.locked():
            raise WorldError("this world is being advanced: await that first")
        async with self._advancing:
            self._steps = 0
            self._walks_at = self.now
            self._clock.forget()
            # What the test has begun is to be on its way.
            await asyncio.sleep(0)
            while (due := await self._quiet()) is not None and due <= target:
                self._clock.now = due
                await self._walk()
                self._ring(due)
            self._clock.now = target
            await self._walk()
            await self._check()

    async def _check(self) -> None:
        """Raise the error of processes that broke since the last check in steps without a caller."""
        failed, self._checked = self._errors[self._checked :], len(self._errors)
        keys = {each.key for each in failed if each.step.task_type in _WITHOUT_CALLER}
        broken = [each for each in await self.broken() if each[:2] in keys] if keys else []
        if broken:
            raise BrokenInWorld(broken)

    async def _quiet(self) -> datetime | None:
        """Run all that is due; return the time at which the next timer is due, None if there is none."""
        blocked_since: float | None = None
        while True:
            await self._idle()
            performed = self._engine.performed
            due = await self._look()
            if due is None or due > self.now:
                if await self._is_still() and performed == self._engine.performed:
                    return due
                continue
            await self._idle()
            if performed != self._engine.performed:
                blocked_since = None
                continue
            blocked_since = await self._wait_for_claims(blocked_since)

    async def _wait_for_claims(self, since: float | None) -> float:
        loop = asyncio.get_running_loop()
        if since is None:
            return loop.time()
        if loop.time() - since > self._engine.options.patience.total_seconds():
            raise WorldError("a task is due and cannot be claimed: does another session hold its process?")
        await asyncio.sleep(_LOOK_AGAIN)
        return since

    async def _look(self) -> datetime | None:
        """Ring for what is due, and return the earliest due time: `now` if something is."""
        found = await self._engine.node.storage.next_timers([*self._engine.pools])
        self._due = {name: max(due, self.now) for name, due in found.due.items() if due is not None}
        for name in found.others:
            await self._look_at(name)
        self._ring(self.now)
        messages = await self._messages() if found.has_messages else []
        return min((*self._due.values(), *messages), default=None)

    async def _look_at(self, name: str) -> None:
        """Ring for the requests of a namespace, and note when something there is due, if it is at all."""
        backlog = await self._engine.node.storage.backlog(name, most=1)
        if backlog.paused:
            return
        due = [each for each in (backlog.next_due, backlog.next_room) if each is not None]
        if backlog.calls.tasks or backlog.timers.tasks:
            due = [backlog.rests or _AT_ONCE]
        if due:
            self._due[name] = self.now + min(due)
        if due == [_AT_ONCE]:
            self._engine.pools.ring(name, "calls")

    async def _messages(self) -> list[datetime]:
        """Have messages delivered that are due; return when the next one is, if there is any."""
        due_in = (await self._engine.node.outbox.waiting()).due_in
        if due_in is None:
            return []
        if due_in <= _AT_ONCE:
            self._engine.node.courier.ring()
        return [self.now + max(due_in, _AT_ONCE)]

    async def _walk(self) -> None:
        """Run the retention walks that are due by now, at once and as a whole."""
        if self._walks_at is None or self._walks_at > self.now:
            return
        storage = self._engine.node.storage
        while await storage.sweep(rate=math.inf) is not None:
            pass
        due_in = await storage.next_sweep()
        self._walks_at = None if due_in is None else self.now + due_in

    def _ring(self, until: datetime) -> None:
        for name, due in self._due.items():
            if due <= until:
                self._engine.pools.ring(name, "timers")

    async def _idle(self) -> None:
        """Wait until no step runs and no request is on its way."""
        pools, node = self._engine.pools, self._engine.node
        while not (pools.is_idle and node.is_idle):
            await pools.idle()
            await node.idle()
        self._raise_runaway()

    async def _is_still(self) -> bool:
        """Return whether nothing begins for some turns of the loop."""
        for _ in range(_TURNS):
            if not (self._engine.pools.is_idle and self._engine.node.is_idle):
                return False
            await asyncio.sleep(0)
        return True

    def _raise_runaway(self) -> None:
        if self._runaway is not None:
            last, self._runaway = self._runaway, None
            raise RunawayWorld(
                f"more than {self._most_steps:,} steps (most_steps) at one advance, the last of them "
                f"{last} at {self.now}"
            )

    async def _watch(self, step: StepView, call_next: CallNext) -> Intent:
        """Run a step, count it, and keep the traceback of its error: the outermost middleware."""
        self._steps += 1
        if self._steps > self._most_steps:
            # It breaks its process, which ends a chain that would go on for ever.
            too_many = NonRetryable(f"more than {self._most_steps:,} steps (most_steps) at one advance")
            self._runaway = HandlerError.of(step, too_many)
            raise too_many
        try:
            return await call_next(step)
        except BaseException as error:
            self._errors.append(HandlerError.of(step, error))
            raise


def _yielding(resources: Mapping[str, Any]) -> Lifespan:
    """Return a lifespan in place of the app's, which opens nothing."""
    given = check_names(resources, by="World(resources=...)")

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[Mapping[str, Any]]:
        yield given

    return lifespan


MakeWorld = Callable[..., World]
"""A function that makes a world on the database of a test, with the arguments of World but for the DSN."""
